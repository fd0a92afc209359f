"""Where a command is killed: at one of its writes, or some time after it.

A command tells of every file that it opens for writing, renames, removes or links, and of every
folder that it makes (an audit hook of Python, PEP 578). At the point that was drawn it kills its
whole process group with SIGKILL, workers and all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

WATCH = "SYMBIONT_KILL_WATCH"
"""By this variable workers, which are processes of their own, hear what is watched."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PLACES = {"os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.link": 1, "open": 0}
"""Events of Python that change files, and which of their arguments is the path."""


@dataclass(frozen=True)
class KillPoint:
    """So many seconds after so many writes of a process; 0 writes are its start. Without a delay
    the write itself does not happen, but for a torn one: that leaves an empty file."""

    writes: int
    delay: float = 0.0
    is_torn: bool = False


@dataclass(frozen=True)
class Write:
    """The number of a write among those of its process, from 1, and seconds since the start."""

    number: int
    seconds: float


@dataclass(frozen=True)
class Watch:
    """What is watched: writes below a folder are noted in a log, and at a point all is over."""

    folder: str
    log: str
    began: float
    point: KillPoint | None = None

    def begin(self) -> None:
        """In the process of a command."""
        os.environ[WATCH] = json.dumps(asdict(self))
        if self.point is not None and self.point.writes == 0:
            _kill_later(self.point.delay)
        self._listen()

    def _listen(self) -> None:
        count, is_busy = 0, False

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            """What Python calls before it does something."""
            nonlocal count, is_busy
            if event not in PLACES or is_busy or not self._is_write(event, arguments):
                return
            is_busy = True  # what is done here is heard, too
            count += 1
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{os.getpid()} {count} {time.monotonic() - self.began}\n")
            if self.point is not None and count == self.point.writes:
                self._come_to(self.point, event, arguments)
            is_busy = False

        sys.addaudithook(hear)

    def _is_write(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open" and not int(arguments[2] or 0) & WRITES:
            return False
        path = arguments[PLACES[event]]
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder + os.sep)

    def _come_to(self, point: KillPoint, event: str, arguments: tuple[Any, ...]) -> None:
        if point.delay:
            _kill_later(point.delay)
            return
        if point.is_torn and event == "open":
            path, _, flags = arguments
            os.close(os.open(path, flags, 0o666))
        _kill()


def watch_as_parent() -> None:
    """In a worker: watches what the process that started it watches."""
    if WATCH in os.environ:
        fields = json.loads(os.environ[WATCH])
        point = fields.pop("point")
        Watch(**fields, point=None if point is None else KillPoint(**point))._listen()


def writes_in(log: Path) -> list[Write]:
    """The writes that a command told of, of all its processes."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [Write(int(number), float(at)) for _, number, at in map(str.split, lines)]


def drawn_point(
    writes: Sequence[Write], seconds: float, draw: np.random.Generator, *, is_timed: bool
) -> KillPoint:
    """A point in a command that made these writes when it was left alone: one of them, or any
    moment."""
    if not is_timed and writes:
        write = writes[int(draw.integers(len(writes)))]
        return KillPoint(write.number, is_torn=bool(draw.integers(2)))
    moment = float(draw.uniform(0, seconds))
    before = [write for write in writes if write.seconds <= moment]
    last = max(before, key=lambda write: write.seconds, default=Write(0, 0.0))
    return KillPoint(last.number, max(moment - last.seconds, 1e-4))


def _kill_later(delay: float) -> None:
    timer = threading.Timer(delay, _kill)
    timer.daemon = True  # a command that ends first is not waited for
    timer.start()


def _kill() -> None:
    os.killpg(0, signal.SIGKILL)

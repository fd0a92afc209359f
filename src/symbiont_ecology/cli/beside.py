"""Runs beside the one that is watched: processes of their own, which stop when this one leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.cli import console
from symbiont_ecology.cli.run import is_free_for
from symbiont_ecology.errors import RunError
from symbiont_ecology.process import interrupted_with

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig

LOW_PRIORITY = 5
"""Niceness of these runs, so that the screen does not wait for them."""
SECONDS_UNTIL_FREE = 60.0
"""Seconds to wait for the last generation of a run whose parent was killed."""
ERROR = "error: "
"""What the line of an error begins with."""


@dataclass(frozen=True)
class RunBeside:
    """A run of a preset: its name in words, and what differs from the preset."""

    preset: str
    about: str
    changes: Sequence[str] = ()


@contextmanager
def running_beside(folder: Path, runs: Mapping[str, RunBeside]) -> Iterator[Callable[[bool], None]]:
    """Starts runs, or goes on with them, each in a folder of its name; yields what waits for all.

    Raises:
        RunError: one of them failed (when it is waited for).
    """
    children = {name: _start(folder, name, run) for name, run in runs.items()}

    def wait(quiet: bool) -> None:
        """Returns when all of them are done."""
        if any(child.poll() is None for child in children.values()) and not quiet:
            print("waiting for the controls on the other cores …", flush=True)
        for name, child in children.items():
            if child.wait() != 0:
                log = _log_of(folder, name)
                raise RunError(f"the run of {runs[name].about!r} failed: {_why(log)} (see {log})")

    try:
        yield wait
    finally:
        running = [child for child in children.values() if child.poll() is None]
        for child in running:
            _end(child)
        for child in running:
            child.wait()


def can_go_on(folder: Path, configs: Mapping[str, RunConfig]) -> bool:
    """Whether a folder is free, or holds these very runs, each in a folder of its name."""
    is_plain_run = (folder / "config.yaml").exists()
    return not is_plain_run and all(is_free_for(folder / name, configs[name]) for name in configs)


def _start(folder: Path, name: str, run: RunBeside) -> subprocess.Popen[bytes]:
    from symbiont_ecology.engine.living import wait_until_free

    place = folder / name
    if place.exists():
        wait_until_free(place, SECONDS_UNTIL_FREE)
    exists = (place / "config.yaml").exists()
    new = ["run", run.preset, *run.changes, "--out", str(place)]
    words = ["resume", str(place)] if exists else new
    log = _log_of(folder, name)
    console.prepare(log)
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", "symbiont_ecology", *words]
        # A session of its own: Ctrl-C reaches it through us, so that it hears of it once.
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.BELOW_NORMAL_PRIORITY_CLASS
            return subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, creationflags=flags
            )
        return subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_begin_beside, os.getpid()),
        )


def _begin_beside(parent: int) -> None:
    """In the new process: it gives way, and hears of a signal from its first moment on, also where
    this one was started in the background by a shell, which ignores them. It does not outlive its
    parent by more than a generation, even if that is killed."""
    os.nice(LOW_PRIORITY)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    interrupted_with(parent)


def _why(log: Path) -> str:
    """The last error of a run, or the last thing that it said."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith(ERROR)]
    last = (errors or lines or ["it said nothing"])[-1]
    return last.removeprefix(ERROR)


def _end(child: subprocess.Popen[bytes]) -> None:
    """It finishes its generation and makes a checkpoint. Windows can only kill it, and then its
    last checkpoint holds."""
    if sys.platform == "win32":
        child.terminate()
    else:
        child.send_signal(signal.SIGINT)


def _log_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"

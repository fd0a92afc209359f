"""Commands in processes of their own, killed when they have come to a point."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "symbiont_ecology"]
WRITES = {"open": 0, "os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.link": 1}
"""Events of Python that change files, and which of their arguments is the path."""
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TIMES = ("timings.jsonl", "*.log", "seconds.json")
"""Files that hold times, and so differ from run to run."""


def kill_when(ready: Callable[[], bool], *words: object) -> None:
    """Type a command, and kill it with all its workers as soon as it is ready.

    It must not have ended before: then nothing would have been killed.
    """
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)], start_new_session=True, stdout=subprocess.DEVNULL
    )
    while not ready():
        assert process.poll() is None, f"ended too early, with {process.returncode}"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def writes_of(words: Sequence[str], folder: Path, kill_at: int = 0) -> int:
    """Type a command in a folder; return the number of its writes below the folder.

    Write number ``kill_at`` is the last: a file that is opened there is left empty, nothing else
    happens, and the process is killed with all its workers. Commands are forked from a process
    that has loaded torch, since loading it would take most of the time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers", "symbiont_ecology.model.kernel", "killing"])
    counted = context.Value("i", 0)
    process = context.Process(target=_typed, args=(list(words), folder, kill_at, counted))
    process.start()
    process.join(300)
    expected = -signal.SIGKILL if kill_at else 0
    assert process.exitcode == expected, (words, (folder.parent / "said.log").read_text()[-1500:])
    return int(counted.value)


def _typed(words: list[str], folder: Path, kill_at: int, counted: Any) -> None:
    os.setsid()
    os.chdir(folder)
    output = os.open(folder.parent / "said.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    place, is_busy = str(folder.resolve()) + os.sep, False

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal is_busy
        if is_busy or event not in WRITES:
            return
        if event == "open" and not int(arguments[2] or 0) & WRITE_FLAGS:
            return
        path = arguments[WRITES[event]]
        if isinstance(path, int) or not os.path.abspath(os.fsdecode(path)).startswith(place):
            return
        counted.value += 1
        if counted.value == kill_at:
            is_busy = True
            if event == "open":
                os.close(os.open(path, arguments[2], 0o666))
            os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hear)
    sys.argv = ["symbiont", *words]
    from symbiont_ecology import cli

    cli.main()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder, without those and without the lines that hold times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in files if not any(fnmatch(path.name, kind) for kind in TIMES)]
    return {path.relative_to(folder).as_posix(): _timeless(path) for path in kept}


def _timeless(path: Path) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if path.suffix != ".json" or b'"seconds"' not in line)


def interrupted(words: Sequence[object], until: str = "", *, is_in_background: bool = False) -> str:
    """Return what a command says on stderr when Ctrl-C comes as soon as it says a line that begins
    so.

    One in the background is started as shells start such commands: with Ctrl-C ignored.
    """

    def begin() -> None:
        if is_in_background:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=begin,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(until):
                break
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=120)
    assert child.returncode == 130
    return err

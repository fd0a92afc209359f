"""Commands in processes of their own, killed when they have come to a point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

COMMAND = [sys.executable, "-m", "symbiont_ecology"]


def kill_when(ready: Callable[[], bool], *words: object) -> None:
    """Types a command, and kills it with all its workers as soon as it is ready.

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


def interrupted(words: Sequence[object], until: str = "", *, is_in_background: bool = False) -> str:
    """What a command says on stderr when Ctrl-C comes as soon as it says a line that begins so.

    One in the background is started as shells start such commands: with Ctrl-C ignored.
    """

    def begin() -> None:
        """In the new process."""
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

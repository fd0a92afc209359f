"""Commands in processes of their own, killed when they have come to a point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

COMMAND = [sys.executable, "-m", "symbiont_ecology.cli"]


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

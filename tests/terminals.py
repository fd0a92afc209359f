"""A command on a terminal of its own, whose keys a test presses and whose screen it reads."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

PATIENCE = 60.0
"""Seconds until a test gives up."""


class PseudoTerminal:
    """Runs a command. ``has_keys`` is whether stdin is the terminal, too.

    ``shown`` holds all that came to the screen, control codes included.
    """

    def __init__(self, words: Sequence[object], has_keys: bool = True) -> None:
        self.shown = ""
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.settings_before = self.settings
        self.child = subprocess.Popen(
            list(map(str, words)),
            stdin=self._slave if has_keys else subprocess.DEVNULL,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color"},
        )

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def settings(self) -> list[Any]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._slave)

    def reset(self) -> None:
        """Gives it the settings of the beginning, as a shell does that stops a command."""
        termios.tcsetattr(self._slave, termios.TCSANOW, self.settings_before)

    def press(self, keys: str) -> None:
        """Types something."""
        os.write(self._master, keys.encode())

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Reads the screen until a test is content with it, or anything else."""
        end = time.monotonic() + PATIENCE
        while not ready():
            assert time.monotonic() < end, self.shown[-4000:]
            if select.select([self._master], [], [], 0.05)[0]:
                self.shown += os.read(self._master, 65536).decode(errors="replace")

    def wait_for(self, text: str) -> None:
        """Reads the screen until a text is shown that was not there before."""
        before = len(self.shown)
        self.wait_until(lambda: text in self.shown[before:])

    def ended(self) -> int:
        """Reads to the end, and returns the exit code."""
        self.wait_until(lambda: self.child.poll() is not None)
        with suppress(OSError):
            while select.select([self._master], [], [], 0.1)[0]:
                self.shown += os.read(self._master, 65536).decode(errors="replace")
        return int(self.child.returncode)

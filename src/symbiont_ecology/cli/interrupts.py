"""Ctrl-C and SIGTERM: the first one lets the generation end, the second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
from threading import Event
from types import FrameType

ENDING = "finishing this generation (Ctrl-C again stops at once)"
AT_ONCE = "stopped at once: what came after the last checkpoint is lived again"
_came_early = Event()
"""Set when Ctrl-C came before anybody waited for it."""


def remember_interrupts() -> None:
    """Let Ctrl-C end this process from here on, in any case before a run begins: Python drops the
    exception if it comes at certain moments of an import. Who ignores Ctrl-C goes on doing so."""
    _came_early.clear()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _came_early.set()
    raise KeyboardInterrupt


class StopRequest:
    """A context in which a first Ctrl-C or SIGTERM sets ``is_made``, and a second interrupts."""

    def __init__(self) -> None:
        self.is_made = False

    def __enter__(self) -> StopRequest:
        if _came_early.is_set():
            raise KeyboardInterrupt
        names = signal.SIGINT, signal.SIGTERM  # which batch systems send before they kill
        self._before = {name: signal.signal(name, self._make) for name in names}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _make(self, number: int, frame: FrameType | None) -> None:
        # Not print: a signal may come while the stream is being written to.
        os.write(sys.stderr.fileno(), f"\n{AT_ONCE if self.is_made else ENDING}\n".encode())
        if self.is_made:
            raise KeyboardInterrupt
        self.is_made = True

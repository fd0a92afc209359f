"""Ctrl-C and SIGTERM: the first one lets the generation end, the second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

ENDING = "finishing this generation (Ctrl-C again stops at once)"
AT_ONCE = "stopped at once: what came after the last checkpoint is lived again"


class StopRequest:
    """A context in which a first Ctrl-C or SIGTERM sets ``is_made``, and a second interrupts."""

    def __init__(self) -> None:
        self.is_made = False

    def __enter__(self) -> StopRequest:
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

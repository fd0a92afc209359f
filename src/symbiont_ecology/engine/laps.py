"""A clock for the phases of a generation. Nothing that a run does depends on it."""

from __future__ import annotations

import time


class Laps:
    """``seconds`` by phase, since ``begin``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = 0.0

    def begin(self) -> None:
        """A generation begins."""
        self.seconds = {}
        self._since = time.perf_counter()

    def end(self, phase: str, more: float = 0.0) -> None:
        """What has passed since the last phase belongs to this one, and so do ``more`` seconds."""
        now = time.perf_counter()
        self.seconds[phase] = now - self._since + more
        self._since = now

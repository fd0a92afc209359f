"""A clock for the phases of a generation. Nothing that a run does depends on it."""

from __future__ import annotations

import time


class Laps:
    """``seconds`` by phase, since ``begin``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = 0.0

    def begin(self) -> float:
        """A generation begins; returns the time on the clock."""
        self.seconds = {}
        self._since = time.perf_counter()
        return self._since

    def end(self, phase: str) -> None:
        """What has passed since the last phase belongs to this one."""
        now = time.perf_counter()
        self.seconds[phase] = now - self._since
        self._since = now

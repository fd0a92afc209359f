"""How far a run has come, and how long it will take at its pace of late."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from symbiont_ecology.config import LoopConfig
from symbiont_ecology.ecology import EcologyState

HALF_LIFE = 30.0
"""Seconds after which a generation counts half for the pace."""
LEAST_KEPT = 0.8
"""Weight that a generation keeps behind the next one at least, so that slow ones count, too."""


@dataclass(frozen=True)
class RunLength:
    """Where a run wants to go: whichever of its ends it reaches first.

    ``before`` is the wall-clock time that was lived before this sitting, in seconds.
    """

    loop: LoopConfig
    before: float = 0.0

    def fraction(self, state: EcologyState, seconds: float = 0.0) -> float:
        """The part of the way that is done after some seconds of this sitting, in [0, 1]."""
        loop, spent = self.loop, state.spent
        ways = [
            (state.generation, max(loop.generations, 1)),
            (spent.flops, loop.train_flops),
            (spent.flops, (loop.train_rollouts or 0) * state.mean_rollout_flops),
            (spent.tokens, loop.train_tokens),
            (self.before + seconds, loop.train_seconds),
        ]
        return min(1.0, max(value / end for value, end in ways if end))


class Pace:
    """Tells the time to go from the progress of the last half a minute or so."""

    def __init__(self, length: RunLength, clock: Callable[[], float] = time.monotonic) -> None:
        self._length, self._clock = length, clock
        self._lived = self._progress = self._time = 0.0
        self._last: float | None = None
        self.done = 0.0

    def advance(self, state: EcologyState, seconds: float) -> None:
        """Counts a generation that took so many seconds."""
        self._lived += seconds
        now, before = self._clock(), self.done
        self.done = self._length.fraction(state, self._lived)
        if self._last is not None:
            elapsed = now - self._last
            weight = max(0.5 ** (elapsed / HALF_LIFE), LEAST_KEPT)
            self._time = weight * self._time + elapsed
            self._progress = weight * self._progress + self.done - before
        self._last = now

    @property
    def left(self) -> str:
        """Time to go, such as ``3:20``; a question mark before there is a pace."""
        if self._progress <= 0:
            return "?"
        return duration((1 - self.done) * self._time / self._progress)


def duration(seconds: float) -> str:
    """Minutes and seconds, hours where there are any, or days alone: ``3:20``, ``1:03:20``,
    ``5 days``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 72:
        return f"{hours // 24} days"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

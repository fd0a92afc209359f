"""A number over a whole run in one line of blocks, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_POINTS = 256
"""Points of a trend that are kept; then two neighbours become one."""


class Trend:
    """A number over time. A point is the mean of one value, then of two, of four and so on."""

    def __init__(self) -> None:
        self._points: list[float | None] = []
        self._open: list[float | None] = []  # values of the point that is not whole yet
        self._each = 1

    def add(self, value: float | None) -> None:
        """Adds the newest value; None where there was nothing to measure."""
        self._open.append(value)
        if len(self._open) < self._each:
            return
        self._points.append(_mean(self._open))
        self._open = []
        if len(self._points) == MOST_POINTS:
            points = iter(self._points)
            self._points = [_mean(pair) for pair in zip(points, points, strict=True)]
            self._each *= 2

    def points(self, most: int) -> list[float | None]:
        """The whole course in so many points at most, each a mean."""
        points = [*self._points, *([_mean(self._open)] if self._open else [])]
        count = min(most, len(points))
        edges = [place * len(points) // max(count, 1) for place in range(count + 1)]
        return [_mean(points[low:high]) for low, high in pairwise(edges)]


def sparkline(values: Sequence[float | None], low: float = 0.0, high: float = 0.0) -> str:
    """A block for each value, from the lowest to the highest of them and of ``low`` and ``high``;
    a blank for None."""
    numbers = [value for value in values if value is not None]
    low, high = min([low, *numbers]), max([high, *numbers])
    top = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(top * (value - low) / ((high - low) or 1.0))]
        for value in values
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None

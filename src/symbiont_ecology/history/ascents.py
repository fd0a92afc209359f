"""Evolution strategies, step by step: what the members of the population earned, how long their
answers were, and how the centre itself does beside the bare host."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import HOST
from symbiont_ecology.history.history import History

LOW_PERCENTILE, HIGH_PERCENTILE = 20, 80
"""The edges of a band of rewards or scores."""


@dataclass(frozen=True)
class Ascent:
    """One step. Rewards are those of the members: mean, best, and the edges of the band from the
    20th to the 80th percentile.

    ``tokens`` is the mean length of answers, ``empty`` the share of those without text; ``step`` is
    in units of the noise, ``noise`` in units of ‖W‖.
    """

    generation: int
    members: int
    mean: float
    low: float
    high: float
    best: float
    tokens: float
    empty: float
    step: float
    noise: float


@dataclass(frozen=True)
class Look:
    """Shares of right answers of the centre and of the bare host to the same questions."""

    generation: int
    centre: float
    host: float
    questions: int


def ascents_of(history: History) -> list[Ascent]:
    """All steps of generations that are whole."""
    return [
        Ascent(
            event.generation,
            len(event.rewards),
            *band_of(event.rewards),
            tokens=event.tokens,
            empty=event.empty,
            step=event.step,
            noise=event.noise,
        )
        for event in history.ascents
        if event.generation < history.generation and event.rewards
    ]


def band_of(values: tuple[float, ...]) -> tuple[float, float, float, float]:
    """Mean, 20th and 80th percentile, and the best."""
    low, high = np.percentile(values, (LOW_PERCENTILE, HIGH_PERCENTILE))
    return float(np.mean(values)), float(low), float(high), max(values)


def looks_of(history: History) -> list[Look]:
    """All looks at the centre and at the bare host."""
    verdicts: dict[int, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for event in history.probes:
        if event.generation < history.generation:
            verdicts[event.generation][event.id == HOST] += event.verdicts
    return [
        Look(
            generation,
            float(np.mean(by_who[False])),
            float(np.mean(by_who[True])),
            len(by_who[False]),
        )
        for generation, by_who in verdicts.items()
        if history.ascents and all(by_who.values())
    ]

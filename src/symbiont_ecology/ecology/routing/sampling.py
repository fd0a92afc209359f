"""How often each question is answered: more often where success is rare, as often as usual on
average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heapreplace

from symbiont_ecology.ecology import Assignment, EcologyState, SuccessPosterior


def by_success(
    assignments: Sequence[Assignment], samples: int, most: int, state: EcologyState
) -> list[Assignment]:
    """The assignments with up to ``most`` rollouts per question, and ``samples`` on average.

    Answers to a question teach by their difference. Each further sample goes where it most probably
    makes a first difference, times the room that is left to get better: p is the success of who
    is asked, there. So a question that is nearly always right gets one (DAPO, Yu et al. 2025,
    arXiv:2503.14476, leaves out such groups after they were sampled).
    """
    rates = [_success(assignment, state) for assignment in assignments]
    counts = [1] * len(assignments)
    left = (samples - 1) * sum(len(assignment.items) for assignment in assignments)
    gains = [(-_gain(rate, 1), place) for place, rate in enumerate(rates)]
    heapify(gains)
    while gains and gains[0][0] < 0:
        place = gains[0][1]
        if counts[place] == most or len(assignments[place].items) > left:
            heapreplace(gains, (0.0, place))  # no more there
            continue
        counts[place] += 1
        left -= len(assignments[place].items)
        heapreplace(gains, (-_gain(rates[place], counts[place]), place))
    return [replace(a, samples=count) for a, count in zip(assignments, counts, strict=True)]


def _gain(rate: float, samples: int) -> float:
    """What one more sample is worth after so many: above 0, and falling."""
    differs = rate**samples * (1 - rate) + (1 - rate) ** samples * rate
    return (1 - rate) * differs


def _success(assignment: Assignment, state: EcologyState) -> float:
    """The mean success of who is asked, where it is asked."""
    posteriors = state.posteriors.get(assignment.organelle_id, {})
    return posteriors.get(assignment.niche, SuccessPosterior()).mean

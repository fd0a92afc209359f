"""Arms side by side: how often each was right, and how sure their difference is.

Runs are of one arm if their configs differ in the seed, and in what is no part of a life
(``arm_key``). Every arm is compared with every other one. Seeds that both have are pairs (Student's
t over seeds). Where that is less than two, pairs are at most six stretches of the same late
generations, and the page says that such an interval tells nothing about other seeds. An arm that
has a seed twice is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from symbiont_ecology.config import RunConfig, arm_key
from symbiont_ecology.history.history import History
from symbiont_ecology.registry import kind_of
from symbiont_ecology.statistics import Interval, paired_interval

LATE = 0.75
"""The part of a run after which it is "late"."""
STRETCHES, LEAST_STRETCH = 6, 5
"""Stretches into which the late part of a single seed is cut, and the least generations of one."""


@dataclass(frozen=True)
class ComparedArm:
    """An arm: its runs (by number), and shares of right answers over its seeds."""

    name: str
    runs: tuple[int, ...]
    seeds: tuple[int, ...]
    right: float | None
    late: float | None


@dataclass(frozen=True)
class ComparedPair:
    """One arm minus another one, late shares of right answers; None where nothing can be
    said. Both by number."""

    first: int
    other: int
    difference: Interval | None
    over: str


def compared(runs: Sequence[tuple[RunConfig, History]], names: Sequence[str]) -> dict[str, object]:
    """The comparison of several runs, by their names, as plain values: every pair of arms."""
    arms: dict[str, list[int]] = {}
    for number, (config, _) in enumerate(runs):
        arms.setdefault(arm_key(config), []).append(number)
    titles = _names([runs[numbers[0]][0] for numbers in arms.values()], list(arms.values()), names)
    rows = [
        ComparedArm(
            name,
            tuple(numbers),
            tuple(runs[number][0].seed for number in numbers),
            _mean([_share(runs[number][1], 0) for number in numbers]),
            _mean([_share(runs[number][1], LATE) for number in numbers]),
        )
        for name, numbers in zip(titles, arms.values(), strict=True)
    ]
    places = range(len(rows))
    pairs = [_pair(a, b, rows, runs) for a in places for b in places if a != b]
    return {"arms": [asdict(arm) for arm in rows], "pairs": [asdict(pair) for pair in pairs]}


def _pair(
    first: int, other: int, arms: Sequence[ComparedArm], runs: Sequence[tuple[RunConfig, History]]
) -> ComparedPair:
    for arm in (arms[first], arms[other]):
        if twice := [seed for seed in arm.seeds if arm.seeds.count(seed) > 1]:
            why = f"{arm.name} has seed {twice[0]} twice: leave one of them out"
            return ComparedPair(first, other, None, why)
    histories = [
        {runs[number][0].seed: runs[number][1] for number in arms[place].runs}
        for place in (first, other)
    ]
    by_seed = {
        seed: (a, b)
        for seed in sorted(histories[0].keys() & histories[1].keys())
        if (a := _share(histories[0][seed], LATE)) is not None
        and (b := _share(histories[1][seed], LATE)) is not None
    }
    if not by_seed:
        return ComparedPair(first, other, None, "no seed with late answers of both")
    pairs, over = list(by_seed.values()), f"{len(by_seed)} seeds"
    if len(by_seed) == 1:
        ((seed, (a, b)),) = by_seed.items()
        pairs = _stretches(histories[0][seed], histories[1][seed])
        over = f"{len(pairs)} stretches of one seed, so not of others"
        if len(pairs) < 2:
            point = Interval(a - b, a - b, a - b)
            return ComparedPair(first, other, point, "one seed, too short for an interval")
    interval = paired_interval([a for a, _ in pairs], [b for _, b in pairs])
    return ComparedPair(first, other, interval, over)


def _stretches(first: History, second: History) -> list[tuple[float, float]]:
    """Shares of right answers of both in stretches of the same late generations; none of a run
    whose stretches would be too short."""
    end = min(first.generation, second.generation)
    begin = int(LATE * end)
    if end - begin < STRETCHES * LEAST_STRETCH:
        return []
    edges = [begin + (end - begin) * part // STRETCHES for part in range(STRETCHES + 1)]
    shares = [
        (_between(first, start, stop), _between(second, start, stop))
        for start, stop in pairwise(edges)
    ]
    return [(a, b) for a, b in shares if a is not None and b is not None]


def _share(history: History, begin: float) -> float | None:
    return _between(history, int(begin * history.generation), history.generation)


def _between(history: History, start: int, stop: int) -> float | None:
    acts = [act for act in history.acts if start <= act.generation < stop]
    asked = sum(act.asked for act in acts)
    return sum(act.right for act in acts) / asked if asked else None


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def _names(
    configs: Sequence[RunConfig], arms: Sequence[Sequence[int]], names: Sequence[str]
) -> list[str]:
    """The strategies' names; with those of the runs where two arms have the same."""
    kinds = [kind_of(config.strategy) for config in configs]
    return [
        kind if kinds.count(kind) == 1 else f"{kind} ({', '.join(names[run] for run in arm[:2])})"
        for kind, arm in zip(kinds, arms, strict=True)
    ]

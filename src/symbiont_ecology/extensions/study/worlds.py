"""A comparison in worlds with habitats: what users accepted, measured by seed, and the goals.

All differences of a comparison in acceptance, in all worlds, are one family of tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.statistics import Interval, paired_interval, wilson
from symbiont_ecology.extensions.study.comparison import adjusted, paired
from symbiont_ecology.extensions.study.measures import STREAM_MEASURES
from symbiont_ecology.extensions.study.protocol import Goal
from symbiont_ecology.extensions.study.results import Results

HEADLINE, APART = "acceptance", ("adapters", "newcomers", "returns")
"""The measure in which arms are tested; others in which their differences are told."""
YES_OR_NO = ("exact",)
"""Measures that are true or false of a run: their mean is a share of runs."""


@dataclass(frozen=True)
class Value(Interval):
    """A mean over seeds with its interval (Student's t), and the value of each seed. One seed gives
    no interval: its bounds are NaN."""

    seeds: list[float]

    @classmethod
    def of(cls, values: Sequence[float], measure: str = "") -> Value:
        """Return that of the values of the seeds. A share of runs has a Wilson interval."""
        if len(values) == 1:
            interval = Interval(values[0], math.nan, math.nan)
        elif measure in YES_OR_NO:
            interval = wilson(sum(values), len(values))
        else:
            interval = paired_interval(values, [0.0] * len(values))
        return cls(**vars(interval), seeds=list(values))


def summarise_worlds(results: Results) -> dict[str, Any]:
    """Return all numbers of a comparison in worlds, by the keys of ``summary.json``.

    By world they are the measures of every arm (``Value``), the main arm minus each other one in
    acceptance (``AdjustedDifference``), and in some other measures (``Value``).

    Raises:
        DataError: no run is done.
    """
    protocol, streams = results.protocol, results.streams
    if not streams:
        raise DataError("expected outcomes of a suite of worlds, got none")
    lived = [
        (name, arm)
        for name, world in protocol.worlds.items()
        for arm in world.arms
        if (name, arm) in streams
    ]
    rest = [place for place in lived if place[1] != protocol.main]
    shared = {place: _shared(results, *place) for place in rest}
    tests = {place: paired(*pair) for place, pair in shared.items() if len(pair[0]) > 1}
    worlds: dict[str, Any] = {
        name: {"measures": {}, "minus": {}, "apart": {}} for name in protocol.worlds
    }
    for name, arm in lived:
        worlds[name]["measures"][arm] = {
            measure: Value.of(list(values.values()), measure)
            for measure in STREAM_MEASURES
            if (values := measured(results, name, arm, measure))
        }
    for (name, arm), test in adjusted(tests, protocol.level).items():
        worlds[name]["minus"][arm] = test
    for name, arm in rest:
        pairs = {measure: _shared(results, name, arm, measure) for measure in APART}
        worlds[name]["apart"][arm] = {
            measure: Value.of([first - second for first, second in zip(*pair, strict=True)])
            for measure, pair in pairs.items()
            if len(pair[0]) > 1
        }
    seeds = {
        arm: {seed for (_, a), runs in streams.items() if a == arm for seed in runs}
        for arm in protocol.arms
    }
    return {
        "protocol": protocol.model_dump(mode="json", include={"name", "question", "main", "level"}),
        "seeds": {arm: len(own) for arm, own in seeds.items()},
        "sources": sorted({outcome.source for outcome in results.outcomes}),
        "worlds": worlds,
        "goals": [judged for goal in protocol.goals if (judged := _judged(results, goal))],
    }


def measured(results: Results, world: str, arm: str, measure: str) -> dict[int, float]:
    """Return a measure of every run of an arm by seed; of none if one does not have it, since the
    others might be better or worse than all."""
    runs = results.streams.get((world, arm), {})
    values = {seed: STREAM_MEASURES[measure](run) for seed, run in runs.items()}
    known = {seed: value for seed, value in values.items() if value is not None}
    return known if len(known) == len(values) else {}


def _shared(
    results: Results, world: str, arm: str, measure: str = HEADLINE
) -> tuple[list[float], list[float]]:
    """The main arm's numbers and another's, on the seeds that both have."""
    main = measured(results, world, results.protocol.main, measure)
    other = measured(results, world, arm, measure)
    both = [seed for seed in main if seed in other]
    return [main[seed] for seed in both], [other[seed] for seed in both]


def _judged(results: Results, goal: Goal) -> dict[str, Any] | None:
    """A goal and what came of it, if it has runs. It is met by the mean; it is sure if the whole
    interval meets it, so one seed is never sure."""

    def in_world(name: str) -> dict[int, float]:
        first = measured(results, name, results.protocol.main, goal.measure)
        if goal.minus is None:
            return first
        second = measured(results, name, goal.minus, goal.measure)
        return {seed: first[seed] - second[seed] for seed in first if seed in second}

    values, is_difference = in_world(goal.world), bool(goal.minus or goal.than)
    if goal.than is not None:
        base = in_world(goal.than)
        values = {seed: values[seed] - base[seed] for seed in values if seed in base}
    if not values:
        return None
    value = Value.of(list(values.values()), "" if is_difference else goal.measure)
    low = -math.inf if goal.at_least is None else goal.at_least
    high = math.inf if goal.at_most is None else goal.at_most
    return {
        **goal.model_dump(exclude_none=True),
        "value": value,
        "is_met": low <= value.estimate <= high,
        "is_sure": low <= value.low and value.high <= high,
    }

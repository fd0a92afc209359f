"""A comparison in worlds with habitats: what users accepted, measured by seed, and the goals.

All differences of a comparison in acceptance, in all worlds, are one family of tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.statistics import Interval, wilson
from symbiont_ecology.extensions.study.comparison import adjusted, of_seeds, over_seeds, plain
from symbiont_ecology.extensions.study.measures import STREAM_MEASURES
from symbiont_ecology.extensions.study.protocol import Goal
from symbiont_ecology.extensions.study.results import Results

HEADLINE, APART = "acceptance", ("adapters", "newcomers", "returns")
"""The measure in which arms are tested; others in which their differences are told."""
MINUS_KEYS = ("estimate", "low", "high", "seeds", "p", "q", "is_claimed")
"""Keys of a difference in ``summary.json``."""
YES_OR_NO = ("exact",)
"""Measures that are true or false of a run: their mean is a share of runs."""


@dataclass(frozen=True)
class Value(Interval):
    """A mean over seeds with its interval (Student's t), and the value of each seed. One seed gives
    no interval: its bounds are NaN."""

    seeds: list[float]

    @classmethod
    def of(cls, values: pd.Series, measure: str = "") -> Value:
        """Return that of the values of the seeds. A share of runs has a Wilson interval."""
        seeds = values.to_list()
        if len(seeds) == 1:
            interval = Interval(seeds[0], math.nan, math.nan)
        else:
            is_share = measure in YES_OR_NO
            interval = wilson(sum(seeds), len(seeds)) if is_share else over_seeds(seeds)
        return cls(**vars(interval), seeds=seeds)


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
    worlds: dict[str, Any] = {}
    tests = {}
    for name, world in protocol.worlds.items():
        lived = [arm for arm in world.arms if (name, arm) in streams]
        parts: dict[str, Any] = {"measures": {}, "minus": {}, "apart": {}}
        worlds[name] = parts
        for arm in lived:
            parts["measures"][arm] = {
                measure: Value.of(values, measure)
                for measure in STREAM_MEASURES
                if len(values := measured(results, name, arm, measure))
            }
        for arm in (arm for arm in lived if arm != protocol.main):
            gaps = {one: minus_arm(results, name, arm, one) for one in (HEADLINE, *APART)}
            several = {measure: gap for measure, gap in gaps.items() if len(gap) > 1}
            parts["apart"][arm] = {one: Value.of(several[one]) for one in APART if one in several}
            if HEADLINE in several:
                tests[name, arm] = of_seeds(several[HEADLINE].to_list())
    for (name, arm), test in adjusted(tests, protocol.level).items():
        worlds[name]["minus"][arm] = test
    seeds = {
        arm: {seed for (_, other), runs in streams.items() if other == arm for seed in runs}
        for arm in protocol.arms
    }
    return {
        "protocol": protocol.model_dump(mode="json", include={"name", "question", "main", "level"}),
        "seeds": {arm: len(own) for arm, own in seeds.items()},
        "sources": results.sources,
        "worlds": worlds,
        "goals": [judged for goal in protocol.goals if (judged := _judged(results, goal))],
    }


def dump_worlds(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a comparison in worlds as plain values, by the keys that
    ``summary.json`` has always had."""
    values: dict[str, Any] = plain(numbers)
    for world in values["worlds"].values():
        for arm, test in world["minus"].items():
            test["q"] = test["p_adjusted"]
            world["minus"][arm] = {key: test[key] for key in MINUS_KEYS}
    return values


def measured(results: Results, world: str, arm: str, measure: str) -> pd.Series:
    """Return a measure of every run of an arm by seed; of none if one does not have it, since the
    others might be better or worse than all."""
    runs = results.streams.get((world, arm), {})
    values = pd.Series(
        {seed: STREAM_MEASURES[measure](run) for seed, run in runs.items()}, dtype=float
    )
    return values if values.notna().all() else values[:0]


def minus_arm(results: Results, world: str, arm: str, measure: str) -> pd.Series:
    """Return the main arm's numbers minus another's, on the seeds that both have."""
    main = measured(results, world, results.protocol.main, measure)
    return _minus(main, measured(results, world, arm, measure))


def _minus(first: pd.Series, second: pd.Series) -> pd.Series:
    both = [seed for seed in first.index if seed in second.index]
    return first[both] - second[both]


def _judged(results: Results, goal: Goal) -> dict[str, Any] | None:
    """A goal and what came of it, if it has runs. It is met by the mean; it is sure if the whole
    interval meets it, so one seed is never sure."""

    def in_world(name: str) -> pd.Series:
        if goal.minus is not None:
            return minus_arm(results, name, goal.minus, goal.measure)
        return measured(results, name, results.protocol.main, goal.measure)

    values = in_world(goal.world)
    if goal.than is not None:
        values = _minus(values, in_world(goal.than))
    if values.empty:
        return None
    value = Value.of(values, "" if goal.minus or goal.than else goal.measure)
    low = -math.inf if goal.at_least is None else goal.at_least
    high = math.inf if goal.at_most is None else goal.at_most
    return {
        **goal.model_dump(exclude_none=True),
        "value": value,
        "is_met": low <= value.estimate <= high,
        "is_sure": low <= value.low and value.high <= high,
    }

"""A comparison in worlds with users: what users accepted, measured by seed.

All differences of a comparison in acceptance, in all worlds, are one family of tests.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.statistics import wilson
from symbiont_ecology.extensions.study.comparison import (
    Value,
    adjusted,
    of_seeds,
    over_seeds,
    plain,
)
from symbiont_ecology.extensions.study.measures import STREAM_MEASURES
from symbiont_ecology.extensions.study.results import Results

HEADLINE = "acceptance"
"""The measure in which arms are tested."""
MINUS_KEYS = ("estimate", "low", "high", "seeds", "p", "q", "is_claimed")
"""Keys of a difference in ``summary.json``."""
YES_OR_NO = ("exact",)
"""Measures that are true or false of a run: their mean is a share of runs."""


def value_of(values: pd.Series, measure: str) -> Value:
    """Return the mean of a measure over seeds. A share of runs has a Wilson interval."""
    seeds = values.to_list()
    is_share = measure in YES_OR_NO and len(seeds) > 1
    interval = wilson(sum(seeds), len(seeds)) if is_share else over_seeds(seeds)
    return Value(**vars(interval), seeds=seeds)


def summarise_worlds(results: Results) -> dict[str, Any]:
    """Return all numbers of a comparison in worlds, by the keys of ``summary.json``.

    By world they are the measures of every arm (``Value``), and in acceptance the main arm minus
    each other one (``Difference``).

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
        parts: dict[str, Any] = {"measures": {}, "minus": {}}
        worlds[name] = parts
        for arm in lived:
            parts["measures"][arm] = {
                measure: value_of(values, measure)
                for measure in STREAM_MEASURES
                if len(values := measured(results, name, arm, measure))
            }
        main = measured(results, name, protocol.main, HEADLINE)
        for arm in (arm for arm in lived if arm != protocol.main):
            gaps = (main - measured(results, name, arm, HEADLINE)).dropna()
            if len(gaps) > 1:
                tests[name, arm] = of_seeds(gaps.to_list())
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

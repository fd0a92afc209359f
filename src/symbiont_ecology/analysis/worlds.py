"""The results of a suite of worlds: means over seeds, differences question by question, goals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from symbiont_ecology.analysis.streams import STREAM_MEASURES, Stream
from symbiont_ecology.errors import DataError
from symbiont_ecology.experiments.outcomes import StreamOutcome
from symbiont_ecology.experiments.worlds import Goal, WorldsProtocol
from symbiont_ecology.statistics import (
    Interval,
    false_discovery,
    paired_interval,
    sign_flip,
    wilson,
)

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
    def of(cls, values: Sequence[float]) -> Value:
        """Of the values of the seeds."""
        if len(values) == 1:
            return cls(values[0], math.nan, math.nan, list(values))
        return cls(**vars(paired_interval(values, [0.0] * len(values))), seeds=list(values))

    @classmethod
    def of_measure(cls, measure: str, values: Sequence[float]) -> Value:
        """Of a measure of the seeds' runs. A share of runs has a Wilson interval."""
        if measure not in YES_OR_NO or len(values) == 1:
            return cls.of(values)
        return cls(**vars(wilson(sum(values), len(values))), seeds=list(values))

    def dump(self) -> dict[str, object]:
        """Plain values for JSON; without bounds where there is no interval."""
        values = asdict(self)
        if math.isnan(self.low):
            del values["low"], values["high"]
        return values


@dataclass(frozen=True)
class Test(Value):
    """The main arm minus another one, over the seeds that both have: p by flips of signs, and q
    over all tests of a comparison."""

    p: float
    q: float
    is_claimed: bool


@dataclass(frozen=True)
class Verdict:
    """A goal and what came of it. It is met by the mean; ``is_sure`` says that the whole interval
    meets it, so one seed is never sure."""

    goal: Goal
    value: Value
    is_met: bool
    is_sure: bool


class WorldResults:
    """All runs of a suite of worlds."""

    def __init__(self, protocol: WorldsProtocol, outcomes: Sequence[StreamOutcome]) -> None:
        self.protocol, self.outcomes = protocol, list(outcomes)
        if not self.outcomes:
            raise DataError("expected outcomes of a suite of worlds, got none")

    @cached_property
    def runs(self) -> Mapping[tuple[str, str], Mapping[int, Stream]]:
        """By world and arm, the runs by seed."""
        text = self.protocol.model_dump_json()
        runs: dict[tuple[str, str], dict[int, Stream]] = defaultdict(dict)
        for outcome in self.outcomes:
            runs[outcome.world, outcome.arm][outcome.seed] = Stream.of(outcome, text)
        return runs

    @cached_property
    def seeds(self) -> list[int]:
        """Those of which there are runs."""
        return sorted({outcome.seed for outcome in self.outcomes})

    @cached_property
    def planned(self) -> int:
        """Runs of the whole suite."""
        return len(self.protocol.seeds) * sum(
            len(world.arms) for world in self.protocol.worlds.values()
        )

    @cached_property
    def missing(self) -> int:
        """Runs that are not done."""
        return self.planned - sum(map(len, self.runs.values()))

    def by_seed(self, world: str, arm: str, measure: str) -> dict[int, float]:
        """A measure of every run of an arm; of none if one does not have it, since the others might
        be better or worse than all."""
        values = dict[int, float]()
        for seed, run in self.runs.get((world, arm), {}).items():
            value = STREAM_MEASURES[measure](run)
            if value is None:
                return {}
            values[seed] = value
        return values

    @cached_property
    def measures(self) -> dict[str, dict[str, dict[str, Value]]]:
        """By world, arm and name."""
        return {
            name: {
                arm: {
                    measure: Value.of_measure(measure, list(values.values()))
                    for measure in STREAM_MEASURES
                    if (values := self.by_seed(name, arm, measure))
                }
                for arm in world.arms
                if (name, arm) in self.runs
            }
            for name, world in self.protocol.worlds.items()
        }

    @cached_property
    def tests(self) -> dict[str, dict[str, Test]]:
        """The main arm minus each other one in acceptance, by world and arm."""
        pairs = {
            (name, arm): differences
            for name, world in self.protocol.worlds.items()
            for arm in world.arms
            if arm != self.protocol.main and len(differences := self._minus(name, arm)) > 1
        }
        p_values = [sign_flip(differences) for differences in pairs.values()]
        tests: dict[str, dict[str, Test]] = defaultdict(dict)
        adjusted = false_discovery(p_values)
        for (pair, differences), p, q in zip(pairs.items(), p_values, adjusted, strict=True):
            value, is_claimed = Value.of(differences), q < self.protocol.level
            tests[pair[0]][pair[1]] = Test(**vars(value), p=p, q=q, is_claimed=is_claimed)
        return dict(tests)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What came of the goals that have runs."""
        verdicts = []
        for goal in self.protocol.goals:
            if values := self._of_goal(goal):
                is_difference = goal.minus is not None or goal.than is not None
                value = (
                    Value.of(values) if is_difference else Value.of_measure(goal.measure, values)
                )
                low = -np.inf if goal.at_least is None else goal.at_least
                high = np.inf if goal.at_most is None else goal.at_most
                is_met = low <= value.estimate <= high
                is_sure = low <= value.low and value.high <= high
                verdicts.append(Verdict(goal, value, is_met, is_sure))
        return verdicts

    def dump(self) -> dict[str, object]:
        """Plain values for JSON."""
        worlds = {
            name: {
                "measures": {
                    arm: {measure: value.dump() for measure, value in values.items()}
                    for arm, values in arms.items()
                },
                "minus": {arm: test.dump() for arm, test in self.tests.get(name, {}).items()},
                "apart": {
                    arm: {
                        measure: Value.of(values).dump()
                        for measure in APART
                        if len(values := self._minus(name, arm, measure)) > 1
                    }
                    for arm in arms
                    if arm != self.protocol.main
                },
            }
            for name, arms in self.measures.items()
        }
        goals = [
            {
                **verdict.goal.model_dump(exclude_none=True),
                "value": verdict.value.dump(),
                "is_met": verdict.is_met,
                "is_sure": verdict.is_sure,
            }
            for verdict in self.verdicts
        ]
        keys = {"name", "question", "main", "level"}
        return {
            "protocol": self.protocol.model_dump(mode="json", include=keys),
            "seeds": {arm: len(self._seeds_of(arm)) for arm in self.protocol.arms},
            "sources": sorted({outcome.source for outcome in self.outcomes}),
            "worlds": worlds,
            "goals": goals,
        }

    def _minus(self, world: str, arm: str, measure: str = HEADLINE) -> list[float]:
        first = self.by_seed(world, self.protocol.main, measure)
        second = self.by_seed(world, arm, measure)
        return [first[seed] - second[seed] for seed in first if seed in second]

    def _of_goal(self, goal: Goal) -> list[float]:
        """The values of a goal by seed."""

        def in_world(name: str) -> dict[int, float]:
            """The measure there, as a difference if the goal wants one."""
            first = self.by_seed(name, self.protocol.main, goal.measure)
            if goal.minus is None:
                return first
            second = self.by_seed(name, goal.minus, goal.measure)
            return {seed: first[seed] - second[seed] for seed in first if seed in second}

        values = in_world(goal.world)
        if goal.than is None:
            return list(values.values())
        base = in_world(goal.than)
        return [values[seed] - base[seed] for seed in values if seed in base]

    def _seeds_of(self, arm: str) -> set[int]:
        return {outcome.seed for outcome in self.outcomes if outcome.arm == arm}

"""The comparison: every number of a paper pack, from results alone.

Everything is paired on the same questions and, between arms, on seeds. Intervals are 95 %: of
verdicts by bootstrap over seeds and questions, clustered by family, of numbers by seed Student's.
p-values are those of exact sign flips over seeds, controlled for false discoveries. What it takes
to claim a difference is the same everywhere. Nothing draws by chance but the seeded bootstrap: the
same outcomes give the same numbers.

Budgets are named by their text (``0.25``), as in ``summary.json``. A view is a shift.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from symbiont_ecology.base.statistics import Interval, sign_flip
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.study.measures import area, at_zero, stage_measures
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results, by_cell, by_seed, minus
from symbiont_ecology.extensions.study.statistics import crossed_bootstrap, detectable

SEEDS_NEEDED = {"depth": 16, "shared-families": 16, "unrelated-families": 16}
"""Views whose spread over seeds is too wide for a claim from fewer."""
POINTS_NEEDED = {"retention": 0.10}
"""Differences in a view below which nothing is claimed, whatever the test says."""
COUNTS = ("rollouts", "births", "merges", "deaths")
"""Means of what runs counted."""
Key = TypeVar("Key", bound=Hashable)
Number = TypeVar("Number")
Views = dict[str, dict[str, Number]]
"""By view and arm."""
BySeed = Mapping[str, pd.Series]
"""A number of each run, by arm and seed."""


@dataclass(frozen=True)
class Value(Interval):
    """A mean over seeds, and the value of each. Bounds that are not known are NaN."""

    seeds: list[float]


@dataclass(frozen=True)
class Difference(Value):
    """One arm minus another: a p-value over seeds, the difference that so many would find, and what
    holds of it as one of a family of tests (``adjusted``)."""

    p: float
    detectable: float | None
    p_adjusted: float = math.nan
    is_claimed: bool = False


@dataclass(frozen=True)
class Summary:
    """All numbers of a comparison at equal budgets."""

    protocol: Protocol
    host: dict[str, Any]
    """Its fingerprint, and the versions of the packages."""
    sources: list[str]
    seeds: dict[str, int]
    """How many, by arm."""
    arms: dict[str, dict[str, dict[str, Any]]]
    """What the runs of an arm did and spent, by arm and budget."""
    accuracy: dict[str, Views[Value]]
    """By budget, view and arm."""
    differences: dict[str, Views[Difference]]
    """The main arm minus the others."""
    second: dict[str, Views[Difference]]
    """The second arm minus those that see gold answers, too."""
    flip: dict[str, dict[str, Any]]
    """Curves through the flip by arm, and the main arm minus the others."""
    stages: dict[str, dict[str, Any]]
    """What became of families that came one after another; empty where none does."""

    @property
    def largest(self) -> str:
        """The largest budget."""
        return list(self.accuracy)[-1]

    def dump(self) -> dict[str, Any]:
        """Return plain values for JSON; stages are left out where none are."""
        about = {"name", "question", "unit_flops", "main", "level"}
        values = {key: value for key, value in vars(self).items() if value or key != "stages"}
        protocol = self.protocol.model_dump(mode="json", include=about)
        return {**plain(values), "protocol": protocol}


def summarise(results: Results) -> Summary:
    """Return all numbers of a comparison at equal budgets."""
    protocol, arms, host = results.protocol, results.protocol.arms, results.host
    peers = [arm for arm in arms if arm != protocol.second]
    gold = [arm for arm, side in arms.items() if "gold answers" in side.sees]
    return Summary(
        protocol=protocol,
        host={"fingerprint": host.host, "versions": host.versions},
        sources=results.sources,
        seeds={arm: len(results.runs(arm, results.largest)) for arm in arms},
        arms={arm: dict(_spending(results, arm)) for arm in arms},
        accuracy=dict(_accuracies(results)),
        differences=dict(_differences(results, protocol.main, peers)),
        second=dict(_differences(results, protocol.second, gold)) if protocol.second else {},
        flip=_flip(results),
        stages=_stages(results),
    )


def _spending(results: Results, arm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the deeds and the costs of an arm, by budget: means, but for the worst ``off_budget``.

    Energy is in mATP, ``roi`` is revenue over cost. ``break_even_solved`` is the number of right
    answers from which training pays off against the bare host; None: never.
    """
    routing, shift = results.protocol.arms[arm].routing, results.protocol.shifts[0]
    for budget in results.protocol.budgets:
        runs, skill = results.runs(arm, budget), results.verdicts(arm, budget, shift)
        if skill is None:
            continue
        lives = [run.run.life for run in runs if run.run is not None]
        returns = [life.earned / life.spent if life.spent else 0.0 for life in lives]
        nets = [(life.earned - life.spent) / max(life.rollouts, 1) for life in lives]
        train_flops = mean([run.train.flops for run in runs])
        cost = mean(results.flops_per_right(arm, budget, shift))
        saving = mean(results.flops_per_right(HOST, 0, shift)) - cost
        target = budget * results.protocol.unit_flops
        yield (
            f"{budget:g}",
            {
                **{name: mean([getattr(life, name) for life in lives]) for name in COUNTS},
                "net_per_episode": mean(nets),
                "roi": mean(returns),
                "coverage": mean((by_cell(skill) >= 0.5).sum()),
                "train_flops": train_flops,
                "executed_flops": mean([run.train.executed for run in runs]),
                "off_budget": max(abs(run.train.flops / target - 1) for run in runs),
                "select_flops": mean([run.run.selection_flops for run in runs if run.run]),
                "flops_per_solved": cost,
                "break_even_solved": train_flops / saving if saving > 0 else None,
                "organelles_asked": mean([run.systems[routing].organelles for run in runs]),
            },
        )


def _accuracies(results: Results) -> Iterator[tuple[str, Views[Value]]]:
    """By budget, view and arm."""
    for budget in results.protocol.budgets:
        views: Views[Value] = {}
        for view in results.protocol.shifts:
            for arm in (HOST, *results.protocol.arms):
                if (verdicts := view_of(results, arm, budget, view)) is not None:
                    shares = Value(**vars(interval_of(verdicts)), seeds=by_seed(verdicts))
                    views.setdefault(view, {})[arm] = shares
        yield f"{budget:g}", views


def _differences(
    results: Results, main: str, arms: Sequence[str]
) -> Iterator[tuple[str, Views[Difference]]]:
    """By budget and view: an arm minus the host and the others. The arms of a view are a family of
    tests."""
    for budget in results.protocol.budgets:
        views: Views[Difference] = {}
        for view in results.protocol.shifts:
            main_verdicts, tests = view_of(results, main, budget, view), dict[str, Difference]()
            for arm in (HOST, *arms):
                verdicts = view_of(results, arm, budget, view)
                if arm != main and main_verdicts is not None and verdicts is not None:
                    tests[arm] = difference_of(minus(main_verdicts, verdicts))
            if tests:
                views[view] = adjusted(tests, results.protocol.level, view)
        yield f"{budget:g}", views


def _flip(results: Results) -> dict[str, dict[str, Any]]:
    """Accuracy through the flip and back: the areas of the curves, and what is right before
    anything is spent."""
    tables = dict[str, pd.DataFrame]()
    for arm in results.protocol.arms:
        runs = results.legs_of(arm).groupby("seed", sort=False)
        rows = {int(seed): {"area": area(run), "at_zero": at_zero(run)} for seed, run in runs}
        if rows:
            tables[arm] = pd.DataFrame(rows).T
    arms = {
        arm: {**table.to_dict("list"), "seeds": table.index.to_list(), "mean": dict(table.mean())}
        for arm, table in tables.items()
    }
    against = {
        name: against_main(results, {arm: table[name] for arm, table in tables.items()})
        for name in ("area", "at_zero")
    }
    return {"arms": arms, "differences": against if arms else {}}


def _stages(results: Results) -> dict[str, dict[str, Any]]:
    """A world in which families come one after another: all arms by seed (``stage_measures``, and
    the change of a token of plain English in nats), their intervals, the main arm minus the others,
    and by arm the mean course of every family."""
    measured: dict[str, dict[str, list[float]]] = {}
    tables: dict[str, pd.DataFrame] = {}
    courses: dict[str, Any] = {}
    for arm, side in results.protocol.arms.items():
        by_seed = results.courses(arm)
        if not by_seed:
            continue
        measures = {seed: stage_measures(course) for seed, course in by_seed.items()}
        tables[arm] = pd.DataFrame(measures).T
        runs = results.runs(arm, results.largest)
        general = [run.general[side.routing] for run in runs if side.routing in run.general]
        english = [one["english"]["change"]["estimate"] for one in general]
        measured[arm] = {**tables[arm].to_dict("list"), "english": english}
        first = next(run.run for run in runs if run.run is not None)
        shares = np.mean(list(by_seed.values()), axis=0).tolist()
        courses[arm] = dict(zip(first.arrived, shares, strict=True))
    if not measured:
        return {}
    return {
        "arms": measured,
        "intervals": {
            arm: {name: over_seeds(values) if values else None for name, values in own.items()}
            for arm, own in measured.items()
        },
        "differences": {
            name: against_main(results, {arm: table[name] for arm, table in tables.items()})
            for name in ("at_last", "lost")
        },
        "courses": courses,
    }


def view_of(results: Results, arm: str, budget: float, shift: str) -> pd.DataFrame | None:
    """Return an arm's verdicts in a shift. Retention asks only for what the bare host could do, if
    anything."""
    verdicts = results.verdicts(arm, budget, shift)
    if verdicts is not None and shift == "retention":
        verdicts = verdicts[results.known]
    return verdicts if verdicts is not None and len(verdicts) else None


def interval_of(verdicts: pd.DataFrame) -> Interval:
    """Return the mean over cells with its interval; a single seed stands for all, so that questions
    alone are drawn."""
    names = verdicts.index.get_level_values("cell")
    cells, families = (pd.factorize(part)[0] for part in (names, names.map(cell_family)))
    is_clustered = bool(families.any())
    return crossed_bootstrap(verdicts.T.to_numpy(), cells, families, 0, is_clustered=is_clustered)


def difference_of(verdicts: pd.DataFrame) -> Difference:
    """Return a difference with interval, p-value over seeds, and the effect that so many seeds
    would find."""
    seeds = by_seed(verdicts)
    if len(seeds) > 1:
        return of_seeds(seeds, interval_of(verdicts))
    return Difference(**vars(interval_of(verdicts)), p=1.0, detectable=None, seeds=seeds)


def of_seeds(differences: Sequence[float], interval: Interval | None = None) -> Difference:
    """Return the difference of numbers by seed; its interval is Student's unless another is given.

    Raises:
        ValueError: less than two seeds.
    """
    return Difference(
        **vars(interval or over_seeds(differences)),
        p=sign_flip(differences),
        detectable=detectable(differences),
        seeds=list(differences),
    )


def over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean of some seeds with Student's interval (Student 1908). One seed gives none:
    its bounds are NaN."""
    seeds = np.asarray(values, dtype=float)
    if len(seeds) < 2:
        return Interval(values[0], math.nan, math.nan)
    quantile = stats.t.ppf(0.975, len(seeds) - 1)
    half = float(quantile * seeds.std(ddof=1) / math.sqrt(len(seeds)))
    mean = float(seeds.mean())
    return Interval(mean, mean - half, mean + half)


def against_main(results: Results, values: BySeed) -> dict[str, Difference]:
    """Return the main arm's numbers, by seed, minus every other's on the seeds that both have."""
    main, tests = values.get(results.protocol.main, pd.Series(dtype=float)), dict[str, Difference]()
    for arm, others in values.items():
        gaps = main.sub(others).dropna().sort_index()
        if arm != results.protocol.main and len(gaps) > 1:
            tests[arm] = of_seeds(gaps.to_list())
    return adjusted(tests, results.protocol.level)


def adjusted(
    tests: Mapping[Key, Difference], level: float, view: str = ""
) -> dict[Key, Difference]:
    """Control the false discoveries of one family of tests, and say which differences are
    claimed."""
    p_values = [test.p for test in tests.values()]
    q_values = stats.false_discovery_control(p_values).tolist() if p_values else []
    return {
        key: replace(
            test,
            p_adjusted=q,
            is_claimed=q < level
            and len(test.seeds) >= SEEDS_NEEDED.get(view, 2)
            and abs(test.estimate) >= POINTS_NEEDED.get(view, 0.0)
            and not test.low <= 0 <= test.high,
        )
        for (key, test), q in zip(tests.items(), q_values, strict=True)
    }


def mean(values: Sequence[float] | pd.Series | np.ndarray) -> float:
    """Return the mean as a plain number; always numpy's, so that equal values give equal digits."""
    return float(np.mean(np.asarray(values)))


def plain(value: Any) -> Any:
    """Return a value as JSON has it: intervals as mappings, without bounds where there are none."""
    if isinstance(value, Interval):
        fields = asdict(value)
        return {key: one for key, one in fields.items() if one == one or key == "estimate"}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value

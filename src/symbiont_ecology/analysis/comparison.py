"""The comparison: every number of a paper pack, from results alone.

Everything is paired on the same questions and, between arms, on seeds. Intervals are 95 %, by
bootstrap over seeds and questions, clustered by family; p-values are those of exact sign flips over
seeds, controlled for false discoveries among the arms of a view at a budget. Nothing draws by
chance but the seeded bootstrap: the same outcomes give the same numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import numpy as np
import pandas as pd

from symbiont_ecology import statistics
from symbiont_ecology.analysis import summary
from symbiont_ecology.analysis.results import BARE_HOST, NO_SEED, SIDES, Results, Verdicts
from symbiont_ecology.analysis.summary import AdjustedDifference, Difference, Summary, Views

RESAMPLES = 1000
SEEDS_NEEDED = {"depth": 16, "shared-families": 16, "unrelated-families": 16}
"""Views whose spread over seeds is too wide for a claim from fewer."""
POINTS_NEEDED = {"retention": 0.10}
"""Differences in a view below which nothing is claimed, whatever the test says."""
Key = TypeVar("Key", bound=Hashable)


def summarise(results: Results) -> Summary:
    """All numbers of a comparison."""
    protocol, arms = results.protocol, results.protocol.arms
    peers = [arm for arm in arms if arm != protocol.second]
    gold = [arm for arm, side in arms.items() if "gold answers" in side.sees]
    return Summary(
        protocol=protocol,
        host=summary.Source(results.host.host, results.host.versions),
        sources=sorted({outcome.source for outcome in results.outcomes}),
        cells=results.cells,
        seeds={arm: len(results.runs(arm, results.largest)) for arm in arms},
        arms={arm: dict(_spending(results, arm)) for arm in arms},
        accuracy=dict(_accuracies(results)),
        differences=dict(_differences(results, protocol.main, peers)),
        second=dict(_differences(results, protocol.second, gold)) if protocol.second else {},
        peer=_peer(results),
        retention=_retention(results),
        routing={arm: shifts for arm in arms if (shifts := dict(_routing(results, arm)))},
        flip=_flip(results),
        unpaired=_unpaired(results),
    )


def _unpaired(results: Results) -> list[str]:
    """The arms whose runs at the largest budget have no seed in common with those of the main
    arm."""
    arms = results.protocol.arms
    seeds = {arm: {run.seed for run in results.runs(arm, results.largest)} for arm in arms}
    main = seeds[results.protocol.main]
    return [arm for arm in arms if main and seeds[arm] and main.isdisjoint(seeds[arm])]


def _spending(results: Results, arm: str) -> Iterator[tuple[str, summary.Spending]]:
    """What an arm did and spent, by budget: the columns of the classic table."""
    routing, shift = results.protocol.arms[arm].routing, results.protocol.shifts[0]
    for budget in results.protocol.budgets:
        runs, skill = results.runs(arm, budget), results.verdicts(arm, budget, shift)
        if skill is None:
            continue
        lives = pd.DataFrame([asdict(run.life) for run in runs])
        train_flops = np.array([run.train.flops for run in runs])
        cost = mean(results.flops_per_right(arm, budget, shift))
        saving = mean(results.flops_per_right(BARE_HOST, 0, shift)) - cost
        spending = summary.Spending(
            **{name: mean(lives[name]) for name in summary.COUNTS},
            net_per_episode=mean((lives.earned - lives.spent) / lives.rollouts.clip(lower=1)),
            roi=mean((lives.earned / lives.spent).where(lives.spent != 0, 0.0)),
            coverage=mean(skill.covered()),
            train_flops=mean(train_flops),
            executed_flops=mean([run.train.executed for run in runs]),
            off_budget=float(abs(train_flops / (budget * results.protocol.unit_flops) - 1).max()),
            select_flops=mean([run.selection_flops for run in runs]),
            flops_per_solved=cost,
            break_even_solved=mean(train_flops) / saving if saving > 0 else None,
            organelles_asked=mean([run.systems[routing].organelles for run in runs]),
            option=runs[0].option,
        )
        yield f"{budget:g}", spending


def _accuracies(results: Results) -> Iterator[tuple[str, Views[summary.Accuracy]]]:
    """By budget, view (a shift, or the cells of a kind) and arm."""
    for budget in results.protocol.budgets:
        views: Views[summary.Accuracy] = {}
        for view in views_of(results):
            for arm in (BARE_HOST, *results.protocol.arms):
                if (verdicts := view_of(results, arm, budget, view)) is not None:
                    interval, seeds = asdict(interval_of(verdicts)), verdicts.by_seed()
                    iqm = statistics.interquartile_mean(seeds)
                    accuracy = summary.Accuracy(**interval, iqm=iqm, seeds=seeds)
                    views.setdefault(view, {})[arm] = accuracy
        yield f"{budget:g}", views


def _differences(
    results: Results, main: str, arms: Iterable[str]
) -> Iterator[tuple[str, Views[AdjustedDifference]]]:
    """By budget and view: an arm minus the host and the others. The arms of a view are a family of
    tests."""
    for budget in results.protocol.budgets:
        views: Views[AdjustedDifference] = {}
        for view in views_of(results):
            main_verdicts, tests = view_of(results, main, budget, view), dict[str, Difference]()
            for arm in (BARE_HOST, *arms):
                verdicts = view_of(results, arm, budget, view)
                if arm != main and main_verdicts is not None and verdicts is not None:
                    tests[arm] = difference_of(main_verdicts.minus(verdicts))
            if tests:
                views[view] = adjusted(tests, results.protocol.level, view)
        yield f"{budget:g}", views


def _peer(results: Results) -> summary.Peer | None:
    """Is SFT a strong peer? Its accuracy against the mean cue ceiling, and its course over the
    budgets."""
    ceiling = results.verdicts(BARE_HOST, 0, "ceiling")
    if "sft" not in results.protocol.arms or ceiling is None:
        return None
    by_budget = {
        f"{budget:g}": mean(verdicts.by_seed())
        for budget in results.protocol.budgets
        if (verdicts := results.verdicts("sft", budget, "in-distribution")) is not None
    }
    if not by_budget:
        return None
    cue_ceiling, best = mean(ceiling.by_seed()), max(by_budget.values())
    largest, last = list(by_budget.items())[-1]
    shares = {budget: value / best if best else 0.0 for budget, value in by_budget.items()}
    return summary.Peer(cue_ceiling, by_budget, largest, last - cue_ceiling, shares)


def _retention(results: Results) -> summary.RetentionSummary:
    """Skill against retention of what the bare host could do; the area of the frontier over the
    budgets."""
    frontiers: dict[str, summary.Frontier] = {}
    areas: dict[str, dict[int, float]] = {}
    for arm in results.protocol.arms:
        points: dict[str, list[tuple[float, float]]] = {}
        by_seed: dict[int, list[tuple[float, float]]] = {}
        for budget in results.protocol.budgets:
            retention = view_of(results, arm, budget, "retention")
            skill = results.verdicts(arm, budget, "in-distribution")
            if retention is not None and skill is not None:
                pairs = list(zip(skill.by_seed(), retention.by_seed(), strict=True))
                points[f"{budget:g}"] = pairs
                for seed, pair in zip(skill.seeds, pairs, strict=True):
                    by_seed.setdefault(seed, []).append(pair)
        if points:  # a seed that lacks a budget has another frontier
            most = max(map(len, by_seed.values()))
            complete = {seed: pairs for seed, pairs in by_seed.items() if len(pairs) == most}
            areas[arm] = {seed: statistics.hypervolume(pairs) for seed, pairs in complete.items()}
            volumes = list(areas[arm].values())
            frontiers[arm] = summary.Frontier(points, volumes, mean(volumes))
    return summary.RetentionSummary(frontiers, _against_main(results, areas))


def _routing(results: Results, arm: str) -> Iterator[tuple[str, summary.RoutedShift]]:
    """At the largest budget: the other routings of an arm, what oracles would gain, what abstaining
    does."""
    side, runs = results.protocol.arms[arm], results.runs(arm, results.largest)
    for shift in results.protocol.shifts:
        answers = {
            routing: verdicts
            for routing in (side.routing, *side.also)
            if (verdicts := results.verdicts(arm, results.largest, shift, routing)) is not None
        }
        if len(answers) < 2:
            continue
        own, *rest = answers
        count = len(answers[own].cells)
        yield (
            shift,
            summary.RoutedShift(
                {routing: interval_of(verdicts) for routing, verdicts in answers.items()},
                {routing: difference_of(answers[own].minus(answers[routing])) for routing in rest},
                mean([run.systems[own].abstained[shift] for run in runs]) / count,
                {
                    routing: mean([run.systems[routing].flops[shift] for run in runs]) / count
                    for routing in answers
                },
            ),
        )


def _flip(results: Results) -> summary.FlipSummary:
    """Accuracy through the flip and back: curves, their areas, and what is right before anything is
    spent."""
    arms: dict[str, summary.FlipCurves] = {}
    measures = {"area": area, "at_zero": _at_zero}
    numbers: dict[str, dict[str, dict[int, float]]] = {}
    for arm in results.protocol.arms:
        runs = dict(list(results.legs_of(arm).groupby("seed", sort=False)))
        if not runs:
            continue
        for name, measure in measures.items():
            by_seed = {int(seed): measure(run) for seed, run in runs.items()}
            numbers.setdefault(name, {})[arm] = by_seed
        areas, at_zero = ([*by_arm[arm].values()] for by_arm in numbers.values())
        means = summary.FlipMeans(mean(areas), mean(at_zero))
        curves = {side: list(_curve(results.legs_of(arm), side)) for side in SIDES}
        arms[arm] = summary.FlipCurves(curves, areas, at_zero, [*map(int, runs)], means)
    against = {name: _against_main(results, by_arm) for name, by_arm in numbers.items()}
    return summary.FlipSummary(arms, against)


def _curve(legs: pd.DataFrame, side: str) -> Iterator[summary.LegMean]:
    """Mean, lowest and highest over the seeds at every leg."""
    for (phase, extra), rows in legs.groupby(["phase", "extra"], sort=False):
        shares = rows[side].to_list()
        yield summary.LegMean(phase, float(extra), mean(shares), min(shares), max(shares))


def area(legs: pd.DataFrame, side: str = "all") -> float:
    """Mean height over both phases of a run's accuracy, by the FLOPs that were really spent.

    ``side`` says over which families: those that flipped, those that were kept, or all.
    """
    heights = []
    for phase in ("flipped", "back"):
        # In a trial the steps may be too short for a single question.
        points = legs[legs.phase == phase].drop_duplicates("train_flops", keep="last")
        xs, ys = points.train_flops.to_list(), points[side].to_list()
        heights.append(statistics.area_under(xs, ys) if len(xs) > 1 else ys[0])
    return mean(heights)


def _at_zero(legs: pd.DataFrame) -> float:
    return mean(legs[(legs.phase != "before") & (legs.extra == 0)][SIDES[0]].to_list())


def views_of(results: Results) -> list[str]:
    """The rows of the tables: shifts, with in-distribution cells of each kind apart."""
    first, *rest = results.protocol.shifts
    return [first, *(kind for kind, cells in results.cells.items() if cells), *rest]


def view_of(results: Results, arm: str, budget: float, view: str) -> Verdicts | None:
    """An arm's verdicts in a view. Retention asks only for what the bare host could do, if
    anything."""
    cells = results.cells.get(view)
    verdicts = results.verdicts(arm, budget, view if cells is None else "in-distribution")
    if verdicts is None or (view == "retention" and not results.known.any()):
        return None
    if cells is not None:
        return verdicts.where(np.isin(verdicts.cells, cells))
    return verdicts.where(results.known) if view == "retention" else verdicts


def interval_of(verdicts: Verdicts) -> statistics.Interval:
    """Mean over cells with its interval; a single seed stands for all, so that questions alone are
    drawn."""
    names = verdicts.cells, verdicts.families
    cells, families = (pd.factorize(np.array(part, dtype=object))[0] for part in names)
    return statistics.crossed_bootstrap(
        verdicts.values,
        cells,
        families,
        seed=0,
        resamples=RESAMPLES,
        is_clustered=bool(families.any()),
    )


def difference_of(verdicts: Verdicts) -> Difference:
    """A difference with interval, p-value over seeds, and the effect that so many seeds would
    find."""
    seeds = verdicts.by_seed()
    several = len(seeds) > 1 and verdicts.seeds != NO_SEED
    return Difference(
        **asdict(interval_of(verdicts)),
        p=statistics.sign_flip(seeds) if several else 1.0,
        detectable=statistics.detectable(seeds) if several else None,
        seeds=seeds,
    )


def _against_main(
    results: Results, values: Mapping[str, Mapping[int, float]]
) -> dict[str, AdjustedDifference]:
    """The main arm's numbers, by seed, minus every other's on the seeds that both have."""
    main, differences = results.protocol.main, {}
    for arm, by_seed in values.items():
        shared = sorted(set(by_seed) & set(values.get(main, {})))
        if arm == main or len(shared) < 2:
            continue
        first, second = ([numbers[seed] for seed in shared] for numbers in (values[main], by_seed))
        differences[arm] = paired(first, second)
    return adjusted(differences, results.protocol.level)


def paired(mine: Sequence[float], theirs: Sequence[float]) -> Difference:
    """A difference of numbers by seed, as ``difference_of`` gives one of verdicts; its interval is
    Student's.

    Raises:
        ValueError: less than two seeds, or not the same number of both.
    """
    seeds = [first - second for first, second in zip(mine, theirs, strict=True)]
    return Difference(
        **asdict(statistics.paired_interval(mine, theirs)),
        p=statistics.sign_flip(seeds),
        detectable=statistics.detectable(seeds),
        seeds=seeds,
    )


def adjusted(
    tests: Mapping[Key, Difference], level: float, view: str = ""
) -> dict[Key, AdjustedDifference]:
    """Controls the false discoveries of one family of tests, and says which differences are
    claimed."""
    q_values = statistics.false_discovery([test.p for test in tests.values()])
    return {
        key: AdjustedDifference(
            **vars(test),
            p_adjusted=q,
            is_claimed=q < level
            and len(test.seeds) >= SEEDS_NEEDED.get(view, 2)
            and abs(test.estimate) >= POINTS_NEEDED.get(view, 0.0)
            and not test.low <= 0 <= test.high,
        )
        for (key, test), q in zip(tests.items(), q_values, strict=True)
    }


def mean(values: Sequence[float] | pd.Series | np.ndarray) -> float:
    """The mean as a plain number; always numpy's, so that equal values give equal digits."""
    return float(np.mean(np.asarray(values)))

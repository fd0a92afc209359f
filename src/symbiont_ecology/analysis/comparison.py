"""The comparison: every number of a paper pack, from outcomes alone.

Everything is paired on the same questions and, between arms, on seeds. Intervals are 95 %, by
bootstrap over seeds and questions, clustered by family; p-values are those of exact sign flips over
seeds, controlled for false discoveries among the arms of a view at a budget. Nothing draws by
chance but the seeded bootstrap: the same outcomes give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from symbiont_ecology.analysis.outcomes import BARE_HOST, NO_SEED, Outcomes, Verdicts, array_of
from symbiont_ecology.statistics import (
    Interval,
    area_under,
    crossed_bootstrap,
    detectable,
    false_discovery,
    hypervolume,
    interquartile_mean,
    paired_interval,
    sign_flip,
)

RESAMPLES = 1000
CELL_KINDS = ("elicitation", "capability")

SIDES = {"all": (True, False), "flipped": (True,), "kept": (False,)}
"""Families of a flip, by whether they are flipped."""
SEEDS_NEEDED = {"depth": 16, "shared-families": 16, "unrelated-families": 16}
"""Views whose spread over seeds is too wide for a claim from fewer."""
POINTS_NEEDED = {"retention": 0.10}
"""Differences in a view below which nothing is claimed, whatever the test says."""


def summarise(outcomes: Outcomes) -> dict[str, Any]:
    """All numbers as plain values: what ``summary.json`` of a pack holds."""
    return {
        "protocol": {
            key: outcomes.protocol[key]
            for key in ("name", "question", "unit_flops", "main", "level")
        },
        "host": {"fingerprint": outcomes.host["host"], "versions": outcomes.host["versions"]},
        "sources": sorted({row["source"] for row in outcomes.rows}),
        "cells": {kind: outcomes.cells(kind) for kind in CELL_KINDS},
        "seeds": {arm: len(outcomes.main(arm, outcomes.budgets[-1])) for arm in outcomes.arms},
        "arms": {arm: dict(_course(outcomes, arm)) for arm in outcomes.arms},
        "accuracy": dict(_accuracies(outcomes)),
        "differences": dict(
            _differences(outcomes, outcomes.protocol["main"], _all_but_second(outcomes))
        ),
        "second": dict(_differences(outcomes, outcomes.protocol["second"], _with_gold(outcomes))),
        "peer": _peer(outcomes),
        "retention": _retention(outcomes),
        "routing": dict(_routing(outcomes)),
        "flip": _flip(outcomes),
    }


def _course(outcomes: Outcomes, arm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What an arm did and spent, by budget: the columns of the classic table."""
    routing, shift = outcomes.routing(arm), outcomes.shifts[0]
    for budget in outcomes.budgets:
        rows, skill = outcomes.main(arm, budget), outcomes.verdicts(arm, budget, shift)
        if skill is None:
            continue
        life, target = [row["life"] for row in rows], budget * outcomes.protocol["unit_flops"]
        own = [row["systems"][routing] for row in rows]
        cost = _mean([per_solved(one, shift) for one in own])
        saved = per_solved(outcomes.host["systems"][BARE_HOST], shift) - cost
        counts = ("rollouts", "births", "merges", "deaths", "alive")
        net = [(one["earned"] - one["spent"]) / max(one["rollouts"], 1) for one in life]
        found = {
            **{key: _mean([one[key] for one in life]) for key in counts},
            "net_per_episode": _mean(net),
            "roi": _mean([one["earned"] / one["spent"] if one["spent"] else 0.0 for one in life]),
            "coverage": _mean(covered(skill)),
            "train_flops": _mean(_flops(rows)),
            "executed_flops": _mean([row["train"]["executed"] for row in rows]),
            "off_budget": max(abs(one / target - 1) for one in _flops(rows)),
            "select_flops": _mean([row["selection_flops"] for row in rows]),
            "flops_per_solved": cost,
            "break_even_solved": _mean(_flops(rows)) / saved if saved > 0 else None,
            "organelles_asked": _mean([one["organelles"] for one in own]),
            "option": rows[0]["option"],
        }
        yield f"{budget:g}", found


def _accuracies(outcomes: Outcomes) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """By budget, view (a shift, or the cells of a kind) and arm: accuracy, interval, interquartile
    mean."""
    for budget in outcomes.budgets:
        views: dict[str, dict[str, Any]] = {}
        for view in views_of(outcomes):
            for arm in (BARE_HOST, *outcomes.arms):
                found = view_of(outcomes, arm, budget, view)
                if found is not None:
                    views.setdefault(view, {})[arm] = {
                        **asdict(interval_of(found)),
                        "iqm": interquartile_mean(found.by_seed()),
                        "seeds": found.by_seed(),
                    }
        yield f"{budget:g}", views


def _all_but_second(outcomes: Outcomes) -> list[str]:
    """What the main arm, which sees verdicts, is compared with."""
    return [BARE_HOST, *(arm for arm in outcomes.arms if arm != outcomes.protocol["second"])]


def _with_gold(outcomes: Outcomes) -> list[str]:
    """What the arm that sees gold answers is compared with."""
    return [
        BARE_HOST,
        *(arm for arm, sides in outcomes.protocol["arms"].items() if "gold" in sides["sees"]),
    ]


def _differences(
    outcomes: Outcomes, main: str | None, arms: Sequence[str]
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """By budget and view: an arm minus the others. The arms of a view are a family of tests."""
    for budget in outcomes.budgets if main else ():
        views: dict[str, dict[str, Any]] = {}
        for view in views_of(outcomes):
            mine = view_of(outcomes, str(main), budget, view)
            for arm in arms:
                theirs = view_of(outcomes, arm, budget, view)
                if arm == main or mine is None or theirs is None:
                    continue
                views.setdefault(view, {})[arm] = difference_of(mine.minus(theirs))
            adjust(views.get(view, {}), outcomes.protocol["level"], view)
        yield f"{budget:g}", views


def _peer(outcomes: Outcomes) -> dict[str, Any]:
    """Is SFT a strong peer? Its accuracy against the mean cue ceiling, and its course over the
    budgets."""
    ceiling = outcomes.verdicts(BARE_HOST, 0, "ceiling")
    if "sft" not in outcomes.arms or ceiling is None:
        return {}
    by_budget = {}
    for budget in outcomes.budgets:
        found = outcomes.verdicts("sft", budget, "in-distribution")
        if found is not None:
            by_budget[f"{budget:g}"] = _mean(found.by_seed())
    if not by_budget:
        return {}
    told, best = _mean(ceiling.by_seed()), max(by_budget.values())
    largest, last = list(by_budget.items())[-1]
    return {
        "ceiling": told,
        "sft": by_budget,
        "largest": largest,
        "sft_minus_ceiling": last - told,
        "share_of_best": {
            budget: value / best if best else 0.0 for budget, value in by_budget.items()
        },
    }


def _retention(outcomes: Outcomes) -> dict[str, Any]:
    """Skill against retention of what the bare host could do; the area of the frontier over the
    budgets."""
    arms = dict[str, Any]()
    areas: dict[str, dict[int, float]] = {}
    for arm in outcomes.arms:
        points: dict[str, list[list[float]]] = {}
        by_seed: dict[int, list[tuple[float, float]]] = {}
        for budget in outcomes.budgets:
            kept = view_of(outcomes, arm, budget, "retention")
            skill = outcomes.verdicts(arm, budget, "in-distribution")
            if kept is None or skill is None:
                continue
            pairs = list(zip(skill.by_seed(), kept.by_seed(), strict=True))
            points[f"{budget:g}"] = [list(pair) for pair in pairs]
            for seed, pair in zip(skill.seeds, pairs, strict=True):
                by_seed.setdefault(seed, []).append(pair)
        if points:  # a seed that lacks a budget has another frontier
            most = max(map(len, by_seed.values()))
            areas[arm] = {
                seed: hypervolume(found) for seed, found in by_seed.items() if len(found) == most
            }
            volumes = list(areas[arm].values())
            arms[arm] = {"points": points, "hypervolume": volumes, "mean": _mean(volumes)}
    return {"arms": arms, "differences": _against_main(outcomes, areas)}


def _routing(outcomes: Outcomes) -> Iterator[tuple[str, dict[str, Any]]]:
    """At the largest budget: the other routings of an arm, what oracles would gain, what abstaining
    does."""
    budget = outcomes.budgets[-1]
    for arm in outcomes.arms:
        sides = outcomes.protocol["arms"][arm]
        shifts: dict[str, Any] = {}
        for shift in outcomes.shifts:
            found = {
                routing: outcomes.verdicts(arm, budget, shift, routing)
                for routing in (sides["routing"], *sides["also"])
            }
            known = {routing: one for routing, one in found.items() if one is not None}
            if len(known) < 2:
                continue
            first, rows = known[sides["routing"]], outcomes.main(arm, budget)
            system = [row["systems"][sides["routing"]] for row in rows]
            shifts[shift] = {
                "accuracy": {routing: asdict(interval_of(one)) for routing, one in known.items()},
                "minus": {
                    routing: difference_of(first.minus(one))
                    for routing, one in known.items()
                    if routing != sides["routing"]
                },
                "abstained": _mean([one["abstained"][shift] for one in system]) / len(first.cells),
                "flops": {
                    routing: _mean([row["systems"][routing]["flops"][shift] for row in rows])
                    / len(first.cells)
                    for routing in known
                },
            }
        if shifts:
            yield arm, shifts


def _flip(outcomes: Outcomes) -> dict[str, Any]:
    """Accuracy through the flip and back: curves, their areas, and what is right before anything is
    spent."""
    arms: dict[str, Any] = {}
    areas: dict[str, dict[str, dict[int, float]]] = {}
    for arm in outcomes.arms:
        rows, routing = outcomes.flips(arm), outcomes.routing(arm)
        if not rows:
            continue
        curves = {
            name: [_legs(row, routing, sides) for row in rows] for name, sides in SIDES.items()
        }
        arms[arm] = {
            "curves": {name: _curve(legs) for name, legs in curves.items()},
            "area": [area(row, routing) for row in rows],
            "at_zero": [_at_zero(row, routing) for row in rows],
            "seeds": [row["seed"] for row in rows],
        }
        arms[arm]["mean"] = {name: _mean(arms[arm][name]) for name in ("area", "at_zero")}
        for name in ("area", "at_zero"):
            areas.setdefault(name, {})[arm] = dict(
                zip(arms[arm]["seeds"], arms[arm][name], strict=True)
            )
    return {
        "arms": arms,
        "differences": {name: _against_main(outcomes, found) for name, found in areas.items()},
    }


def _legs(
    row: Mapping[str, Any], routing: str, sides: Sequence[bool]
) -> list[tuple[str, float, float]]:
    """``(phase, extra, accuracy)`` over the families of those sides."""
    return [(leg["phase"], leg["extra"], _height(row, leg, routing, sides)) for leg in row["legs"]]


def _curve(legs: Sequence[Sequence[tuple[str, float, float]]]) -> list[dict[str, Any]]:
    """Mean, lowest and highest over the seeds at every leg."""
    found = []
    for same in zip(*legs, strict=True):
        values = [one[2] for one in same]
        phase, extra = same[0][:2]
        found.append(
            {
                "phase": phase,
                "extra": extra,
                "mean": _mean(values),
                "low": min(values),
                "high": max(values),
            }
        )
    return found


def _height(
    row: Mapping[str, Any],
    leg: Mapping[str, Any],
    routing: str,
    sides: Sequence[bool] = SIDES["all"],
) -> float:
    """Accuracy at a leg over the families that are flipped (True), kept (False), or either."""
    bits = leg["systems"][routing]["bits"]["in-distribution"].items()
    chosen = {
        cell: text for cell, text in bits if (cell.rpartition("/")[0] in row["families"]) in sides
    }
    return float(array_of(chosen).mean())


def area(row: Mapping[str, Any], routing: str, sides: Sequence[bool] = SIDES["all"]) -> float:
    """Mean height over both phases of the accuracy, by the FLOPs that were really spent.

    ``sides`` says over which families: those that flipped (True), those that did not (False), or
    all.
    """
    heights = []
    for phase in ("flipped", "back"):
        legs = {leg["train_flops"]: leg for leg in row["legs"] if leg["phase"] == phase}
        values = [_height(row, leg, routing, sides) for leg in legs.values()]
        # In a trial the steps may be too short for a single question.
        heights.append(area_under(list(legs), values) if len(legs) > 1 else values[0])
    return _mean(heights)


def _at_zero(row: Mapping[str, Any], routing: str) -> float:
    legs = [leg for leg in row["legs"] if leg["phase"] != "before" and leg["extra"] == 0]
    return _mean([_height(row, leg, routing) for leg in legs])


def views_of(outcomes: Outcomes) -> list[str]:
    """The rows of the tables: shifts, with in-distribution cells of each kind apart."""
    kinds = [kind for kind in CELL_KINDS if outcomes.cells(kind)]
    return [*outcomes.shifts[:1], *kinds, *outcomes.shifts[1:]]


def view_of(outcomes: Outcomes, arm: str, budget: float, view: str) -> Verdicts | None:
    """An arm's verdicts in a view. Retention asks only for what the bare host could do, if
    anything."""
    found = outcomes.verdicts(arm, budget, "in-distribution" if view in CELL_KINDS else view)
    if found is None or (view == "retention" and not outcomes.could.any()):
        return None
    if view in CELL_KINDS:
        return found.only(outcomes.cells(view))
    return found.where(outcomes.could) if view == "retention" else found


def interval_of(found: Verdicts) -> Interval:
    """Mean over cells with its interval; a single seed stands for all, so that questions alone are
    drawn."""
    cells = list(dict.fromkeys(found.cells))
    families = list(dict.fromkeys(found.families))
    return crossed_bootstrap(
        found.values,
        [cells.index(cell) for cell in found.cells],
        [families.index(family) for family in found.families],
        seed=0,
        resamples=RESAMPLES,
        is_clustered=len(families) > 1,
    )


def difference_of(found: Verdicts) -> dict[str, Any]:
    """A difference with interval, p-value over seeds, and the effect that so many seeds would
    find."""
    by_seed = found.by_seed()
    several = len(by_seed) > 1 and found.seeds != NO_SEED
    return {
        **asdict(interval_of(found)),
        "p": sign_flip(by_seed) if several else 1.0,
        "detectable": detectable(by_seed) if several else None,
        "seeds": by_seed,
    }


def _against_main(outcomes: Outcomes, values: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """The main arm's numbers, by seed, minus every other's on the seeds that both have."""
    main, found = outcomes.protocol["main"], dict[str, Any]()
    for arm, others in values.items():
        shared = sorted(set(others) & set(values.get(main, {})))
        if arm == main or len(shared) < 2:
            continue
        mine, theirs = ([numbers[seed] for seed in shared] for numbers in (values[main], others))
        found[arm] = paired(mine, theirs)
    adjust(found, outcomes.protocol["level"])
    return found


def paired(mine: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """A difference of numbers by seed, as ``difference_of`` gives one of verdicts; its interval is
    Student's.

    Raises:
        ValueError: less than two seeds, or not the same number of both.
    """
    differences = [one - other for one, other in zip(mine, theirs, strict=True)]
    return {
        **asdict(paired_interval(mine, theirs)),
        "p": sign_flip(differences),
        "detectable": detectable(differences),
        "seeds": differences,
    }


def adjust(tests: Mapping[Any, dict[str, Any]], level: float, view: str = "") -> None:
    """Controls the false discoveries of one family of tests, and says which differences are
    claimed."""
    for one, adjusted in zip(
        tests.values(), false_discovery([t["p"] for t in tests.values()]), strict=True
    ):
        one["p_adjusted"] = adjusted
        one["is_claimed"] = (
            adjusted < level
            and len(one["seeds"]) >= SEEDS_NEEDED.get(view, 2)
            and abs(one["estimate"]) >= POINTS_NEEDED.get(view, 0.0)
            and not one["low"] <= 0 <= one["high"]
        )


def covered(verdicts: Verdicts) -> list[float]:
    """How many cells have at least half of their answers right, for each seed."""
    return [float(count) for count in (verdicts.by_cell() >= 0.5).sum(axis=0)]


def per_solved(system: Mapping[str, Any], shift: str) -> float:
    """Useful FLOPs of answering, for every right answer."""
    right = sum(text.count("1") for text in system["bits"][shift].values())
    return float(system["flops"][shift] / max(right, 1))


def _flops(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    return [row["train"]["flops"] for row in rows]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))

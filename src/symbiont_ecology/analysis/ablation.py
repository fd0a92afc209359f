"""What each mechanism adds to an ecology: effects with intervals, and the page of them.

An effect is the ecology with the mechanism minus the one without it, seed by seed. All effects of a
page are one family of tests. The page is made from the numbers by seed alone, which
``docs/results`` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.analysis.comparison import adjust, area, covered, paired, per_solved, view_of
from symbiont_ecology.analysis.outcomes import Outcomes
from symbiont_ecology.analysis.page import made_with, table

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""By arm and measure: one number per seed."""
Effects = dict[str, dict[str, dict[str, Any]]]
"""By mechanism and measure: a difference as ``comparison.paired`` gives it, adjusted and maybe
claimed."""


@dataclass(frozen=True)
class Measure:
    """Something of a run that a mechanism may change, as the page says it."""

    title: str
    """Of its column, with the unit."""
    word: str
    purpose: str
    scale: float = 100.0
    form: str = ".1f"
    is_cost: bool = False
    """Whether less of it is better."""


MEASURES = {
    "accuracy": Measure("held-out accuracy, points", "accuracy", "accuracy"),
    "retention": Measure("retention, points", "retention", "retention"),
    "coverage": Measure("coverage, cells", "coverage", "coverage", 1),
    "energy": Measure(
        "MFLOPs per right answer in practice", "practice FLOPs", "energy", 1e-6, ".3g", is_cost=True
    ),
    "flops": Measure(
        "MFLOPs per right answer in use", "answering FLOPs", "energy", 1e-6, ".3g", is_cost=True
    ),
    "flipped": Measure(
        "flipped families, points", "resilience where the world flips", "resilience"
    ),
    "kept": Measure("kept families, points", "resilience where it stays", "resilience"),
}


def results_file(page: Path) -> Path:
    """Where the numbers of a page are kept."""
    return page.parent / "results" / f"{page.stem}.json"


def results_of(outcomes: Outcomes, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the page is made of, as plain values; ``rows`` are those of the ablation."""
    measured = {arm: dict(_measured(outcomes, arm)) for arm in outcomes.arms}
    target = outcomes.budgets[-1] * outcomes.protocol["unit_flops"]
    spent = [
        one["train"]["flops"]
        for arm in outcomes.arms
        for one in outcomes.main(arm, outcomes.budgets[-1])
    ]
    return {
        "protocol": dict(outcomes.protocol),
        "digest": outcomes.host["protocol"],
        "host": {"fingerprint": outcomes.host["host"], "versions": outcomes.host["versions"]},
        "sources": sorted({row["source"] for row in outcomes.rows}),
        "rows": [dict(row) for row in rows],
        "off_budget": max(abs(flops / target - 1) for flops in spent),
        "measured": measured,
        "effects": effects(measured, outcomes.protocol, rows),
    }


def _measured(outcomes: Outcomes, arm: str) -> Iterator[tuple[str, list[float]]]:
    """An arm's numbers, by measure and seed, at the largest budget."""
    routing, shift, budget = outcomes.routing(arm), outcomes.shifts[0], outcomes.budgets[-1]
    rows, flips = outcomes.main(arm, budget), outcomes.flips(arm)
    verdicts = outcomes.verdicts(arm, budget, shift)
    assert verdicts is not None
    yield "accuracy", verdicts.by_seed()
    retained = view_of(outcomes, arm, budget, "retention")
    if retained is not None:
        yield "retention", retained.by_seed()
    yield "coverage", covered(verdicts)
    yield "energy", [row["train"]["flops"] / max(row["solved"], 1.0) for row in rows]
    yield "flops", [per_solved(row["systems"][routing], shift) for row in rows]
    if flips:
        yield "flipped", [area(row, routing, (True,)) for row in flips]
        yield "kept", [area(row, routing, (False,)) for row in flips]


def effects(
    measured: Values, protocol: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> Effects:
    """What every mechanism adds, with the false discoveries of all tests together controlled."""
    default, found = measured[protocol["main"]], Effects()
    for row in rows:
        own = measured[row["mechanism"]]
        pairs = {name: (default[name], values) for name, values in own.items()}
        if row["add"]:
            pairs = {name: (other, usual) for name, (usual, other) in pairs.items()}
        found[row["mechanism"]] = {name: paired(*pair) for name, pair in pairs.items()}
    adjust(
        {(arm, name): one for arm, own in found.items() for name, one in own.items()},
        protocol["level"],
    )
    return found


def never_acted(own: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every seed came out alike in everything with the mechanism and without it."""
    return not any(difference for one in own.values() for difference in one["seeds"])


def reading(purpose: str, own: Mapping[str, Mapping[str, Any]]) -> str:
    """What holds of a mechanism, in plain words."""
    if never_acted(own):
        return "never acted in these runs"
    held = {name: one["estimate"] > 0 for name, one in own.items() if one["is_claimed"]}
    said: dict[str, list[str]] = {}
    for name, is_more in held.items():
        measure = MEASURES[name]
        verb = ("saves", "costs")[is_more] if measure.is_cost else ("costs", "adds")[is_more]
        said.setdefault(verb, []).append(measure.word)
    if not said:
        return f"nothing that {len(next(iter(own.values()))['seeds'])} seeds can see"
    words = "; ".join(f"{verb} {' and '.join(what)}" for verb, what in said.items())
    is_aim = any(MEASURES[name].purpose == purpose for name in held)
    return words if is_aim else f"{words}; nothing seen of its purpose"


def readings(results: Mapping[str, Any]) -> dict[str, str]:
    """The same of every row, by mechanism."""
    found = effects(results["measured"], results["protocol"], results["rows"])
    return {
        row["mechanism"]: reading(row["purpose"], found[row["mechanism"]])
        for row in results["rows"]
    }


def smallest_q(tests: int, seeds: int) -> float:
    """The q of an effect that all seeds agree on and that no other test shares."""
    return min(tests * 2.0 ** (1 - seeds), 1.0)


def render_ablation(results: Mapping[str, Any]) -> str:
    """The whole page, from the numbers by seed."""
    protocol, measured = results["protocol"], results["measured"]
    columns, rows = list(measured[protocol["main"]]), results["rows"]
    found, default = effects(measured, protocol, rows), measured[protocol["main"]]
    titles = [MEASURES[name].title for name in columns]
    means = [
        f"{MEASURES[name].scale * np.mean(default[name]):{MEASURES[name].form}}" for name in columns
    ]
    shown = [["*all of them*", "", *means, ""]]
    sure = []
    for row in rows:
        name, own = row["mechanism"], found[row["mechanism"]]
        cells = [_effect(one, own[one]) for one in columns]
        shown.append([name, row["purpose"], *cells, reading(row["purpose"], own)])
        if not never_acted(own):
            sure.append([name, *(_certainty(one, own[one]) for one in columns)])
    parts = [
        f"# {protocol['name'].replace('-', ': ').capitalize()}",
        f"Question: {protocol['question']}",
        _introduction(results),
        "## Effects",
        table(["mechanism", "is for", *titles, "reading"], shown),
        "## How sure that is",
        _certainties(results, len(rows) * len(columns)),
        *([table(["mechanism", *titles], sure)] if sure else []),
        "## What was left out, or put in",
        table(
            ["mechanism", "what it does", "the ecology has it", "the other ecology"],
            [
                [
                    row["mechanism"],
                    row["about"],
                    "no" if row["add"] else "yes",
                    _other(row, protocol),
                ]
                for row in rows
            ],
        ),
        "## Made with",
        f"`symbiont ablate`. {made_with(results['digest'], results)}",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Mapping[str, Any]) -> str:
    protocol, off = results["protocol"], results["off_budget"]
    flops, flip = protocol["budgets"][-1] * protocol["unit_flops"], protocol["flip"]
    about = protocol["arms"][protocol["main"]]["about"]
    text = (
        f"{about[:1].upper()}{about[1:]} with and without each mechanism: "
        f"{len(protocol['seeds'])} seeds each, {flops:.3g} useful training FLOPs a run "
        f"(the worst is {100 * off:.1f} % off), the same {protocol['per_cell']} held-out questions per cell. "
        "All knobs were fixed, under the hash below, before any of these ran. An effect is *with minus "
        "without*, a mean over paired seeds with its 95 % interval (Student's t); bold is what holds: "
        f"q below {protocol['level']:g} and an interval without 0. *Coverage*: cells with half of the "
        "held-out answers right. *MFLOPs per right answer*: in practice, all of training by its right "
        "answers, so asking more of what is hard raises it; in use, what answering held-out questions took. "
        "Less of either is better."
    )
    if "retention" in results["measured"][protocol["main"]]:
        text += " *Retention*: of what the bare host got right, the share that is still right."
    if flip is not None:
        text += (
            f" *Flipped* and *kept* families: at {flip['at']:g} × that budget half of them change to another "
            f"convention, at {flip['back']:g} × they change back, and nobody is told; the number is the mean "
            f"height of the accuracy curve over {flip['extra'][-1]:g} × after each change."
        )
    return text


def _certainties(results: Mapping[str, Any], tests: int) -> str:
    seeds = len(results["protocol"]["seeds"])
    return (
        f"q: p of an exact sign-flip test over the seeds, adjusted for false discoveries among all {tests} "
        "tests of this page (Benjamini & Hochberg). Behind ≥: the effect that so many seeds find four times "
        f"out of five, at p < .05 before adjusting. With {seeds} seeds the q of a lone effect is "
        f"{smallest_q(tests, seeds):.2g} at best. *No change*: alike in every seed. A mechanism that never "
        "acted has no row here."
    )


def _other(row: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    """The overrides that make the ecology that is compared with."""
    return f"`{' '.join(protocol['arms'][row['mechanism']]['set'])}`"


def _effect(name: str, found: Mapping[str, Any]) -> str:
    measure = MEASURES[name]
    mid, low, high = (
        f"{measure.scale * found[key]:+{measure.form}}" for key in ("estimate", "low", "high")
    )
    return f"{f'**{mid}**' if found['is_claimed'] else mid} [{low}, {high}]"


def _certainty(name: str, found: Mapping[str, Any]) -> str:
    measure = MEASURES[name]
    if not any(found["seeds"]):
        return "no change"
    return f"q = {found['p_adjusted']:.2g}, ≥ {measure.scale * found['detectable']:{measure.form}}"

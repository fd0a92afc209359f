"""Ablations: an ecology with and without each of its mechanisms, as the arms of a protocol.

    name: ablations
    base: [tasks/trained]              # and all else that a protocol says, but no arms
    rows:
      - {mechanism: breeding, purpose: accuracy, about: who is rich has children}
      - {mechanism: prices, change: [economy.slope=0], purpose: coverage,
         about: what is scarce pays more}

The arm of a row is the ecology with ``change`` on top; without one, the mechanism of that name is
left out. What the ecology is without has ``add`` instead, and its arm is the ecology with it. Where
``base`` and ``set`` make another one than the default, ``ecology`` says in a few words which.
Nothing is tuned: what the file does not name is the default of its part, and the protocol's hash
covers it.

An effect is the ecology with the mechanism minus the one without it, seed by seed. All effects of a
page are one family of tests. The page is made from the numbers by seed alone, which
``docs/results`` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, computed_field

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import validate
from symbiont_ecology.base.removed import is_removed
from symbiont_ecology.extensions.study.comparison import (
    Difference,
    adjusted,
    mean,
    of_seeds,
    view_of,
)
from symbiont_ecology.extensions.study.measures import area
from symbiont_ecology.extensions.study.pack import render
from symbiont_ecology.extensions.study.protocol import Name, Protocol, read_changed
from symbiont_ecology.extensions.study.results import Results, by_cell, by_seed
from symbiont_ecology.extensions.study.suite import check_protocol

DEFAULT = "ecology"
"""The arm that has everything."""
AblationPurpose = Literal["accuracy", "retention", "coverage", "energy", "resilience"]


class AblationRow(BaseModel):
    """A mechanism, and the ecology without it; or with it, where it has none (``add``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: Name
    purpose: AblationPurpose  # what it is there for
    about: str  # what it does, in a few words
    change: tuple[str, ...] = ()  # overrides that make the ecology without it; none: by its name
    add: tuple[str, ...] = ()  # overrides that make the ecology with it

    @property
    def set(self) -> tuple[str, ...]:
        """The overrides of its arm."""
        return self.add or self.change or (f"strategy.mechanisms.{self.mechanism}=false",)


class _Rows(BaseModel):
    """Part of a file of ablations that is no protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: tuple[AblationRow, ...]
    ecology: str = "the default ecology"  # what the rows are left out of, or put into


def load_ablation(
    path: Path, overrides: Sequence[str] = ()
) -> tuple[tuple[AblationRow, ...], Protocol]:
    """Return the rows of a file, and the protocol that they make; ``overrides`` such as
    ``seeds=[100]`` change both.

    Raises:
        ConfigError: there is no such file, it does not fit its schema, or a row cannot be run.
    """
    data, where = read_changed(path, overrides), f"ablation {path.stem!r}"
    values = {key: data.pop(key) for key in _Rows.model_fields if key in data}
    file = validate(_Rows, {"rows": [], **values}, where)
    arms = {DEFAULT: {"about": file.ecology}} | {
        row.mechanism: {
            "about": f"{'with' if row.add else 'without'} it: {row.about} (for {row.purpose})",
            "set": row.set,
        }
        for row in file.rows
    }
    protocol = validate(Protocol, {**data, "arms": arms, "main": DEFAULT}, where)
    if len(arms) != len(file.rows) + 1 or len(protocol.seeds) < 2:
        raise ConfigError(
            f"{where}: expected rows that each have another mechanism, none called {DEFAULT}, and "
            f"two seeds or more to pair, got {', '.join(arms)} and seeds {protocol.seeds}"
        )
    check_protocol(protocol)
    return file.rows, protocol


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


MFLOPS: dict[str, Any] = {"scale": 1e-6, "form": ".3g", "is_cost": True}
MEASURES = {
    "accuracy": Measure("held-out accuracy, points", "accuracy", "accuracy"),
    "retention": Measure("retention, points", "retention", "retention"),
    "coverage": Measure("coverage, cells", "coverage", "coverage", 1),
    "energy": Measure("MFLOPs per right answer in practice", "practice FLOPs", "energy", **MFLOPS),
    "flops": Measure("MFLOPs per right answer in use", "answering FLOPs", "energy", **MFLOPS),
    "flipped": Measure(
        "flipped families, points", "resilience where the world flips", "resilience"
    ),
    "kept": Measure("kept families, points", "resilience where it stays", "resilience"),
}


class AblationResults(BaseModel):
    """Everything that the page is made of; ``docs/results`` keeps it as JSON."""

    model_config = ConfigDict(frozen=True)

    protocol: Protocol
    digest: str
    host: dict[str, Any]
    sources: list[str]
    rows: Sequence[AblationRow]
    off_budget: float
    """The worst run's distance from the budget, as a part of it."""
    measured: dict[str, dict[str, list[float]]]
    """By arm and measure: one number per seed."""

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def effects(self) -> dict[str, dict[str, Difference]]:
        """Effect of every mechanism, by measure, with the false discoveries of all tests together
        controlled."""
        ecology, tests = self.measured[self.protocol.main], {}
        for row in self.rows:
            for measure, values in self.measured[row.mechanism].items():
                pair = (values, ecology[measure]) if row.add else (ecology[measure], values)
                tests[row.mechanism, measure] = of_seeds(np.subtract(*pair).tolist())
        effects: dict[str, dict[str, Difference]] = {row.mechanism: {} for row in self.rows}
        for (mechanism, measure), effect in adjusted(tests, self.protocol.level).items():
            effects[mechanism][measure] = effect
        return effects

    @property
    def readings(self) -> dict[str, str]:
        """Conclusion about each mechanism, in plain words."""
        return {row.mechanism: reading(row, self.effects[row.mechanism]) for row in self.rows}


def results_of(results: Results, rows: Sequence[AblationRow]) -> AblationResults:
    """Measure all arms of an ablation with these rows."""
    target = results.largest * results.protocol.unit_flops
    runs = [run for arm in results.protocol.arms for run in results.runs(arm, results.largest)]
    return AblationResults(
        protocol=results.protocol,
        digest=results.host.protocol,
        host={"fingerprint": results.host.host, "versions": results.host.versions},
        sources=results.sources,
        rows=rows,
        off_budget=max(abs(run.train.flops / target - 1) for run in runs),
        measured={arm: dict(_measured(results, arm)) for arm in results.protocol.arms},
    )


def _measured(results: Results, arm: str) -> Iterator[tuple[str, list[float]]]:
    """An arm's numbers, by measure and seed, at the largest budget."""
    shift, budget = results.protocol.shifts[0], results.largest
    verdicts, legs = results.verdicts(arm, budget, shift), results.legs_of(arm)
    assert verdicts is not None
    yield "accuracy", by_seed(verdicts)
    retention = view_of(results, arm, budget, "retention")
    if retention is not None:
        yield "retention", by_seed(retention)
    yield "coverage", (by_cell(verdicts) >= 0.5).sum().astype(float).to_list()
    runs = results.runs(arm, budget)
    yield "energy", [run.train.flops / max(run.run.solved, 1.0) for run in runs if run.run]
    yield "flops", results.flops_per_right(arm, budget, shift)
    for side in ("flipped", "kept") if len(legs) else ():
        yield side, [area(run, side) for _, run in legs.groupby("seed", sort=False)]


def never_acted(effects: Mapping[str, Difference]) -> bool:
    """Return whether every seed came out alike in everything with the mechanism and without it."""
    return not any(difference for effect in effects.values() for difference in effect.seeds)


def reading(row: AblationRow, effects: Mapping[str, Difference]) -> str:
    """Return what holds of a mechanism, in plain words."""
    if never_acted(effects):
        return "never acted in these runs"
    claims = {name: effect.estimate > 0 for name, effect in effects.items() if effect.is_claimed}
    by_verb: dict[str, list[str]] = {}
    for name, is_more in claims.items():
        verbs = ("saves", "costs") if MEASURES[name].is_cost else ("costs", "adds")
        by_verb.setdefault(verbs[is_more], []).append(MEASURES[name].word)
    if not by_verb:
        return f"nothing that {len(next(iter(effects.values())).seeds)} seeds can see"
    words = "; ".join(f"{verb} {' and '.join(terms)}" for verb, terms in by_verb.items())
    is_aim = any(MEASURES[name].purpose == row.purpose for name in claims)
    return words if is_aim else f"{words}; nothing seen of its purpose"


def smallest_q(tests: int, seeds: int) -> float:
    """Return the q of an effect that all seeds agree on and that no other test shares."""
    return min(tests * 2.0 ** (1 - seeds), 1.0)


def render_ablation(results: AblationResults) -> str:
    """Return the whole page, from the numbers by seed."""
    return render(
        "ablation.md.j2",
        results=results,
        measures={name: MEASURES[name] for name in results.measured[results.protocol.main]},
        readings=results.readings,
        never_acted=never_acted,
        smallest_q=smallest_q,
        mean=mean,
        gone=[row.mechanism for row in results.rows if is_removed("mechanism", row.mechanism)],
    )

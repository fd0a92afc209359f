"""What each mechanism adds to an ecology: effects with intervals, and the page of them.

An effect is the ecology with the mechanism minus the one without it, seed by seed. All effects of a
page are one family of tests. The page is made from the numbers by seed alone, which
``docs/results`` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, computed_field

from symbiont_ecology.analysis.comparison import adjusted, area, mean, paired, view_of
from symbiont_ecology.analysis.page import render
from symbiont_ecology.analysis.results import Results
from symbiont_ecology.analysis.summary import AdjustedDifference, Source
from symbiont_ecology.experiments.ablation import AblationRow
from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.removed import is_removed


@dataclass(frozen=True)
class Measure:
    """Something of a run that a mechanism may change, as the page says it."""

    title: str
    """Of its column, with the unit."""
    word: str
    purpose: str
    scale: float = 100.0
    form: str = ".1f"


@dataclass(frozen=True)
class FlopsMeasure(Measure):
    """One of which less is better, in MFLOPs."""

    scale: float = 1e-6
    form: str = ".3g"


MEASURES = {
    "accuracy": Measure("held-out accuracy, points", "accuracy", "accuracy"),
    "retention": Measure("retention, points", "retention", "retention"),
    "coverage": Measure("coverage, cells", "coverage", "coverage", 1),
    "energy": FlopsMeasure("MFLOPs per right answer in practice", "practice FLOPs", "energy"),
    "flops": FlopsMeasure("MFLOPs per right answer in use", "answering FLOPs", "energy"),
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
    host: Source
    sources: list[str]
    rows: Sequence[AblationRow]
    off_budget: float
    """The worst run's distance from the budget, as a part of it."""
    measured: dict[str, dict[str, list[float]]]
    """By arm and measure: one number per seed."""

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def effects(self) -> dict[str, dict[str, AdjustedDifference]]:
        """What every mechanism adds, by measure, with the false discoveries of all tests together
        controlled."""
        ecology, tests = self.measured[self.protocol.main], {}
        for row in self.rows:
            for measure, values in self.measured[row.mechanism].items():
                pair = ecology[measure], values
                tests[row.mechanism, measure] = paired(*(reversed(pair) if row.add else pair))
        effects: dict[str, dict[str, AdjustedDifference]] = {row.mechanism: {} for row in self.rows}
        for (mechanism, measure), effect in adjusted(tests, self.protocol.level).items():
            effects[mechanism][measure] = effect
        return effects


def results_file(page: Path) -> Path:
    """Where the numbers of a page are kept."""
    return page.parent / "results" / f"{page.stem}.json"


def results_of(results: Results, rows: Sequence[AblationRow]) -> AblationResults:
    """Measures all arms of an ablation with these rows."""
    target = results.largest * results.protocol.unit_flops
    runs = [run for arm in results.protocol.arms for run in results.runs(arm, results.largest)]
    return AblationResults(
        protocol=results.protocol,
        digest=results.host.protocol,
        host=Source(results.host.host, results.host.versions),
        sources=sorted({outcome.source for outcome in results.outcomes}),
        rows=rows,
        off_budget=max(abs(run.train.flops / target - 1) for run in runs),
        measured={arm: dict(_measured(results, arm)) for arm in results.protocol.arms},
    )


def _measured(results: Results, arm: str) -> Iterator[tuple[str, list[float]]]:
    """An arm's numbers, by measure and seed, at the largest budget."""
    shift, budget = results.protocol.shifts[0], results.largest
    verdicts, legs = results.verdicts(arm, budget, shift), results.legs_of(arm)
    assert verdicts is not None
    yield "accuracy", verdicts.by_seed()
    retention = view_of(results, arm, budget, "retention")
    if retention is not None:
        yield "retention", retention.by_seed()
    yield "coverage", verdicts.covered()
    runs = results.runs(arm, budget)
    yield "energy", [run.train.flops / max(run.solved, 1.0) for run in runs]
    yield "flops", results.flops_per_right(arm, budget, shift)
    for side in ("flipped", "kept") if len(legs) else ():
        yield side, [area(run, side) for _, run in legs.groupby("seed", sort=False)]


def never_acted(effects: Mapping[str, AdjustedDifference]) -> bool:
    """Whether every seed came out alike in everything with the mechanism and without it."""
    return not any(difference for effect in effects.values() for difference in effect.seeds)


def reading(purpose: str, effects: Mapping[str, AdjustedDifference]) -> str:
    """What holds of a mechanism, in plain words."""
    if never_acted(effects):
        return "never acted in these runs"
    claims = {name: effect.estimate > 0 for name, effect in effects.items() if effect.is_claimed}
    by_verb: dict[str, list[str]] = {}
    for name, is_more in claims.items():
        measure = MEASURES[name]
        verbs = ("saves", "costs") if isinstance(measure, FlopsMeasure) else ("costs", "adds")
        by_verb.setdefault(verbs[is_more], []).append(measure.word)
    if not by_verb:
        return f"nothing that {len(next(iter(effects.values())).seeds)} seeds can see"
    words = "; ".join(f"{verb} {' and '.join(terms)}" for verb, terms in by_verb.items())
    is_aim = any(MEASURES[name].purpose == purpose for name in claims)
    return words if is_aim else f"{words}; nothing seen of its purpose"


def readings(results: AblationResults) -> dict[str, str]:
    """The same of every row, by mechanism."""
    return {
        row.mechanism: reading(row.purpose, results.effects[row.mechanism]) for row in results.rows
    }


def smallest_q(tests: int, seeds: int) -> float:
    """The q of an effect that all seeds agree on and that no other test shares."""
    return min(tests * 2.0 ** (1 - seeds), 1.0)


def render_ablation(results: AblationResults) -> str:
    """The whole page, from the numbers by seed."""
    return render(
        "ablation.md.j2",
        results=results,
        measures={name: MEASURES[name] for name in results.measured[results.protocol.main]},
        readings=readings(results),
        never_acted=never_acted,
        smallest_q=smallest_q,
        mean=mean,
        gone=[row.mechanism for row in results.rows if is_removed("mechanism", row.mechanism)],
    )

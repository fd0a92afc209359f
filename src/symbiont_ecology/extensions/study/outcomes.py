"""Outcomes of jobs: one JSON object each, from which every number of a pack is made.

``jobs`` fills it, ``results`` makes the table of answers from its legs. Outcomes of schema 1 are
read as well: packs of earlier versions are made of them. Keys that nothing needs are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from symbiont_ecology.base.errors import DataError, RunError
from symbiont_ecology.base.events import Acted, Born, Event, Retired, Settled
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import cell_name
from symbiont_ecology.base.untrusted import parse_json
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.measure import Evaluation

OUTCOME_SCHEMA = 3
"""Raise it when a key goes or changes its meaning."""
Phase = Literal["run", "selection", "stage", "before", "flipped", "back"]
JobKind = Literal["tune", "main", "flip", "host", "stream"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class SystemAnswers(_Record):
    """The answers of one run by one routing."""

    bits: dict[str, dict[str, str]]
    """By shift and cell, as text in the order of the items: 1 for a reply with half of the marks or
    more, else 0."""
    flops: dict[str, int] = {}
    """Useful FLOPs of all answers of a shift."""
    organelles: int = 0
    """How many answered any, but for the host."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> SystemAnswers:
        """Return the verdicts and costs of an evaluation."""
        bits: dict[str, dict[str, str]] = {}
        flops: dict[str, int] = {}
        for rollout in evaluation.rollouts:
            shift, cell = rollout.item.shift, cell_name(rollout.item.cell)
            cells = bits.setdefault(shift, {})
            cells[cell] = cells.get(cell, "") + ("1" if rollout.is_right else "0")
            flops[shift] = flops.get(shift, 0) + rollout.cost.flops
        organelles = len(set(evaluation.choices) - {HOST})
        return cls(bits=bits, flops=flops, organelles=organelles)

    def right(self, shift: str) -> int:
        """Return how many answers of a shift are right."""
        return sum(text.count("1") for text in self.bits.get(shift, {}).values())

    def share(self, shift: str) -> float:
        """Return the share of a shift that is right; 0 where it was not asked."""
        return self.right(shift) / max(sum(map(len, self.bits.get(shift, {}).values())), 1)


class Leg(_Record):
    """Answers that were measured at once: at the end of a run, after a stage, or ``extra`` units of
    FLOPs after a flip."""

    phase: Phase = "run"
    extra: float = 0.0
    train_flops: float = 0
    systems: dict[str, SystemAnswers]


@dataclass(frozen=True)
class RunSummary:
    """Counts, and energy in mATP."""

    rollouts: int = 0
    """Of any purpose, founding included."""
    births: int = 0
    """Of children; founders have no parents."""
    merges: int = 0
    """Births with two parents or more."""
    deaths: int = 0
    earned: int = 0
    spent: int = 0


class RunRecord(_Record):
    """Totals of a run up to its budget."""

    life: RunSummary
    solved: float = 0.0
    """Right answers in practice."""
    selection_flops: int = 0
    arrived: list[str] = []
    """The families in the order of their coming, in a world of arrivals."""


class StreamRecord(_Record):
    """Answers of a run in a world with users, question by question, and who lived in it."""

    verdicts: str
    """A letter per question in the order of the stream: 1 accepted, 0 refused, - not answered."""
    moves: list[tuple[int, int, int]] = []
    """Generation, number of the user, number of the organelle that answers it from then on."""
    served_by: list[int] | None = None
    """The number of the organelle that serves each user at the end; -1 where nobody alive does.
    Outcomes of older versions do not say it."""
    population: list[int]
    """Organelles alive at the end of each generation."""
    deaths: list[int] = []
    """The generation of each."""
    scored: int = 0
    """Answers that were scored or sketched to find out who wants what."""


class Outcome(_Record):
    """Outcome of a job: who was asked, the answers of every leg, and what a run did on the way."""

    schema_: int = Field(OUTCOME_SCHEMA, alias="schema")
    kind: JobKind
    protocol: str
    """Its digest."""
    source: str
    """Digest of the code that ran."""
    arm: str
    seed: int
    budget: float = 0.0
    option: int = 0
    """Of the arm's tuning configs."""
    world: str = ""
    families: list[str] = []
    """Those that a flip changed."""
    legs: list[Leg] = []
    host: str = ""
    """The fingerprint of the bare host, where that was asked."""
    versions: dict[str, str] = {}
    train: Cost = Cost()
    general: dict[str, Any] = {}
    """What plain English was to each routing, in outcomes of earlier versions."""
    run: RunRecord | None = None
    stream: StreamRecord | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_schema_1(cls, data: object) -> object:
        """Give what lay side by side in outcomes of schema 1 its place."""
        if not isinstance(data, dict) or data.get("schema", 1) != 1:
            return data
        part = {"main": "run", "stream": "stream"}.get(data.get("kind", ""))
        found = {**data, part: data} if part else dict(data)
        if "systems" in data:
            stages = [{**stage, "phase": "stage"} for stage in data.get("stages", ())]
            end = {"systems": data["systems"], "train_flops": data.get("train", {}).get("flops", 0)}
            found["legs"] = [*stages, end]
        return found

    @property
    def systems(self) -> dict[str, SystemAnswers]:
        """The answers at the end of the run, by routing."""
        return self.legs[-1].systems

    @property
    def acceptance(self) -> float:
        """The share of all questions of a stream that was answered and accepted."""
        assert self.stream is not None
        return self.stream.verdicts.count("1") / max(len(self.stream.verdicts), 1)

    def to_json(self) -> str:
        """Return one line, without what is not set."""
        return self.model_dump_json(exclude_none=True, exclude_unset=True, by_alias=True) + "\n"


_outcomes = TypeAdapter(list[Outcome])


def parse_outcomes(rows: Iterable[object]) -> list[Outcome]:
    """Return outcomes from plain values.

    Raises:
        DataError: a row is none.
    """
    try:
        return _outcomes.validate_python(list(rows))
    except ValidationError as error:
        first, *_ = error.errors()
        place, message = ".".join(map(str, first["loc"])), first["msg"]
        raise DataError(f"expected outcomes of a suite, but {place}: {message}") from error


def load_outcome(path: Path) -> Outcome:
    """Return the outcome in a file.

    Raises:
        RunError: it is none of this version.
    """
    try:
        return Outcome.model_validate(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged or of another version: delete its folder") from error


Chosen = dict[str, dict[str, int]]
"""The chosen tuning option by arm and budget; in a protocol of worlds, by world and arm."""


class TuningScore(_Record):
    """Selection accuracy of one tuning config with one seed."""

    arm: str
    option: int
    seed: int
    budget: float
    accuracy: float
    retention: float | None = None


class Tuning(_Record):
    """Tuning of the arms: the option chosen by arm and budget, and every config with its
    scores."""

    chosen: Chosen
    sweep: list[TuningScore] = []


def run_summary(events: Iterable[Event]) -> RunSummary:
    """Return the counts of a run."""
    counts = Counter[str]()
    for event in events:
        match event:
            case Acted():
                counts["rollouts"] += len(event.verdicts)
            case Born():
                counts["births"] += len(event.parents) > 0
                counts["merges"] += len(event.parents) > 1
            case Retired():
                counts["deaths"] += 1
            case Settled():
                counts["earned"] += event.revenue
                counts["spent"] += event.spent
    return RunSummary(**counts)

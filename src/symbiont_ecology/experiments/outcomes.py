"""What a job leaves: one JSON object, from which every number of a pack is made.

A key of the results is a field of one of these classes. ``experiments.jobs`` fills them,
``analysis.results`` makes the table of answers from them. Keys that nothing needs any more are
ignored, so packs of earlier versions can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import Cost
from symbiont_ecology.errors import DataError, RunError
from symbiont_ecology.evaluation.general import GeneralAbility
from symbiont_ecology.evaluation.measure import Evaluation
from symbiont_ecology.evaluation.run_summary import RunSummary
from symbiont_ecology.types import cell_name
from symbiont_ecology.untrusted import parse_json

TUNED_FILE = "tuned.json"
"""What tuning chose, in the folder of a suite."""
OUTCOME_SCHEMA = 1
"""Raise it when a key goes or changes its meaning."""
Phase = Literal["run", "before", "flipped", "back"]
JobKind = Literal["tune", "main", "flip", "host"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class SystemAnswers(_Record):
    """The answers of one run by one routing."""

    bits: dict[str, dict[str, str]]
    """By shift and cell, as text in the order of the items: 1 for a reply with half of the marks or
    more, else 0."""
    flops: dict[str, int] = {}
    """Useful FLOPs of all answers of a shift; a leg of a flip has none."""
    abstained: dict[str, int] = {}
    """How many items of a shift the host answered."""
    organelles: int = 0
    """How many others answered any."""

    @classmethod
    def verdicts_of(cls, evaluation: Evaluation) -> SystemAnswers:
        """The verdicts of an evaluation alone."""
        bits: dict[str, dict[str, str]] = {}
        for rollout in evaluation.rollouts:
            cells, cell = bits.setdefault(rollout.item.shift, {}), cell_name(rollout.item.cell)
            cells[cell] = cells.get(cell, "") + ("1" if rollout.is_right else "0")
        return cls(bits=bits)

    @classmethod
    def of(cls, evaluation: Evaluation) -> SystemAnswers:
        """The verdicts and costs of an evaluation."""
        flops: dict[str, int] = {}
        abstained: dict[str, int] = {}
        for rollout in evaluation.rollouts:
            shift = rollout.item.shift
            flops[shift] = flops.get(shift, 0) + rollout.cost.flops
            abstained[shift] = abstained.get(shift, 0) + (rollout.organelle_id == HOST)
        organelles = len(set(evaluation.choices) - {HOST})
        bits = cls.verdicts_of(evaluation).bits
        return cls(bits=bits, flops=flops, abstained=abstained, organelles=organelles)


class Leg(_Record):
    """What was measured at once: at the end of a run, or ``extra`` units of FLOPs after a flip."""

    phase: Phase = "run"
    extra: float = 0.0
    train_flops: float = 0
    systems: dict[str, SystemAnswers]


class JobOutcome(_Record):
    """What every job leaves."""

    schema_: int = Field(OUTCOME_SCHEMA, alias="schema")
    protocol: str
    """Its digest."""
    source: str
    """Digest of the code that ran."""
    arm: str
    seed: int
    budget: float = 0.0
    option: int = 0
    """Of the arm's tuning configs."""
    families: list[str] = []
    """Those that a flip changed."""

    def to_json(self) -> str:
        """One line, without what is not set."""
        return self.model_dump_json(exclude_none=True, exclude_unset=True, by_alias=True) + "\n"


class TuneOutcome(JobOutcome):
    """What a tuning config achieved on selection items."""

    kind: Literal["tune"]
    accuracy: float
    retention: float | None = None


class HostOutcome(JobOutcome):
    """What the bare host answered; ``host`` is its fingerprint."""

    kind: Literal["host"]
    host: str
    versions: dict[str, str]
    systems: dict[str, SystemAnswers] = {}

    @property
    def legs(self) -> list[Leg]:
        """The one measurement."""
        return [Leg(systems=self.systems)]


class RunOutcome(JobOutcome):
    """What a run to its budget answered, did and spent."""

    kind: Literal["main"]
    systems: dict[str, SystemAnswers]
    life: RunSummary
    course: list[tuple[float, float, float, float, float]] = []
    """Per moment: training FLOPs so far, accuracy, revenue, cost, population."""
    solved: float = 0.0
    """Right answers in practice."""
    train: Cost
    selection_flops: int
    general: dict[str, GeneralAbility] = {}
    """What plain English is to each routing, and to each adapter that serves; nothing on a host
    that knows none."""
    stages: list[Leg] = []
    """What was right of all families at the end of the time of each, in a world of arrivals."""
    arrived: list[str] = []
    """The families in the order of their coming."""

    @property
    def legs(self) -> list[Leg]:
        """The one measurement."""
        return [Leg(train_flops=self.train.flops, systems=self.systems)]


class FlipOutcome(JobOutcome):
    """What a run through the flip answered at every leg."""

    kind: Literal["flip"]
    legs: list[Leg]


class StreamOutcome(JobOutcome):
    """What a run in a world with habitats answered, question by question, and who lived in it."""

    kind: Literal["stream"]
    world: str
    verdicts: str
    """A letter per question in the order of the stream: 1 accepted, 0 refused, - not answered."""
    moves: list[tuple[int, int, int]] = []
    """Generation, number of the habitat, number of the organelle that answers it from then on."""
    served_by: list[int] | None = None
    """The number of the organelle that serves each habitat at the end; -1 where nobody alive does.
    Outcomes of older versions do not say it."""
    population: list[int]
    """Organelles alive at the end of each generation."""
    births: list[tuple[int, int]] = []
    """Generation, and how many habitats the newborn got."""
    deaths: list[int] = []
    """The generation of each."""
    train: Cost
    scored: int = 0
    """Answers that were scored or sketched to find out who wants what."""
    general: dict[str, GeneralAbility] = {}
    """What plain English is to each adapter that serves; nothing on a host that knows none."""

    @property
    def acceptance(self) -> float:
        """The share of all questions that was answered and accepted."""
        return self.verdicts.count("1") / max(len(self.verdicts), 1)


ReportedOutcome = HostOutcome | RunOutcome | FlipOutcome
AnyOutcome = TuneOutcome | ReportedOutcome | StreamOutcome
_outcomes: TypeAdapter[list[AnyOutcome]] = TypeAdapter(
    list[Annotated[AnyOutcome, Field(discriminator="kind")]]
)


def parse_outcomes(rows: Iterable[object]) -> list[AnyOutcome]:
    """Outcomes from plain values.

    Raises:
        DataError: a row is none.
    """
    try:
        return _outcomes.validate_python(list(rows))
    except ValidationError as error:
        first, *_ = error.errors()
        place, message = ".".join(map(str, first["loc"])), first["msg"]
        raise DataError(f"expected outcomes of a suite, but {place}: {message}") from error


def load_outcome(path: Path) -> AnyOutcome:
    """The outcome in a file.

    Raises:
        RunError: it is none of this version.
    """
    try:
        (outcome,) = parse_outcomes([parse_json(path.read_text(encoding="utf-8"))])
    except (OSError, ValueError, DataError) as error:
        raise RunError(f"{path} is damaged or of another version: delete it") from error
    return outcome


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

    @classmethod
    def of(cls, outcome: TuneOutcome) -> TuningScore:
        """The score that a tuning job left."""
        return cls.model_validate(outcome, from_attributes=True)


class Tuning(_Record):
    """How the arms were tuned: the option chosen by arm and budget, and every config with its
    scores."""

    chosen: Chosen
    sweep: list[TuningScore] = []

    @classmethod
    def untuned(cls, arms: Iterable[str]) -> Tuning:
        """That of runs which exist: there was nothing to choose."""
        return cls(chosen={arm: {"1": 0} for arm in arms})

"""What a suite leaves, as typed records: its protocol, an outcome of every run, and its tuning.

These are the lines of ``outcomes.jsonl.gz`` and the other files of a paper pack, as
``experiments.jobs`` writes them. Keys that no analysis needs are ignored, so packs of other
versions can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from symbiont_ecology.errors import DataError


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class ArmRecord(_Record):
    """One side of a comparison."""

    about: str = ""
    sees: str = "verdicts"
    set: tuple[str, ...] = ()
    tune: tuple[tuple[str, ...], ...] = ((),)
    of: str | None = None
    """The arm whose runs it answers with, when only its routing is another."""
    routing: str = "learned"
    also: tuple[str, ...] = ()
    """Other routings, at the largest budget."""


class FlipRecord(_Record):
    """When half of the families change their convention and change back, in units of FLOPs."""

    at: float
    back: float
    extra: tuple[float, ...]


class ProtocolRecord(_Record):
    """What was compared. All of it is kept, also what is not named here."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    question: str
    unit_flops: float
    budgets: tuple[float, ...]
    seeds: tuple[int, ...]
    arms: dict[str, ArmRecord]
    main: str = "ecology"
    second: str | None = None
    shifts: tuple[str, ...] = ("in-distribution",)
    per_cell: int
    tie: float = 0.0
    elicitation: float = 0.85
    level: float
    flip: FlipRecord | None = None

    def runs_of(self, arm: str) -> str:
        """The arm whose runs an arm answers with: itself, unless only its routing is another."""
        return self.arms[arm].of or arm


class SystemRecord(_Record):
    """The answers of one run by one routing."""

    bits: dict[str, dict[str, str]]
    """Verdicts by shift and cell, as text of 0 and 1 in the order of the questions."""
    flops: dict[str, float] = {}
    """Useful FLOPs of all answers of a shift; a leg of a flip has none."""
    abstained: dict[str, int] = {}
    organelles: int = 0


class LifeRecord(_Record):
    """Counts of a run, and energy in mATP."""

    rollouts: float
    births: float
    merges: float
    deaths: float
    alive: float
    earned: float
    spent: float


class TrainingRecord(_Record):
    """Useful and executed training FLOPs of a run."""

    flops: float
    executed: float


class LegRecord(_Record):
    """What was measured at once: at the end of a run, or ``extra`` units of FLOPs after a flip."""

    phase: Literal["run", "before", "flipped", "back"] = "run"
    extra: float = 0.0
    train_flops: float = 0.0
    systems: dict[str, SystemRecord]


class _Outcome(_Record):
    arm: str
    seed: int
    protocol: str
    source: str
    budget: float = 0.0
    families: list[str] = []
    """Those that a flip changed."""


class HostOutcome(_Outcome):
    """What the bare host answered."""

    kind: Literal["host"]
    host: str
    versions: dict[str, str]
    systems: dict[str, SystemRecord] = {}

    @property
    def legs(self) -> list[LegRecord]:
        """The one measurement."""
        return [LegRecord(systems=self.systems)]


class RunOutcome(_Outcome):
    """What a run to its budget answered, did and spent."""

    kind: Literal["main"]
    option: int
    systems: dict[str, SystemRecord]
    life: LifeRecord
    train: TrainingRecord
    selection_flops: float
    solved: float = 0.0
    course: list[list[float]] = []
    """Per moment: training FLOPs so far, accuracy, revenue, cost, population."""

    @property
    def legs(self) -> list[LegRecord]:
        """The one measurement."""
        return [LegRecord(train_flops=self.train.flops, systems=self.systems)]


class FlipOutcome(_Outcome):
    """What a run through the flip answered at every leg."""

    kind: Literal["flip"]
    legs: list[LegRecord]


AnyOutcome = Annotated[HostOutcome | RunOutcome | FlipOutcome, Field(discriminator="kind")]
_OUTCOMES = TypeAdapter(tuple[AnyOutcome, ...])


class SweepRecord(_Record):
    """Selection accuracy of one tuning config with one seed."""

    arm: str
    option: int
    seed: int
    budget: float
    accuracy: float
    retention: float | None = None


class TuningRecord(_Record):
    """How the arms were tuned, and which config was chosen by arm and budget."""

    chosen: dict[str, dict[str, int]]
    sweep: list[SweepRecord]


def read_outcomes(rows: Iterable[Mapping[str, object]]) -> tuple[AnyOutcome, ...]:
    """Outcomes as records.

    Raises:
        DataError: a row is none.
    """
    try:
        return _OUTCOMES.validate_python(tuple(rows))
    except ValidationError as error:
        first, *_ = error.errors()
        place, message = ".".join(map(str, first["loc"])), first["msg"]
        raise DataError(f"expected outcomes of a suite, but {place}: {message}") from error

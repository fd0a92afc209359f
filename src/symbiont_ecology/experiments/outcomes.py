"""What a job leaves: one JSON object, from which every number of a pack is made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from symbiont_ecology.ecology import HOST, cell_name
from symbiont_ecology.economics import Cost
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.measure import Evaluation
from symbiont_ecology.evaluation.run_summary import RunSummary

OUTCOME_SCHEMA = 1
"""Raise it when a key goes or changes its meaning."""
JobKind = Literal["tune", "main", "flip", "host"]
_Schema = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class SystemAnswers(BaseModel):
    """The answers of one routing.

    ``bits`` are verdicts as text of 0 and 1, by shift and cell, in the order of the items.
    ``flops`` are useful FLOPs of answering by shift, ``abstained`` how many items the host
    answered, ``organelles`` how many others answered any.
    """

    model_config = _Schema

    bits: dict[str, dict[str, str]]
    flops: dict[str, int] | None = None
    abstained: dict[str, int] | None = None
    organelles: int | None = None

    @classmethod
    def verdicts_of(cls, evaluation: Evaluation) -> SystemAnswers:
        """The verdicts of an evaluation alone."""
        bits: dict[str, dict[str, str]] = {}
        for rollout in evaluation.rollouts:
            cells, cell = bits.setdefault(rollout.item.shift, {}), cell_name(rollout.item.cell)
            cells[cell] = cells.get(cell, "") + ("1" if rollout.verdict else "0")
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


class FlipLeg(BaseModel):
    """A measurement on the way through a convention flip, after ``extra`` units of FLOPs."""

    model_config = _Schema

    phase: str
    extra: float
    train_flops: int
    systems: dict[str, SystemAnswers]


class JobOutcome(BaseModel):
    """What a job left; which fields are set depends on its kind.

    A *tune* job has ``accuracy`` (and ``retention``) on selection items. A *main* job has what the
    run answered (``systems``), did (``life``, ``course``, ``solved``) and spent (``train``,
    ``selection_flops``). A *flip* job has ``families`` and ``legs``. The *host* job has
    ``systems``, the fingerprint ``host`` and ``versions``.
    """

    model_config = _Schema

    schema_: int = Field(OUTCOME_SCHEMA, alias="schema")
    protocol: str
    source: str
    kind: JobKind
    arm: str
    seed: int
    budget: float
    option: int = 0
    accuracy: float | None = None
    retention: float | None = None
    systems: dict[str, SystemAnswers] | None = None
    life: RunSummary | None = None
    course: list[tuple[float, float, float, float, float]] | None = None
    solved: float | None = None
    train: Cost | None = None
    selection_flops: int | None = None
    families: list[str] | None = None
    legs: list[FlipLeg] | None = None
    host: str | None = None
    versions: dict[str, str] | None = None

    def to_json(self) -> str:
        """One line, without what is not set."""
        return self.model_dump_json(exclude_none=True, by_alias=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> JobOutcome:
        """The outcome in a file.

        Raises:
            RunError: it is none of this version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise RunError(f"{path} is damaged or of another version: delete it") from error


def as_rows(outcomes: Iterable[JobOutcome]) -> list[dict[str, Any]]:
    """Outcomes in the order of keys that a pack keeps: the same bootstrap draws, so the same
    numbers."""
    rows = (
        outcome.model_dump(mode="json", exclude_none=True, by_alias=True) for outcome in outcomes
    )
    return [json.loads(json.dumps(row, sort_keys=True)) for row in rows]

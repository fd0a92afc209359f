"""Specification of an evaluation: all that decides it beside the run, as a value and a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.files import content_hash
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.items import read_items, some_of
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun, evaluate_adapter
from symbiont_ecology.evaluate.routings import Routing, mapped, routings
from symbiont_ecology.run.runtime import Host

FILES = ("holdout", "selection", "routing_map", "adapter")
"""Fields that name a file or a folder."""


class EvaluationSpec(BaseModel):
    """All that decides an evaluation beside the run: what is asked, by whom, who is a candidate.

    Items come from a file (``holdout``, of which ``most_asked`` are used), or are drawn:
    ``per_cell`` of each cell of all ``shifts``. ``selection`` is a file of items that judge the
    candidates, ``most`` how many of them are used.
    ``adapter`` is a PEFT folder that answers everything, instead of the run's own candidates.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    holdout: str | None = None
    most_asked: int | None = None
    shifts: tuple[str, ...] = ("in-distribution",)
    per_cell: int = 20
    seed: int = 0
    selection: str | None = None
    most: int | None = None
    routing: str = "learned"
    routing_map: str | None = None
    adapter: str | None = None

    def varied(self, **changes: Any) -> EvaluationSpec:
        """Return the same specification with other fields."""
        return self.model_copy(update=changes)

    def items(self, run: LoadedRun) -> list[Item]:
        """Return what is asked.

        Raises:
            DataError: the file cannot be used.
            ConfigError: no such shift, or nothing in it that this run could be asked.
        """
        if self.holdout is not None:
            return run.as_asked(some_of(read_items(Path(self.holdout)), self.most_asked))
        if items := run.items(self.per_cell, self.shifts, self.seed):
            return items
        raise ConfigError(
            "expected a shift with questions for this run's tasks, got "
            f"{', '.join(self.shifts)}, which have none: choose others"
        )

    def selection_items(self, run: LoadedRun) -> list[Item]:
        """Return what candidates are judged by; nothing, if practice does."""
        if self.selection is None:
            return []
        return some_of(run.as_asked(read_items(Path(self.selection))), self.most)

    def find_routing(self, run: LoadedRun) -> Routing:
        """Return the routing that decides who answers.

        Raises:
            ConfigError: no such routing.
            DataError: the map cannot be used.
        """
        if self.routing_map is None:
            return routings.build(self.routing)
        return mapped(Path(self.routing_map), list(run.pool.weights))

    @property
    def name(self) -> str:
        """Name of the answers."""
        if self.adapter is not None:
            return "adapter"
        return self.routing if self.routing_map is None else "map"

    def evaluate(
        self, run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
    ) -> Evaluation:
        """Return the answers.

        Raises:
            AdapterError: an adapter cannot be used with this host.
            HostError: the host is not the one that the run was founded with.
        """
        if self.adapter is None:
            routing = self.name, self.find_routing(run)
            return run.evaluate(items, host, routing, progress=progress)
        evaluation = evaluate_adapter(
            Path(self.adapter), items, host, cache=run.cache, progress=progress, stops=run.stops
        )
        return replace(evaluation, generation=run.pool.state.generation)


class EvaluationRecord(EvaluationSpec):
    """A specification as the log keeps it, with the hash of every file."""

    sha256: dict[str, str] = {}

    @classmethod
    def of(cls, spec: EvaluationSpec) -> EvaluationRecord:
        """Return the record of a specification."""
        files = (getattr(spec, name) for name in FILES)
        hashes = {file: content_hash(find_data(Path(file))) for file in files if file is not None}
        return cls(**spec.model_dump(), sha256=hashes)

    def with_kept_files(self, folder: Path) -> EvaluationSpec:
        """Return the specification with the files that a folder keeps under their hashes.

        Raises:
            DataError: a file was not kept, and is not what it was.
        """
        fields = self.model_dump(exclude={"sha256"})
        for name in FILES:
            if (file := fields[name]) is not None:
                copy = folder / self.sha256[file]
                fields[name] = str(copy) if copy.exists() else file
                if content_hash(find_data(Path(fields[name]))) != self.sha256[file]:
                    raise DataError(f"{file} is not the file that was asked: bring it back")
        return EvaluationSpec(**fields)

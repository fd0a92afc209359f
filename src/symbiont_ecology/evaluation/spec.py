"""What was asked of a run: all that decides an evaluation beside the run, as a value and as a
record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from symbiont_ecology.config import find_data
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import ConfigError, DataError
from symbiont_ecology.evaluation.answers import Progress, no_progress
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun, evaluate_adapter
from symbiont_ecology.evaluation.questions import Question, read_questions, some_of
from symbiont_ecology.files import content_hash
from symbiont_ecology.inference.routings import Routing, find_routing, mapped


@dataclass(frozen=True)
class EvaluationSpec:
    """All that decides an evaluation beside the run: what is asked, what judges candidates, who
    answers.

    Questions come from a file (``holdout``), or are drawn: ``per_cell`` of each cell of all
    ``shifts``.
    """

    holdout: str | None = None
    shifts: tuple[str, ...] = ("in-distribution",)
    per_cell: int = 20
    seed: int = 0
    selection: str | None = None
    most: int | None = None
    """Selection questions that are used, of those in the file."""
    routing: str = "learned"
    routing_map: str | None = None
    adapter: str | None = None
    """A PEFT folder that answers everything, instead of the run's own candidates."""

    def questions(self, candidates: LoadedRun) -> list[Question]:
        """What is asked.

        Raises:
            DataError: the file cannot be used.
            ConfigError: no such shift, or nothing in it that this run could be asked.
        """
        if self.holdout is not None:
            return [candidates.asked(one) for one in read_questions(Path(self.holdout))]
        if drawn := candidates.questions(self.per_cell, self.shifts, self.seed):
            return drawn
        raise ConfigError(
            f"expected a shift with questions for this run's tasks, got {', '.join(self.shifts)}, which have "
            "none: choose others"
        )

    def selected(self, candidates: LoadedRun) -> list[Question]:
        """What candidates are judged by; nothing, if practice does."""
        if self.selection is None:
            return []
        return some_of(
            [candidates.asked(one) for one in read_questions(Path(self.selection))], self.most
        )

    def way(self, candidates: LoadedRun) -> Routing:
        """Who answers.

        Raises:
            ConfigError: no such routing.
            DataError: the map cannot be used.
        """
        if self.routing_map is None:
            return find_routing(self.routing)
        return mapped(Path(self.routing_map), list(candidates.portfolio.weights))

    @property
    def name(self) -> str:
        """What the answers are called by."""
        if self.adapter is not None:
            return "adapter"
        return self.routing if self.routing_map is None else "map"

    def answered(
        self,
        candidates: LoadedRun,
        questions: Sequence[Question],
        host: Host,
        watch: Progress = no_progress,
        *,
        is_fresh: bool = False,
    ) -> Evaluation:
        """The answers; ``is_fresh`` asks everything anew, whatever the run's book knows.

        Raises:
            AdapterError: an adapter cannot be used with this host.
            HostError: the host is not the one that the run was founded with.
        """
        if self.adapter is None:
            way = self.way(candidates)
            return candidates.evaluate(
                questions, host, self.name, way=way, watch=watch, is_fresh=is_fresh
            )
        book = None if is_fresh else candidates.book
        found = evaluate_adapter(Path(self.adapter), questions, host, book=book, watch=watch)
        return replace(found, generation=candidates.portfolio.state.generation)

    def files(self) -> dict[str, str]:
        """Every file that decides the answers, with its hash."""
        named = (self.holdout, self.selection, self.routing_map, self.adapter)
        return {file: content_hash(find_data(Path(file))) for file in named if file is not None}

    def record(self) -> dict[str, Any]:
        """Plain values for the log, with the hash of every file."""
        return {**asdict(self), "sha256": self.files()}

    @classmethod
    def of_record(cls, record: Mapping[str, Any], kept: Path) -> EvaluationSpec:
        """What ``record`` wrote, with the files that were ``kept`` in a folder under their hashes.

        Raises:
            DataError: a file was not kept, and is not what it was.
        """
        values = {**record, "shifts": tuple(record["shifts"])}
        digests = values.pop("sha256")
        for key in ("holdout", "selection", "routing_map", "adapter"):
            if (file := values[key]) is not None:
                copy = kept / digests[file]
                values[key] = file = str(copy) if copy.exists() else file
                if content_hash(find_data(Path(file))) != digests[record[key]]:
                    raise DataError(f"{file} is not the file that was asked: bring it back")
        return cls(**values)

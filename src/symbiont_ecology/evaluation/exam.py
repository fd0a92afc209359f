"""An exam: the same questions to the host, to SFT, to the best single organelle and to the routed portfolio.

What is chosen from practice costs nothing beyond training. What is chosen on selection questions costs their
answers, which are counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from symbiont_ecology.config import find_data
from symbiont_ecology.engine.world import Host
from symbiont_ecology.errors import DataError
from symbiont_ecology.evaluation.answers import Watch, quietly
from symbiont_ecology.evaluation.measure import (
    EVALUATIONS_FILE,
    Candidates,
    Evaluation,
    difference,
    evaluate_adapter,
    interval_values,
)
from symbiont_ecology.evaluation.questions import Question, read_questions, some_of
from symbiont_ecology.evaluation.robustness import robustness
from symbiont_ecology.evaluation.routings import Routing, find_routing, mapped
from symbiont_ecology.statistics import mcnemar

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection questions."""


@dataclass(frozen=True)
class Asked:
    """All that decides an evaluation beside the run: what is asked, what judges candidates, who answers.

    Questions come from a file (``holdout``), or are drawn: ``per_cell`` of each cell of all ``shifts``.
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

    def questions(self, candidates: Candidates) -> list[Question]:
        """What is asked.

        Raises:
            DataError: the file cannot be used.
            ConfigError: no such shift.
        """
        if self.holdout is None:
            return candidates.questions(self.per_cell, self.shifts, self.seed)
        return [candidates.asked(one) for one in read_questions(Path(self.holdout))]

    def selected(self, candidates: Candidates) -> list[Question]:
        """What candidates are judged by; nothing, if practice does."""
        if self.selection is None:
            return []
        return some_of([candidates.asked(one) for one in read_questions(Path(self.selection))], self.most)

    def way(self, candidates: Candidates) -> Routing:
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
        return self.routing if self.routing_map is None else "map"

    def record(self) -> dict[str, Any]:
        """Plain values for the log, with the hash of every file."""
        files = [file for file in (self.holdout, self.selection, self.routing_map) if file is not None]
        return {**asdict(self), "sha256": {file: _hash(file) for file in files}}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Asked:
        """What ``record`` wrote.

        Raises:
            DataError: a file is not what it was.
        """
        for file, digest in record["sha256"].items():
            if _hash(file) != digest:
                raise DataError(f"{file} is not the file that was asked: bring it back")
        values = {key: value for key, value in record.items() if key != "sha256"}
        return cls(**{**values, "shifts": tuple(values["shifts"])})


@dataclass(frozen=True)
class Exam:
    """Evaluations by the name of what was asked; ``main`` is the one that was asked for."""

    systems: Mapping[str, Evaluation]
    main: str
    train_flops: int

    def summary(self) -> dict[str, Any]:
        """All systems, how the main one differs from each, and what its training must answer to pay off."""
        main = self.systems[self.main]
        return {
            "systems": {name: one.summary() for name, one in self.systems.items()},
            "differences": {
                name: _difference(main, one) for name, one in self.systems.items() if name != self.main
            },
            "robustness": robustness(main.answers),
            "train_flops": self.train_flops,
            "break_even_solved": self.break_even(),
        }

    def break_even(self) -> float | None:
        """Solved questions after which training has paid off in FLOPs against the host; None is never."""
        costs = [self.systems[name].summary()["flops_per_solved"] for name in ("host", self.main)]
        saved = costs[0] - costs[1]
        return self.train_flops / saved if saved > 0 else None


def sit(
    candidates: Candidates,
    asked: Asked,
    questions: Sequence[Question],
    host: Host,
    *,
    selection: Sequence[Question] = (),
    sft: Path | None = None,
    watch: Watch = quietly,
) -> Exam:
    """The exam of a run; ``selection`` questions judge its candidates anew, beside practice."""
    way, main = asked.way(candidates), asked.name
    systems = {name: candidates.evaluate(questions, host, name, watch=watch) for name in ("host", "single")}
    if sft is not None:
        systems["sft"] = evaluate_adapter(sft, questions, host)
    systems[main] = candidates.evaluate(questions, host, main, way=way, watch=watch)
    if selection:
        chosen = candidates.reselected(selection, host, watch)
        systems["single" + RESELECTED] = chosen.evaluate(questions, host, "single", watch=watch)
        systems[main + RESELECTED] = chosen.evaluate(questions, host, main, way=way, watch=watch)
        main += RESELECTED
    return Exam(systems, main, candidates.portfolio.state.budget.train.flops)


@dataclass(frozen=True)
class Again:
    """An evaluation that was made again from its run's folder: what was right then, and is now."""

    line: int
    generation: int
    asked: Asked
    then: float
    now: float
    is_same: bool
    """Whether the questions and every single verdict are what they were."""


def again(folder: Path, host: Host) -> Iterator[Again]:
    """Makes every evaluation in a run's log again, without what its book of answers knows.

    Raises:
        RunError: a state that was evaluated is gone.
        DataError: a file that was asked is not what it was.
    """
    try:
        lines = (folder / EVALUATIONS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # what a crash tore
        asked = Asked.of_record(record["asked"])
        candidates = Candidates.of_run(folder, record["generation"])
        selection = asked.selected(candidates)
        if selection:
            candidates = candidates.reselected(selection, host, is_fresh=True)
        found = candidates.evaluate(
            asked.questions(candidates), host, asked.name, way=asked.way(candidates), is_fresh=True
        )
        summary = found.summary()
        is_same = all(summary[key] == record[key] for key in ("questions_digest", "verdicts_digest"))
        then, now = record["accuracy"]["estimate"], summary["accuracy"]["estimate"]
        yield Again(number, record["generation"], asked, then, now, is_same)


def _hash(file: str) -> str:
    """Of a file's content; empty where there is none."""
    path = find_data(Path(file))
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _difference(main: Evaluation, other: Evaluation) -> dict[str, Any]:
    """On the same questions: bootstrap interval, and McNemar's exact test."""
    pairs = list(zip(main.verdicts, other.verdicts, strict=True))
    wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return {**interval_values(difference(main, other)), "mcnemar_p": mcnemar(wins, losses)}

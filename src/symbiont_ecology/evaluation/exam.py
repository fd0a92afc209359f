"""An exam: the same questions to the host, to SFT, to the best single organelle and to the routed portfolio.

What is chosen from practice costs nothing beyond training. What is chosen on selection questions costs their
answers, which are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import MOMENTS
from symbiont_ecology.engine.world import Host
from symbiont_ecology.errors import ConfigError, DataError, EcologyError
from symbiont_ecology.evaluation import journal
from symbiont_ecology.evaluation.answers import Watch, quietly
from symbiont_ecology.evaluation.journal import content_hash
from symbiont_ecology.evaluation.measure import (
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
from symbiont_ecology.weights.peft_files import stated_rank

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
    adapter: str | None = None
    """A PEFT folder that answers everything, instead of the run's own candidates."""

    def questions(self, candidates: Candidates) -> list[Question]:
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
        if self.adapter is not None:
            return "adapter"
        return self.routing if self.routing_map is None else "map"

    def answered(
        self,
        candidates: Candidates,
        questions: Sequence[Question],
        host: Host,
        watch: Watch = quietly,
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
            return candidates.evaluate(questions, host, self.name, way=way, watch=watch, is_fresh=is_fresh)
        book = None if is_fresh else candidates.book
        found = evaluate_adapter(Path(self.adapter), questions, host, book=book, watch=watch)
        return replace(found, generation=candidates.portfolio.state.generation)

    def files(self) -> dict[str, str]:
        """Every file that decides the answers, with its hash."""
        named = (self.holdout, self.selection, self.routing_map, self.adapter)
        return {file: content_hash(file) for file in named if file is not None}

    def record(self) -> dict[str, Any]:
        """Plain values for the log, with the hash of every file."""
        return {**asdict(self), "sha256": self.files()}

    @classmethod
    def of_record(cls, record: Mapping[str, Any], folder: Path) -> Asked:
        """What ``record`` wrote, with the files that the run in the folder kept.

        Raises:
            DataError: a file was not kept, and is not what it was.
        """
        values = {"adapter": None, **record, "shifts": tuple(record["shifts"])}
        digests = values.pop("sha256")
        for key in ("holdout", "selection", "routing_map", "adapter"):
            if (file := values[key]) is not None:
                kept = folder / MOMENTS / digests[file]
                values[key] = file = str(kept) if kept.exists() else file
                if content_hash(file) != digests[record[key]]:
                    raise DataError(f"{file} is not the file that was asked: bring it back")
        return cls(**values)


def note(evaluation: Evaluation, candidates: Candidates, asked: Asked) -> None:
    """Adds an evaluation to the run's log, and keeps what it takes to make it again: state and files.

    Nothing else of the run changes.

    Raises:
        RunError: it cannot be written.
    """
    checkpoint.keep(candidates.portfolio.state, candidates.folder)
    record = {**evaluation.summary(), "asked": asked.record()}
    journal.append(candidates.folder, record, asked.files())


@dataclass(frozen=True)
class Exam:
    """Evaluations by the name of what was asked; ``main`` is the one that was asked for."""

    systems: Mapping[str, Evaluation]
    asked: Mapping[str, Asked]
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
        """Right answers after which training and selection have paid off against the host; None is never."""
        costs = [self.systems[name].summary()["flops_per_solved"] for name in ("host", self.main)]
        saved, spent = costs[0] - costs[1], self.train_flops + self.systems[self.main].selection.flops
        return spent / saved if saved > 0 else None


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
    main, practised = asked.name, replace(asked, selection=None, most=None)
    alone = replace(practised, routing="single", routing_map=None)
    wanted = {"host": replace(alone, routing="host"), "single": alone}
    if sft is not None:
        wanted["sft"] = replace(alone, adapter=str(sft))
    wanted[main] = practised
    systems = {name: one.answered(candidates, questions, host, watch) for name, one in wanted.items()}
    if selection:
        one = replace(alone, selection=asked.selection, most=asked.most)
        anew = {"single" + RESELECTED: one, main + RESELECTED: asked}
        chosen = candidates.reselected(selection, host, watch)
        systems |= {name: one.answered(chosen, questions, host, watch) for name, one in anew.items()}
        wanted, main = wanted | anew, main + RESELECTED
    return Exam(systems, wanted, main, candidates.portfolio.state.budget.train.flops)


@dataclass(frozen=True)
class Again:
    """An evaluation that was made again from its run's folder: what was right then, and is now."""

    line: int
    generation: int
    name: str
    then: float
    now: float = 0.0
    is_same: bool = False
    """Whether the questions and every single verdict are what they were."""
    problem: str = ""
    """Why it could not be made again."""


def widest_rank(folder: Path) -> int:
    """Of the adapters that were asked beside a run's own candidates; 0 where there are none."""
    kept = (
        folder / MOMENTS / record["asked"]["sha256"][adapter]
        for _, record in journal.lines(folder)
        if (adapter := record["asked"].get("adapter")) is not None
    )
    return max((stated_rank(path) for path in kept if path.exists()), default=0)


def again(folder: Path, host: Host) -> Iterator[Again]:
    """Makes every evaluation in a run's log again, without what its book of answers knows."""
    for number, record in journal.lines(folder):
        then, generation = record["accuracy"]["estimate"], record["generation"]
        try:
            asked = Asked.of_record(record["asked"], folder)
            candidates = Candidates.of_run(folder, generation)
            if selection := asked.selected(candidates):
                candidates = candidates.reselected(selection, host, is_fresh=True)
            found = asked.answered(candidates, asked.questions(candidates), host, is_fresh=True).summary()
        except EcologyError as error:
            yield Again(number, generation, record["routing"], then, problem=str(error))
            continue
        is_same = all(found[key] == record[key] for key in ("questions_digest", "verdicts_digest"))
        yield Again(number, generation, asked.name, then, found["accuracy"]["estimate"], is_same)


def _difference(main: Evaluation, other: Evaluation) -> dict[str, Any]:
    """On the same questions: bootstrap interval, and McNemar's exact test."""
    pairs = list(zip(main.verdicts, other.verdicts, strict=True))
    wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return {**interval_values(difference(main, other)), "mcnemar_p": mcnemar(wins, losses)}

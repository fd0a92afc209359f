"""Measuring a run or a PEFT adapter on questions: accuracies with intervals, costs, and who
answered what."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.budget import budget_phase, milestones
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.run import check_host, read_config
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.answer_cache import AnswerCache
from symbiont_ecology.evaluation.answers import Answer, Examiner, Progress, no_progress
from symbiont_ecology.evaluation.questions import Question, families_of
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.inference.pool import AdapterPool
from symbiont_ecology.inference.routings import Routing, find_routing
from symbiont_ecology.rng import Draw
from symbiont_ecology.statistics import Interval, mcnemar, share_difference, wilson
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.weights.peft_files import read_peft

ANSWERS_FILE = "answers.sqlite"
NO_COST = Cost()
EVALUATION_SCHEMA = 1
"""Of the JSON that an evaluation leaves; raise it when a key goes or changes its meaning."""


@dataclass(frozen=True)
class Evaluation:
    """Graded answers of one system to a list of questions."""

    source: str
    """The run or adapter folder."""
    routing: str
    host: str
    """Fingerprint of the host."""
    answers: tuple[Answer, ...]
    generation: int | None = None
    judged_by: str = "practice"
    """Where the records of the candidates come from: the run's own practice, or selection
    questions."""
    selection: Cost = NO_COST
    """What it took to judge the candidates anew; practice is part of training."""

    @property
    def verdicts(self) -> list[float]:
        """1.0 or 0.0 per question."""
        return [one.verdict for one in self.answers]

    @property
    def flops(self) -> int:
        """Useful FLOPs of all answers."""
        return sum(one.flops for one in self.answers)

    def accuracy(self) -> Interval:
        """Share of right answers with its 95 % Wilson interval, for which what is asked counts
        once."""
        return _share(self.answers)

    def by_family(self) -> dict[str, Interval]:
        """The same for every family that occurs."""
        families = families_of([one.question for one in self.answers])
        return {
            family: _share([one for one in self.answers if one.question.family == family])
            for family in families
        }

    def summary(self) -> dict[str, Any]:
        """Everything but the single answers, as plain values under stable keys."""
        counts = Counter(one.question.family for one in self.answers)
        return {
            "schema": EVALUATION_SCHEMA,
            "source": self.source,
            "generation": self.generation,
            "routing": self.routing,
            "host": self.host,
            "questions": len(self.answers),
            "questions_digest": _digest([one.question for one in self.answers]),
            "verdicts_digest": hashlib.blake2b(
                bytes(map(int, self.verdicts)), digest_size=8
            ).hexdigest(),
            "accuracy": interval_values(self.accuracy()),
            "families": {
                family: {"questions": counts[family], **interval_values(share)}
                for family, share in self.by_family().items()
            },
            "shifts": {
                shift: interval_values(
                    _share([one for one in self.answers if one.question.shift == shift])
                )
                for shift in dict.fromkeys(one.question.shift for one in self.answers)
                if shift
            },
            "flops": self.flops,
            "flops_per_solved": self.flops / max(sum(self.verdicts), 1.0),
            "judged_by": self.judged_by,
            "selection_flops": self.selection.flops,
            "selection_tokens": self.selection.tokens,
            "choices": dict(sorted(Counter(one.organelle_id for one in self.answers).items())),
        }

    def record(self) -> dict[str, Any]:
        """The summary and, under ``items``, every answer."""
        items = [
            {
                "id": one.question.id,
                "family": one.question.family,
                "depth": one.question.depth,
                "shift": one.question.shift,
                "who": one.organelle_id,
                "reply": one.reply,
                "target": one.question.target,
                "right": bool(one.verdict),
                "flops": one.flops,
            }
            for one in self.answers
        ]
        return {**self.summary(), "items": items}


@dataclass(frozen=True)
class LoadedRun:
    """A run at its last checkpoint, ready to answer; made before a host is loaded.

    ``selection`` is what it took to judge the candidates beyond training, ``book`` where answers
    are kept.
    """

    folder: Path
    config: RunConfig
    portfolio: AdapterPool
    book: Path
    selection: Cost = NO_COST

    @classmethod
    def of_run(
        cls,
        folder: Path,
        generation: int | None = None,
        *,
        is_kept: bool = False,
        book: Path | None = None,
    ) -> LoadedRun:
        """Reads a run back as it stands, or as it was when it was evaluated in an earlier
        generation.

        A run that goes on meanwhile leaves alone what this moment needs if ``is_kept``. Answers are
        kept in the run's own book unless another is given.

        Raises:
            RunError: no run there, no checkpoint yet, damaged files, or a generation that was not
            kept.
        """
        config = read_config(folder)
        state = (
            checkpoint.load_and_keep_state(folder)
            if is_kept
            else checkpoint.load_state(folder, generation)
        )
        return cls(
            folder, config, AdapterPool.of_run(folder, state, config), book or folder / ANSWERS_FILE
        )

    def questions(
        self, per_cell: int, shifts: Sequence[str] = ("in-distribution",), seed: int = 0
    ) -> list[Question]:
        """Holdout questions of the run's own task mix."""
        return draw_shifts(self.tasks, tuple(dict.fromkeys(shifts)), per_cell, seed)

    @property
    def tasks(self) -> TaskMixture:
        """The run's task mix in the conventions that are in force where it stands."""
        reached, _ = budget_phase(self.portfolio.state, milestones(self.config))
        return mixture(self.config).at(reached)

    def asked(self, question: Question) -> Question:
        """A question from a file, with the line end that the run's own prompts have."""
        return replace(question, prompt=self.finished(question.prompt))

    def finished(self, text: str) -> str:
        """A prompt as someone typed it, with the line end that the run's own prompts have."""
        tasks = self.tasks
        (item,) = tasks.draw(tasks.cells[0], 1, Draw(0)("prompt"))
        return text if text.endswith("\n") or not tasks.prompt(item).endswith("\n") else f"{text}\n"

    def reselected(
        self,
        questions: Sequence[Question],
        host: Host,
        watch: Progress = no_progress,
        *,
        is_fresh: bool = False,
    ) -> LoadedRun:
        """The same run with every elite, and the host, judged anew on selection questions."""
        everyone = (HOST, *self.portfolio.elites)
        answers = self._examiner(host, watch, is_fresh).ask(
            [one for one in questions for _ in everyone],
            [organelle_id for _ in questions for organelle_id in everyone],
        )
        spent = sum((one.cost for one in answers), self.selection)
        return replace(self, portfolio=self.portfolio.reselected(answers), selection=spent)

    def evaluate(
        self,
        questions: Sequence[Question],
        host: Host,
        routing: str = "learned",
        *,
        way: Routing | None = None,
        watch: Progress = no_progress,
        is_fresh: bool = False,
    ) -> Evaluation:
        """Answers by a routing of ``inference.routings``, or by another ``way`` under that name.

        ``is_fresh`` asks everything anew, whatever the run's book of answers knows.

        Raises:
            HostError: the host is not the one that the run was founded with.
        """
        portfolio, examiner = self.portfolio, self._examiner(host, watch, is_fresh)
        answers = (way or find_routing(routing))(portfolio, questions, examiner.ask)
        return Evaluation(
            str(self.folder),
            routing,
            examiner.fingerprint,
            tuple(answers),
            portfolio.state.generation,
            portfolio.source,
            self.selection,
        )

    def _examiner(self, host: Host, watch: Progress, is_fresh: bool) -> Examiner:
        fingerprint = check_host(self.folder, host)
        book = None if is_fresh else AnswerCache(self.book)
        return Examiner(host, self.portfolio.weights, book, fingerprint, watch)


def evaluate_adapter(
    folder: Path,
    questions: Sequence[Question],
    host: Host,
    *,
    is_bare: bool = False,
    book: Path | None = None,
    watch: Progress = no_progress,
) -> Evaluation:
    """Puts all questions to one PEFT adapter, or to its host without it. Answers are kept in a
    ``book``.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    organelle_id, fingerprint = HOST if is_bare else "adapter", host.fingerprint()
    examiner = Examiner(
        host,
        {"adapter": read_peft(folder, host.layout)},
        None if book is None else AnswerCache(book),
        fingerprint,
        watch,
    )
    answers = examiner.ask(questions, [organelle_id] * len(questions))
    return Evaluation(str(folder), organelle_id, fingerprint, tuple(answers))


def difference(better: Evaluation, worse: Evaluation) -> dict[str, float]:
    """Accuracy of one minus that of the other on the same questions: 95 % interval, McNemar's exact
    test.

    What is asked counts once, in however many ways it was put.

    Raises:
        ValueError: they did not answer the same questions.
    """
    if [one.question.id for one in better.answers] != [one.question.id for one in worse.answers]:
        raise ValueError("expected two evaluations of the same questions in the same order")
    gaps = [left - right for left, right in zip(better.verdicts, worse.verdicts, strict=True)]
    apart = defaultdict[str, float](float)
    for one, gap in zip(better.answers, gaps, strict=True):
        apart[one.question.asked] += gap
    part = len(apart) / max(len(gaps), 1)
    interval = share_difference(part * gaps.count(1.0), part * gaps.count(-1.0), len(apart))
    wins, losses = sum(gap > 0 for gap in apart.values()), sum(gap < 0 for gap in apart.values())
    return {**interval_values(interval), "mcnemar_p": mcnemar(wins, losses)}


def interval_values(interval: Interval) -> dict[str, float]:
    """An interval as plain values."""
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _share(answers: Sequence[Answer]) -> Interval:
    right, asked = sum(one.verdict for one in answers), len({one.question.asked for one in answers})
    return wilson(right * asked / max(len(answers), 1), asked)


def _digest(questions: Sequence[Question]) -> str:
    """Equal for equal questions, so that two evaluations can be compared or not."""
    text = "\n".join(f"{one.prompt}\t{one.target}" for one in questions)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

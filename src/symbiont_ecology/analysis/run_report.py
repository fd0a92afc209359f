"""The report of one run: the figures that a paper needs, what happened, what looks wrong, and an
audit of trials and merges. Made twice from one log it is the same, byte for byte.

Every figure has a query on ``Run.open(folder).events`` beside it, so it can be made again by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.analysis.page import render
from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import HOST
from symbiont_ecology.engine.health import Health, HealthFinding
from symbiont_ecology.engine.living import EVENTS_FILE
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.evaluation_log import LoggedEvaluation, logged
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Event
from symbiont_ecology.history.chronicle import News
from symbiont_ecology.history.history import History, Trial
from symbiont_ecology.history.world import kinds_of, world_news
from symbiont_ecology.registry import kind_of
from symbiont_ecology.statistics import Interval, wilson
from symbiont_ecology.types import OrganelleId, cell_family

LATE_PART = 0.75
"""The part of a run behind which it is late."""
MOST_NEWS_TOLD, MOST_TRIALS = 40, 200
TOLD_KINDS = ("change", "milestone", "merge", "fault")
"""News that a report tells; births, deaths, trials and moves are counted or have a table."""
PRACTICE = 'e.Acted[(e.Acted.purpose == "practice") & (e.Acted.id != "host")]'
ENDS = "e.GenerationEnded"


@dataclass(frozen=True)
class TracedNumber:
    """A figure, and the expression that makes it from the event tables ``e``."""

    name: str
    value: float
    query: str
    form: str = ",.0f"

    @property
    def text(self) -> str:
        """The figure as the report shows it."""
        return format(self.value, self.form)


@dataclass(frozen=True)
class ServedUsers:
    """Whom an organelle serves at the end, and how many answers they accepted lately."""

    id: OrganelleId
    users: tuple[str, ...]


@dataclass(frozen=True)
class RunReport:
    """Everything that the page of a report says; ``place`` is the run's folder as it was named."""

    name: str
    place: str
    config: RunConfig
    history: History
    findings: Sequence[HealthFinding]
    evaluations: Sequence[LoggedEvaluation]

    @classmethod
    def of(cls, folder: Path) -> RunReport:
        """The report of the run in a folder.

        Raises:
            RunError: no run there, no generation of it is over, or its log is damaged.
        """
        config = read_config(folder, runs_plugins=False)
        events = list(read_events(folder / EVENTS_FILE))
        history = History.of(config, events)
        if not history.ends:
            raise RunError(f"{folder}: no generation is over yet, so there is nothing to report")
        findings = list(Health.of(_whole(events, history)).findings())
        evaluations = [line for _, line in logged(folder)]
        return cls(folder.resolve().name, str(folder), config, history, findings, evaluations)

    def page(self) -> str:
        """The report as Markdown."""
        return render("run_report.md.j2", report=self)

    @property
    def strategy(self) -> str:
        """Its name."""
        return kind_of(self.config.strategy)

    @property
    def numbers(self) -> list[TracedNumber]:
        """The figures of the run, each with its query."""
        history, last = self.history, self.history.ends[-1]
        taxa, books = list(history.phylogeny.taxa.values()), history.books
        trials = list(history.trials.values())
        numbers = [
            TracedNumber("generations", history.generation, f"len({ENDS})"),
            TracedNumber("answers", self._answered().n, f"{PRACTICE}.verdicts.map(len).sum()"),
            TracedNumber(
                "right answers", self._answered().right, f"{PRACTICE}.verdicts.map(sum).sum()"
            ),
            TracedNumber("organelles ever", len(taxa), "len(e.Born)"),
            TracedNumber("alive at the end", last.population, f"{ENDS}.population.iloc[-1]"),
            TracedNumber(
                "children of one parent",
                sum(history.parents[taxon.id] == 1 for taxon in taxa),
                "(e.Born.parents.map(len) == 1).sum()",
            ),
            TracedNumber(
                "children of a merge",
                sum(history.parents[taxon.id] > 1 for taxon in taxa),
                "(e.Born.parents.map(len) > 1).sum()",
            ),
            *(
                TracedNumber(f"deaths: {cause}", count, f"(e.Retired.cause == {cause!r}).sum()")
                for cause, count in sorted(
                    Counter(t.cause for t in taxa if t.died is not None).items()
                )
                if re.fullmatch(r"[\w -]+", cause)  # a log that somebody sent may say anything
            ),
            TracedNumber("trials", len(trials), "len(e.Proposed)"),
            TracedNumber(
                "trials admitted",
                sum(trial.verdict == "admit" for trial in trials),
                '(e.Gated.verdict == "admit").sum()',
            ),
            TracedNumber("lessons", sum(history.lessons.values()), "e.Learned.lessons.sum()"),
            *(
                TracedNumber(
                    f"{label}, ATP",
                    sum(getattr(book, column) for book in books) / 1000,
                    f"e.Settled.{column}.sum() / 1000",
                    ",.1f",
                )
                for label, column in (
                    ("earned", "revenue"),
                    ("spent on compute", "cost"),
                    ("spent on rent", "rent"),
                    ("spent on tickets", "ticket"),
                )
            ),
            TracedNumber(
                "held at the end, ATP",
                last.energy_total / 1000,
                f"{ENDS}.energy_total.iloc[-1] / 1000",
                ",.1f",
            ),
            TracedNumber("training FLOPs", last.train_flops, f"{ENDS}.train_flops.iloc[-1]", ".4g"),
        ]
        if self.users:
            users = [
                TracedNumber("users", len(self.users), f"{PRACTICE}.habitat.nunique()"),
                TracedNumber(
                    "changes of a user's server told",
                    history.chronicle.server_changes,
                    "e.Served.servers.map(len).sum()",
                ),
            ]
            return [*numbers, *users]
        return numbers

    @property
    def right(self) -> Interval:
        """Share of right answers of the whole run (Wilson; answers count one by one)."""
        return self._answered().share

    @property
    def late(self) -> Interval:
        """The same of the last quarter."""
        return self._answered(int(LATE_PART * self.history.generation)).share

    @property
    def bare_host(self) -> Interval:
        """What the bare host had right at founding."""
        answers = self.history.host_answers
        right = sum(sum(answer.verdicts) for answer in answers)
        return wilson(right, sum(len(answer.verdicts) for answer in answers))

    @property
    def users(self) -> list[str]:
        """Everyone who asked."""
        return sorted({act.habitat for act in self.history.acts if act.habitat})

    @property
    def serving(self) -> list[ServedUsers]:
        """Who serves whom at the end, the busiest first."""
        alive = {taxon.id for taxon in self.history.phylogeny.taxa.values() if taxon.died is None}
        by_server: dict[OrganelleId, list[str]] = {}
        for user, server in {entry.habitat: entry.id for entry in self.history.servings}.items():
            if server in alive:
                by_server.setdefault(server, []).append(user)
        served = [ServedUsers(server, tuple(sorted(users))) for server, users in by_server.items()]
        return sorted(served, key=lambda entry: (-len(entry.users), entry.id))

    @property
    def families(self) -> list[tuple[str, Interval, int | None]]:
        """Of each family: its late share of right answers, and since when it is solved."""
        start = int(LATE_PART * self.history.generation)
        names = dict.fromkeys(cell_family(act.cell) for act in self.history.acts)
        solved = self.history.chronicle.solved
        return [(name, self._answered(start, name).share, solved.get(name)) for name in names]

    @property
    def trials(self) -> list[Trial]:
        """The last of all trials."""
        return list(self.history.trials.values())[-MOST_TRIALS:]

    @property
    def told(self) -> list[News]:
        """News that a reader should know, in their order: what the world did, and the first of
        all others, forty in all."""
        kinds = kinds_of(self.config, self.history.generation)
        news = world_news(self.config, kinds, self.history.ends)
        news += [entry for entry in self.history.chronicle.news if entry.kind in TOLD_KINDS]
        return sorted(news[:MOST_NEWS_TOLD], key=lambda entry: entry.generation)

    @property
    def merges(self) -> list[News]:
        """Births of several parents."""
        return [entry for entry in self.history.chronicle.news if entry.kind == "merge"]

    def _answered(self, start: int = 0, family: str = "") -> _Answered:
        acts = [
            act
            for act in self.history.acts
            if act.id != HOST
            and act.generation >= start
            and (not family or cell_family(act.cell) == family)
        ]
        return _Answered(sum(act.right for act in acts), sum(act.asked for act in acts))


@dataclass(frozen=True)
class _Answered:
    """Right answers among so many."""

    right: float
    n: int

    @property
    def share(self) -> Interval:
        """With its 95 % interval."""
        return wilson(self.right, self.n)


def _whole(events: Sequence[Event], history: History) -> Sequence[Event]:
    """The events of generations that are over."""
    return [event for event in events if event.generation < history.generation]

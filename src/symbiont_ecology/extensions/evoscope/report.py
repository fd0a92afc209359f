"""The report of one run: the figures that a paper needs, what happened, what looks wrong, and an
audit of trials and merges. Made twice from one log it is the same, byte for byte.

Every figure has a query on ``Run.open(folder).events`` beside it, so it can be made again by hand.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.statistics import Interval, wilson
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.evaluate.evaluation_log import LoggedEvaluation, logged
from symbiont_ecology.extensions.evoscope.history import LATE, History, Trial
from symbiont_ecology.extensions.evoscope.news import News
from symbiont_ecology.extensions.study.health import Health, HealthFinding
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import EVENTS_FILE

MAX_NEWS_TOLD, MAX_TRIALS = 40, 200
TOLD_KINDS = ("change", "milestone", "merge", "fault")
"""News that a report tells; births, deaths, trials and moves are counted or have a table."""
NO_VALUE = "–"
"""A cell without a value."""
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
class RunReport:
    """Everything that the page of a report says; ``place`` is the run's folder as it was named."""

    place: str
    history: History
    findings: Sequence[HealthFinding]
    evaluations: Sequence[LoggedEvaluation]

    @classmethod
    def of(cls, folder: Path) -> RunReport:
        """Return the report of the run in a folder.

        Raises:
            RunError: no run there, no generation of it is over, or its log is damaged.
        """
        history = History.of_run(folder)
        if not history.ends:
            raise RunError(f"{folder}: no generation is over yet, so there is nothing to report")
        return cls(str(folder), history, _findings(history), list(logged(folder)))

    def page(self) -> str:
        """Return the report as Markdown: lines of a paragraph are joined."""
        blocks = _TEMPLATES.get_template("report.md.j2").render(report=self).split("\n\n")
        parts = (_joined(block.strip()) for block in blocks)
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def config(self) -> RunConfig:
        """Config of the run."""
        return self.history.config

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return kind_of(self.config.strategy)

    @cached_property
    def numbers(self) -> list[TracedNumber]:
        """The figures of the run, each with its query."""
        return [*self._counts(), *self._energy(), *self._asking()]

    def _counts(self) -> Iterator[TracedNumber]:
        history, all_of_it = self.history, self.history.answered()
        taxa, trials = list(history.taxa.values()), list(history.trials.values())
        parents = [len(taxon.parents) for taxon in taxa]
        causes = Counter(taxon.cause for taxon in taxa if taxon.died is not None)
        admitted = sum(trial.verdict == "admit" for trial in trials)
        yield TracedNumber("generations", history.generation, f"len({ENDS})")
        yield TracedNumber("answers", all_of_it.asked, f"{PRACTICE}.verdicts.map(len).sum()")
        yield TracedNumber("right answers", all_of_it.right, f"{PRACTICE}.verdicts.map(sum).sum()")
        yield TracedNumber("organelles ever", len(taxa), "len(e.Born)")
        yield TracedNumber(
            "alive at the end", history.ends[-1].population, f"{ENDS}.population.iloc[-1]"
        )
        yield TracedNumber(
            "children of one parent", parents.count(1), "(e.Born.parents.map(len) == 1).sum()"
        )
        merged = sum(count > 1 for count in parents)
        yield TracedNumber("children of a merge", merged, "(e.Born.parents.map(len) > 1).sum()")
        for cause, count in sorted(causes.items()):
            if re.fullmatch(r"[\w -]+", cause):  # a log that somebody sent may say anything
                yield TracedNumber(
                    f"deaths: {cause}", count, f"(e.Retired.cause == {cause!r}).sum()"
                )
        yield TracedNumber("trials", len(trials), "len(e.Proposed)")
        yield TracedNumber("trials admitted", admitted, '(e.Gated.verdict == "admit").sum()')
        yield TracedNumber("lessons", sum(history.lessons.values()), "e.Learned.lessons.sum()")

    def _energy(self) -> Iterator[TracedNumber]:
        last = self.history.ends[-1]
        for label, column in (
            ("earned", "revenue"),
            ("spent on compute", "cost"),
            ("spent on rent", "rent"),
            ("spent on tickets", "ticket"),
        ):
            amount = sum(getattr(book, column) for book in self.history.books) / 1000
            yield TracedNumber(f"{label}, ATP", amount, f"e.Settled.{column}.sum() / 1000", ",.1f")
        held = f"{ENDS}.energy_total.iloc[-1] / 1000"
        yield TracedNumber("held at the end, ATP", last.energy_total / 1000, held, ",.1f")
        yield TracedNumber(
            "training FLOPs", last.train_flops, f"{ENDS}.train_flops.iloc[-1]", ".4g"
        )

    def _asking(self) -> Iterator[TracedNumber]:
        if self.users:
            yield TracedNumber("users", len(self.users), f"{PRACTICE}.user.nunique()")
            changes, told = self.history.server_changes, "e.Served.servers.map(len).sum()"
            yield TracedNumber("changes of a user's server told", changes, told)

    @property
    def right(self) -> Interval:
        """Share of right answers of the whole run."""
        return self.history.answered().share

    @property
    def late(self) -> Interval:
        """Share of right answers of the last quarter."""
        return self.history.answered(self._late).share

    @property
    def bare_host(self) -> Interval:
        """Share of the bare host's right answers at founding."""
        answers = self.history.host_answers
        right = sum(sum(answer.verdicts) for answer in answers)
        return wilson(right, sum(len(answer.verdicts) for answer in answers))

    @cached_property
    def users(self) -> list[str]:
        """Everyone who asked."""
        return sorted({act.user for act in self.history.acts if act.user})

    @cached_property
    def families(self) -> list[tuple[str, Interval, int | None]]:
        """Of each family: its late share of right answers, and the generation since which it is
        solved."""
        names = dict.fromkeys(cell_family(act.cell) for act in self.history.acts)
        solved = self.history.chronicle.solved
        return [
            (name, self.history.answered(self._late, family=name).share, solved.get(name))
            for name in names
        ]

    @property
    def trials(self) -> list[Trial]:
        """The last of all trials."""
        return list(self.history.trials.values())[-MAX_TRIALS:]

    @property
    def told(self) -> list[News]:
        """News that a reader should know, in their order: what the world did, and the first of all
        others."""
        news = self.history.world_news()
        news += [entry for entry in self.history.chronicle.news if entry.kind in TOLD_KINDS]
        return sorted(news[:MAX_NEWS_TOLD], key=lambda entry: entry.generation)

    @property
    def _late(self) -> int:
        return int(LATE * self.history.generation)


def _findings(history: History) -> Sequence[HealthFinding]:
    """Return what looks wrong in whole generations. No plug-in is run for it."""
    log = read_events(history.folder / EVENTS_FILE)
    whole = [event for event in log if event.generation < history.generation]
    return list(Health.of(whole).findings())


def spread(interval: Interval) -> str:
    """Return a share in per cent with its interval, such as ``12.0 [10.1, 13.9]``."""
    if math.isnan(interval.estimate):
        return NO_VALUE
    estimate, low, high = (
        f"{100 * end:.1f}" for end in (interval.estimate, interval.low, interval.high)
    )
    return f"{estimate} [{low}, {high}]"


def _safe_cell(value: object) -> str:
    """Return a text of a run that somebody sent, for a table: no HTML, no link or picture, no code,
    no letter that cannot be seen."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")
    text = text.replace("\\", "&#92;").replace("[", "\\[").replace("|", "\\|")
    return "".join(
        letter if letter.isprintable() else "�" for letter in " ".join(text.splitlines())
    )


def _joined(block: str) -> str:
    is_whole = block.startswith(("|", "- "))  # a table, or a list with an item on every line
    return block if is_whole else " ".join(map(str.strip, block.splitlines()))


_TEMPLATES = Environment(
    loader=PackageLoader("symbiont_ecology.extensions.evoscope", ""),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # Markdown; ``_safe_cell`` keeps it whole
)
_TEMPLATES.filters |= {"safe_cell": _safe_cell, "spread": spread}

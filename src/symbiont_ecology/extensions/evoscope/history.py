"""A run as columns over time: what was asked, right, paid and held, and who descends from whom.

    history = History.of_run(Path("artifacts/demo-1"))
    history.ends[-1].accuracy

The event log is folded here and nowhere else: the page, the report and the figures ask a
``History``. It reads event by event, so a run that still lives can be followed. Generations whose
last line is not written yet are not in it.

Energy is the ledger made again from the log: ``Settled`` says what an organelle earned and spent.
What is left are dowries and what the dead leave, and those follow from births, trials and deaths.
Energy is in mATP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np

from symbiont_ecology.base import events
from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.event_log import LogReader, LogRewoundError
from symbiont_ecology.base.statistics import Interval, evidence, wilson
from symbiont_ecology.base.types import BlobRef, OrganelleId, cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.extensions.evoscope.news import (
    Chronicle,
    KindChange,
    News,
    kinds_of,
    world_news,
)
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import EVENTS_FILE, read_config

WORLD: OrganelleId = "world"
"""The account that pays what is earned, and takes what is spent."""
LATE = 0.75
"""Part of a run behind which it is late."""


@dataclass(frozen=True, slots=True)
class Act:
    """Answers of an organelle in a generation, to one user (if there are users) in one cell.

    ``asked`` are rollouts, ``right`` is the sum of their verdicts.
    """

    generation: int
    id: OrganelleId
    cell: str
    user: str
    asked: int
    right: float


@dataclass(frozen=True)
class Taxon:
    """One organelle from birth to death, in generations; ``died`` is None for the living.

    ``ancestors`` are the ``parents``. A refounded organelle has no living parent, and descends from
    whoever had its weights first: weights are named by their content.
    """

    id: OrganelleId
    ancestors: tuple[OrganelleId, ...]
    born: int
    operator: str
    weights: BlobRef
    died: int | None = None
    cause: str = ""
    parents: tuple[OrganelleId, ...] = ()
    traits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A probation: the challenger, its parents, and the end; ``verdict`` is empty while it goes on.

    ``wins``, ``ties`` and ``losses`` are questions that both answered, over the better parent.
    """

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    began: int
    ended: int | None = None
    verdict: str = ""
    wins: int = 0
    ties: int = 0
    losses: int = 0
    reason: str = ""

    @property
    def evidence(self) -> float:
        """Evidence that the challenger is better: the wealth of a fair bet that began with 1."""
        return evidence(self.wins, self.ties, self.losses)


@dataclass(frozen=True)
class Claim:
    """A new holder of a cell or user of the archive; nobody (``""``) after an upheaval."""

    generation: int
    cell: str
    id: OrganelleId
    score: float


@dataclass(frozen=True)
class ServerChange:
    """A new server of a user from a generation on; nobody is ``""``."""

    generation: int
    user: str
    id: OrganelleId


@dataclass(frozen=True)
class Transfer:
    """Energy that moved outside the books, in mATP: a ``"dowry"`` to a newborn, a ``"refund"`` of
    one to parents whose child was refused, what each parent paid for a ``"stillborn"`` one, an
    ``"estate"`` of the dead to the world."""

    generation: int
    kind: str
    source: OrganelleId
    target: OrganelleId
    amount: int


@dataclass(frozen=True)
class Answered:
    """Right ones among a number of answers."""

    right: float
    asked: int

    @property
    def share(self) -> Interval:
        """Share of right answers with its 95 % interval (Wilson; answers count one by one)."""
        return wilson(self.right, self.asked)


@dataclass(frozen=True)
class Frames:
    """Generations in groups of ``width``: what a page or a figure has room for."""

    generations: int
    width: int

    @classmethod
    def of(cls, generations: int, max_count: int) -> Frames:
        """Return at most so many frames, with as few generations in each as can be."""
        return cls(generations, max(1, -(-generations // max_count)))

    @property
    def count(self) -> int:
        """Number of frames."""
        return -(-self.generations // self.width)

    @property
    def edges(self) -> np.ndarray:
        """Beginnings of all frames, and the end of the last one, ``(count + 1,)``."""
        return np.minimum(np.arange(self.count + 1) * self.width, self.generations)

    @property
    def ends(self) -> list[int]:
        """Last generation of each frame."""
        ends: list[int] = (self.edges[1:] - 1).tolist()
        return ends

    def at(self, generation: int) -> int:
        """Return the frame of a generation."""
        return generation // self.width


class Flows:
    """Balances and transfers as far as a log was read.

    Balances of the living and of children on probation add up to ``energy_total`` of
    ``GenerationEnded``, after any generation. Living parents pay a dowry in equal parts, or else
    the world pays it.
    """

    def __init__(self, dowry: int) -> None:
        self._dowry = dowry
        self.balances: dict[OrganelleId, int] = {}
        self.transfers: list[Transfer] = []
        self._on_probation: dict[OrganelleId, Sequence[OrganelleId]] = {}  # and their parents

    def add(self, event: events.Event) -> None:
        """Move the energy of one event."""
        match event:
            case events.Settled():
                self.balances[event.id] = event.balance
            case events.Proposed() if len(event.parents) > 1:
                self._on_probation[event.id] = event.parents
                self._endow(event.generation, event.id, event.parents)
            case events.Gated(verdict="reject") if event.id in self._on_probation:
                self._refund(event.generation, event.id)
            case events.Born() if event.id not in self.balances:
                parents = [parent for parent in event.parents if parent in self.balances]
                self._endow(event.generation, event.id, [] if event.is_endowed else parents)
            case events.Stillborn():
                for parent in event.parents:
                    self._move(event.generation, "stillborn", parent, WORLD, event.price)
            case events.Retired():
                self._close(event.generation, event.id, event.balance)

    def _endow(self, generation: int, child: OrganelleId, parents: Sequence[OrganelleId]) -> None:
        payers = parents or [WORLD]
        for payer in payers:
            self._move(generation, "dowry", payer, child, self._dowry // len(payers))

    def _refund(self, generation: int, child: OrganelleId) -> None:
        parents, rest = self._on_probation[child], self.balances[child]
        for parent in parents:
            if parent in self.balances:
                self._move(generation, "refund", child, parent, rest // len(parents))
        self._close(generation, child, self.balances[child])

    def _close(self, generation: int, account: OrganelleId, estate: int) -> None:
        self._move(generation, "estate", account, WORLD, estate)
        del self.balances[account]

    def _move(
        self, generation: int, kind: str, source: OrganelleId, target: OrganelleId, amount: int
    ) -> None:
        for account, change in ((source, -amount), (target, amount)):
            if account != WORLD:
                self.balances[account] = self.balances.get(account, 0) + change
        if amount:
            self.transfers.append(Transfer(generation, kind, source, target, amount))


class History:
    """Everything that a log says, as far as it was read. ``add`` takes the next event.

    Without ``has_economy`` energy does not decide about life and death.
    """

    def __init__(self, config: RunConfig, folder: Path | None = None) -> None:
        self.config, self.folder = config, folder or Path()
        self.has_economy = _has_economy(config)
        self.flows = Flows(self.config.economy.dowry)
        self.chronicle = Chronicle(has_economy=self.has_economy)
        self.event_count = 0
        self.taxa: dict[OrganelleId, Taxon] = {}
        """Everyone who ever lived, in the order of birth."""
        self.ends: list[events.GenerationEnded] = []
        self.balances: list[dict[OrganelleId, int]] = []
        """Energy of everyone at the end of each generation, those on trial included."""
        self.acts: list[Act] = []
        self.books: list[events.Settled] = []
        self.claims: list[Claim] = []
        self.servings: list[ServerChange] = []
        self.server_changes = 0
        """New servers of users that organelles were told."""
        self.trials: dict[OrganelleId, Trial] = {}
        self.ranks: dict[OrganelleId, list[tuple[int, int]]] = {}
        """Of everyone: the generations in which the rank changed, and the rank from then on."""
        self.lessons = Counter[OrganelleId]()
        self.host_answers: list[events.Acted] = []
        """Answers of the bare host at founding, cell by cell."""
        self.probes: list[events.Acted] = []
        """Later answers for knowledge alone: nobody earned by them, nobody learned."""
        self.ascents: list[events.Ascended] = []
        self.selection: list[events.Scored | events.Retired] = []
        """Exams and departures, in their order."""
        self._servers: dict[str, OrganelleId] = {}
        self._holders: dict[BlobRef, OrganelleId] = {}
        self._reader = LogReader(self.folder / EVENTS_FILE)
        self._kinds_until = lru_cache(maxsize=1)(partial(kinds_of, config))

    @classmethod
    def of(cls, config: RunConfig, log: Iterable[events.Event] = ()) -> History:
        """Return the history of a run with that config."""
        history = cls(config)
        for event in log:
            history.add(event)
        return history

    @classmethod
    def of_run(cls, folder: str | Path) -> History:
        """Return the history of the run in a folder. Plug-ins that its config names are not run.

        Raises:
            RunError: no run there, or its log is damaged.
        """
        history = cls(read_config(Path(folder), runs_plugins=False), Path(folder))
        history._read()
        return history

    def read_on(self) -> History:
        """Read what is new in the folder, and return the history: another one if the run went back
        to an earlier checkpoint meanwhile."""
        try:
            self._read()
        except LogRewoundError:
            return History.of_run(self.folder)
        return self

    def _read(self) -> None:
        if self._reader.path.exists():
            for event in self._reader.news():
                self.add(event)

    @property
    def generation(self) -> int:
        """Number of whole generations."""
        return len(self.ends)

    @property
    def is_alone(self) -> bool:
        """True if one organelle lives by itself, without rivals, relatives and users."""
        return not self.has_economy and len(self.taxa) < 2 and not self.servings

    @property
    def has_exams(self) -> bool:
        """True if everybody sits the same exam: nobody is chosen to answer, or serves anybody."""
        return any(isinstance(event, events.Scored) for event in self.selection)

    @property
    def whole_acts(self) -> list[Act]:
        """Answers of whole generations."""
        return self.acts[: bisect_right(self.acts, self.generation - 1, key=_generation_of)]

    @property
    def whole_books(self) -> list[events.Settled]:
        """Books of whole generations."""
        return self.books[: bisect_right(self.books, self.generation - 1, key=_generation_of)]

    @cached_property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    def news(self) -> list[News]:
        """Return what happened in whole generations, the world's own changes first in each."""
        told = sorted([*self.world_news(), *self.chronicle.news], key=_generation_of)
        return told[: bisect_right(told, self.generation - 1, key=_generation_of)]

    def world_news(self) -> list[News]:
        """Return what the world did in the generations that were lived."""
        return world_news(self.config, self.kinds(), self.ends)

    def kinds(self) -> list[KindChange]:
        """Return the hidden kinds of all users of a synthetic world, and when they change."""
        return self._kinds_until(self.generation)

    def answered(self, start: int = 0, family: str = "") -> Answered:
        """Return the answers of organelles from a generation on, to all questions or to those of
        one family."""
        acts = [
            act
            for act in self.acts
            if act.id != HOST
            and start <= act.generation
            and (not family or cell_family(act.cell) == family)
        ]
        return Answered(sum(act.right for act in acts), sum(act.asked for act in acts))

    def busiest(self) -> list[OrganelleId]:
        """Return everybody who ever lived, by answers in whole generations, most first."""
        asked = Counter[OrganelleId](dict.fromkeys(self.taxa, 0))
        for act in self.whole_acts:
            if act.id in asked:  # the bare host is not
                asked[act.id] += act.asked
        return [name for name, _ in asked.most_common()]

    def add(self, event: events.Event) -> None:
        """Read the next event.

        Raises:
            RunError: it is about somebody of whom the log has not said anything before.
        """
        self.event_count += 1
        try:
            self._add(event)
        except KeyError as error:
            raise RunError(
                f"the log is damaged: {type(event).__name__} in generation {event.generation} of "
                f"{error}, who was never born or proposed"
            ) from error
        taxon = self.taxa.get(event.id) if isinstance(event, events.Born) else None
        self.chronicle.add(event, taxon.ancestors if taxon else ())

    def _add(self, event: events.Event) -> None:
        self.flows.add(event)
        match event:
            case events.Acted():
                self._act(event)
            case events.Settled():
                self.books.append(event)
            case events.Learned():
                self.lessons[event.id] += event.lessons
                self._holders.setdefault(event.weights, event.id)
            case events.Ascended():
                self.ascents.append(event)
            case events.Born():
                self._be_born(event)
            case events.Resized():
                self.ranks[event.id].append((event.generation, event.rank))
                self._holders.setdefault(event.weights, event.id)
            case events.WarmStarted():
                self._holders[event.weights] = ""
            case events.Retired():
                taxon = self.taxa[event.id]
                self.taxa[event.id] = replace(taxon, died=event.generation, cause=event.cause)
                self.selection.append(event)
            case events.Scored():
                self.taxa[event.id]  # raises where nobody has that name
                self.selection.append(event)
            case events.Archived():
                self.claims.append(Claim(event.generation, event.cell, event.id, event.score))
            case events.Upheaved():
                self.claims += [Claim(event.generation, cell, "", 0.0) for cell in event.cells]
            case events.Served():
                self.server_changes += len(event.servers)
                for user, server in event.servers.items():
                    self._serve(event.generation, user, server)
            case events.Proposed():
                trial = Trial(event.id, event.operator, event.parents, event.generation)
                self.trials[event.id] = trial
            case events.Gated():
                self._end_trial(event)
            case events.GenerationEnded():
                self.ends.append(event)
                self.balances.append(dict(self.flows.balances))

    def _be_born(self, event: events.Born) -> None:
        holder = self._holders.setdefault(event.weights, event.id)
        self.taxa[event.id] = Taxon(
            event.id,
            event.parents or ((holder,) if holder not in ("", event.id) else ()),
            event.generation,
            event.operator,
            event.weights,
            parents=event.parents,
            traits=event.traits,
        )
        self.ranks[event.id] = [(event.generation, event.rank)] if event.rank else []

    def _serve(self, generation: int, user: str, server: OrganelleId) -> None:
        if self._servers.get(user) != server:
            self._servers[user] = server
            self.servings.append(ServerChange(generation, user, server))

    def _act(self, event: events.Acted) -> None:
        if event.purpose == "probe":
            if self.taxa:
                self.probes.append(event)
            else:
                self.host_answers.append(event)
        elif event.purpose == "practice" and event.verdicts:
            if event.user:
                self._serve(event.generation, event.user, event.id)
            where, asked = (event.cell, event.user), len(event.verdicts)
            self.acts.append(Act(event.generation, event.id, *where, asked, sum(event.verdicts)))

    def _end_trial(self, event: events.Gated) -> None:
        names = ("verdict", "wins", "ties", "losses", "reason")
        counts = {name: getattr(event, name) for name in names}
        self.trials[event.id] = replace(self.trials[event.id], ended=event.generation, **counts)


def _generation_of(row: Act | events.Settled | News) -> int:
    return row.generation


def _has_economy(config: RunConfig) -> bool:
    """Return True if the bankrupt die, or if the strategy is of a plug-in and not known."""
    try:
        return "deaths" in strategies.build(config.strategy).wants
    except ConfigError:
        return True

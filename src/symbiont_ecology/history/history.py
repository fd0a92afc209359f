"""A run as columns over time: what was asked, right, paid and held, generation by generation.

    history = read_history(Path("artifacts/demo-1"))
    history.ends[-1].accuracy

Everything is read from the event log, event by event, so a run that still lives can be followed.
Generations whose last line is not written yet are not in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from symbiont_ecology.config import Climate, RunConfig
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.living import EVENTS_FILE
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import (
    Acted,
    Archived,
    Ascended,
    Born,
    Event,
    Gated,
    GenerationEnded,
    Learned,
    Proposed,
    Resized,
    Retired,
    Scored,
    Served,
    Settled,
    Upheaved,
)
from symbiont_ecology.history.chronicle import Chronicle
from symbiont_ecology.history.flows import Flows
from symbiont_ecology.history.phylogeny import Phylogeny
from symbiont_ecology.statistics import evidence
from symbiont_ecology.strategies import strategies
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True, slots=True)
class Act:
    """What an organelle was asked for energy in a generation, by one habitat in one cell.

    ``asked`` are rollouts, ``right`` is the sum of their verdicts, ``price`` is what a full reward
    paid, in mATP.
    """

    generation: int
    id: OrganelleId
    cell: str
    habitat: str
    asked: int
    right: float
    price: float


@dataclass(frozen=True)
class Trial:
    """A probation: who challenged whom, and how it ended; ``verdict`` is empty while it goes on.

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
        """How much speaks for it being better, as the wealth of a fair bet that began with 1."""
        return evidence(self.wins, self.ties, self.losses)


@dataclass(frozen=True)
class Claim:
    """A cell or habitat of the archive has a new holder; nobody (``""``) after an upheaval."""

    generation: int
    cell: str
    id: OrganelleId
    score: float


@dataclass(frozen=True)
class ServerChange:
    """A habitat is served by another organelle from a generation on; nobody is ``""``."""

    generation: int
    habitat: str
    id: OrganelleId


@dataclass
class Success:
    """What pays how much: the moving average of success, replayed from the verdicts."""

    prices: Prices
    climate: Climate
    averages: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    _verdicts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _probes: list[Acted] = field(default_factory=list)

    def add_probe(self, event: Acted) -> None:
        """The bare host's answers before anybody was founded: what is usual."""
        self._probes.append(event)
        shares = [sum(act.verdicts) / len(act.verdicts) for act in self._probes if act.verdicts]
        mean = sum(shares) / len(shares) if shares else 0.0
        self.usual = dict.fromkeys((act.cell for act in self._probes), mean)

    def price(self, event: Acted) -> float:
        """What a full reward pays where the event was, in mATP."""
        niche = event.habitat or event.cell
        if niche not in self.averages:
            self.averages[niche] = self.averages.get(event.cell, self.usual.get(event.cell, 0.0))
        self._verdicts[niche] += event.verdicts
        prices = self.prices.times(self.climate.payment(event.generation))
        return prices.price(self.averages[niche])

    def end_generation(self) -> None:
        """The averages follow the verdicts."""
        for niche, verdicts in self._verdicts.items():
            self.averages[niche] = self.prices.update_success(self.averages[niche], verdicts)
        self._verdicts.clear()


class History:
    """Everything that a log says, as far as it was read. ``add`` takes the next event.

    ``generation`` is the number of whole generations. ``has_economy`` says whether energy decides
    about life and death.
    """

    def __init__(
        self,
        prices: Prices | None = None,
        climate: Climate | None = None,
        *,
        has_economy: bool = True,
    ) -> None:
        prices = prices or Prices()
        self.has_economy = has_economy
        self.phylogeny, self.flows = Phylogeny(), Flows(prices)
        self.chronicle = Chronicle(has_economy=has_economy)
        self.success = Success(prices, climate or Climate())
        self.ends: list[GenerationEnded] = []
        self.balances: list[dict[OrganelleId, int]] = []
        """What everyone owned at the end of each generation, those on trial included; mATP."""
        self.acts: list[Act] = []
        self.books: list[Settled] = []
        self.claims: list[Claim] = []
        self.servings: list[ServerChange] = []
        self.trials: dict[OrganelleId, Trial] = {}
        self.traits: dict[OrganelleId, dict[str, float]] = {}
        self.parents: dict[OrganelleId, int] = {}
        """How many parents everyone has, as its birth says."""
        self.ranks: dict[OrganelleId, list[tuple[int, int]]] = {}
        """Of everyone: the generations in which it changed, and the rank from then on."""
        self.lessons = Counter[OrganelleId]()
        self.host_answers: list[Acted] = []
        """What the bare host was asked at founding, cell by cell."""
        self.probes: list[Acted] = []
        """What was asked later on for knowledge alone: nobody earned by it, nobody learned."""
        self.ascents: list[Ascended] = []
        self.selection: list[Scored | Retired] = []
        """Exams and departures, in their order."""
        self._servers: dict[str, OrganelleId] = {}

    @classmethod
    def of(cls, config: RunConfig, events: Iterable[Event] = ()) -> History:
        """The history of a run with that config."""
        history = cls(config.economy, config.climate, has_economy=_has_economy(config))
        for event in events:
            history.add(event)
        return history

    @property
    def generation(self) -> int:
        """How many generations are whole."""
        return len(self.ends)

    def add(self, event: Event) -> None:
        """Reads the next event.

        Raises:
            RunError: it is about somebody of whom the log has not said anything before.
        """
        try:
            self._add(event)
        except KeyError as error:
            raise RunError(
                f"the log is damaged: {type(event).__name__} in generation {event.generation} of "
                f"{error}, who was never born or proposed"
            ) from error

    def _add(self, event: Event) -> None:
        self.phylogeny.add(event)
        self.flows.add(event)
        match event:
            case Acted():
                self._act(event)
            case Settled():
                self.books.append(event)
            case Learned():
                self.lessons[event.id] += event.lessons
            case Ascended():
                self.ascents.append(event)
            case Scored() | Retired():
                if event.id not in self.traits:
                    raise KeyError(event.id)
                self.selection.append(event)
            case Born():
                self.traits[event.id] = event.traits
                self.parents[event.id] = len(event.parents)
                self.ranks[event.id] = [(event.generation, event.rank)] if event.rank else []
            case Resized():
                self.ranks[event.id].append((event.generation, event.rank))
            case Archived():
                self.claims.append(Claim(event.generation, event.cell, event.id, event.score))
            case Upheaved():
                vacancies = [Claim(event.generation, cell, "", 0.0) for cell in event.cells]
                self.claims += vacancies
            case Served():
                for habitat, server in event.servers.items():
                    self._serve(event.generation, habitat, server)
            case Proposed():
                self.trials[event.id] = Trial(
                    event.id, event.operator, event.parents, event.generation
                )
            case Gated():
                self._end_trial(event)
            case GenerationEnded():
                self.ends.append(event)
                self.balances.append(dict(self.flows.balances))
                self.success.end_generation()
        taxon = self.phylogeny.taxa.get(event.id) if isinstance(event, Born) else None
        self.chronicle.add(event, taxon.ancestors if taxon else ())

    @property
    def is_alone(self) -> bool:
        """Whether one organelle lives by itself: it has no rivals, no relatives, and no users."""
        return not self.has_economy and len(self.phylogeny.taxa) < 2 and not self.servings

    @property
    def has_exams(self) -> bool:
        """Whether everybody sits the same exam: nobody is chosen to answer, or serves anybody."""
        return any(isinstance(event, Scored) for event in self.selection)

    def busiest(self) -> list[OrganelleId]:
        """Everybody who ever lived, by rollouts in whole generations, the one with most first."""
        asked = Counter[OrganelleId](dict.fromkeys(self.phylogeny.taxa, 0))
        for act in self.acts:
            if act.id in asked and act.generation < self.generation:  # the bare host is not
                asked[act.id] += act.asked
        return [name for name, _ in asked.most_common()]

    def rank(self, organelle_id: OrganelleId, generation: int) -> int:
        """The rank of an organelle after a generation; 0 where the log does not say it."""
        rank = 0
        for since, value in self.ranks.get(organelle_id, ()):
            if since <= generation:
                rank = value
        return rank

    def _serve(self, generation: int, habitat: str, server: OrganelleId) -> None:
        if self._servers.get(habitat) != server:
            self._servers[habitat] = server
            self.servings.append(ServerChange(generation, habitat, server))

    def _act(self, event: Acted) -> None:
        if event.purpose == "probe":
            if self.phylogeny.taxa:
                self.probes.append(event)
            else:
                self.host_answers.append(event)
                self.success.add_probe(event)
        elif event.purpose == "practice" and event.verdicts:
            price = self.success.price(event)
            if event.habitat:
                self._serve(event.generation, event.habitat, event.id)
            self.acts.append(
                Act(
                    event.generation, event.id, event.cell, event.habitat, len(event.verdicts),
                    sum(event.verdicts), price,
                )
            )  # fmt: skip

    def _end_trial(self, event: Gated) -> None:
        self.trials[event.id] = replace(
            self.trials[event.id],
            ended=event.generation,
            verdict=event.verdict,
            wins=event.wins,
            ties=event.ties,
            losses=event.losses,
            reason=event.reason,
        )


def read_history(folder: Path) -> History:
    """The history of the run in a folder.

    Raises:
        RunError: no run there, or its log is damaged.
    """
    config = read_config(folder, runs_plugins=False)
    return History.of(config, read_events(folder / EVENTS_FILE))


def _has_economy(config: RunConfig) -> bool:
    """Whether the bankrupt die; assumed of a strategy from a plug-in that was not run."""
    try:
        return strategies.build(config.strategy).is_mortal
    except ConfigError:
        return True

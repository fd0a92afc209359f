"""The kinds of events: what can happen in a run, one frozen dataclass for each.

A kind is a subclass of ``Event``, and nothing else needs to know about it. Energy is in milli-ATP
(mATP).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.base.types import BlobRef, OrganelleId


@dataclass(frozen=True)
class Event:
    """Something that happened in a generation. A subclass is a kind of event, under its class
    name."""

    generation: int
    kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        holder = Event.kinds.setdefault(cls.__name__, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"event kind {cls.__name__!r} is already {holder.__module__}.{holder.__qualname__}"
            )
        Event.kinds[cls.__name__] = cls


@dataclass(frozen=True)
class Born(Event):
    """An organelle came to life, with weights that ``operator`` made from its parents' weights.

    ``rank`` is that of its adapter; 0 where the log does not say it. ``is_endowed``: the world paid
    its dowry, although it has parents.
    """

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    weights: BlobRef
    traits: dict[str, float]
    rank: int = 0
    is_endowed: bool = False


@dataclass(frozen=True)
class WarmStarted(Event):
    """One adapter learned a few reference answers, ``per_cell`` of each cell, before anybody was
    founded. Founders without parents begin with its ``weights``; ``loss`` is that of the last pass,
    in nats per token."""

    per_cell: int
    items: tuple[str, ...]
    lessons: int
    flops: int
    loss: float
    weights: BlobRef


@dataclass(frozen=True)
class Retired(Event):
    """An organelle left. ``age`` in generations; ``balance`` is what it left to the world, in
    mATP."""

    id: OrganelleId
    cause: str
    age: int
    balance: int


@dataclass(frozen=True)
class Acted(Event):
    """An organelle (or the bare host, id ``"host"``) answered items of one cell,
    ``"family/depth"``.

    ``verdicts`` holds one number per rollout: the ``samples`` rollouts of the first item, then of
    the next. ``user`` is where the items came from, if the world has users.
    """

    id: OrganelleId
    cell: str
    items: tuple[str, ...]
    verdicts: tuple[float, ...]
    samples: int
    tokens_in: int
    tokens_out: int
    flops: int
    purpose: str
    user: str = ""


@dataclass(frozen=True)
class PartFailed(Event):
    """A verifier, a reward, a learning rule or an operator raised, took too long or returned
    nonsense, at ``failed`` of its ``calls``; ``fault`` is the first.

    An answer that a verifier fails at scores 0, one without a reward counts as the worst one, who
    gets no lessons stays as it is.
    """

    part: str
    calls: int
    failed: int
    fault: str


@dataclass(frozen=True)
class VerifierFailed(Event):
    """A verifier failed at ``count`` answers, in logs of earlier versions; now ``PartFailed``."""

    id: OrganelleId
    item: str
    fault: str
    count: int = 1


@dataclass(frozen=True)
class Stillborn(Event):
    """An operator made no child that can live, for which each of its parents paid ``price`` mATP
    all the same."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    fault: str
    price: int = 0


@dataclass(frozen=True)
class Learned(Event):
    """One update within a life: ``loss`` in nats per token, ``weights`` are those after the
    update."""

    id: OrganelleId
    lessons: int
    tokens: int
    flops: int
    loss: float
    gradient_norm: float
    weights: BlobRef


@dataclass(frozen=True)
class Ascended(Event):
    """A step of evolution strategies: what the members of the population earned, and where the
    centre went.

    ``rewards`` are the mean rewards of the members, in the order in which they were drawn;
    ``tokens`` is the mean length of their answers, ``empty`` the share of answers without text.
    ``step`` is the root mean square of the step per number that moves, in units of the noise on it.
    ``kl`` is the mean log-ratio of the centre's own greedy answers to the bare host, in nats per
    token, where it was looked at: not the KL divergence, which is about sampled answers.
    ``noise`` is ‖noise on ΔW‖ ÷ ‖W‖; 0 where the log does not say it.
    """

    id: OrganelleId
    rewards: tuple[float, ...]
    tokens: float
    empty: float
    step: float
    weights: BlobRef
    kl: float | None = None
    noise: float = 0.0


@dataclass(frozen=True)
class Scored(Event):
    """Result of an organelle's weights in an exam: a mean reward, kept while they stay."""

    id: OrganelleId
    score: float


@dataclass(frozen=True)
class Settled(Event):
    """The books of one organelle for one generation, in mATP."""

    id: OrganelleId
    ticket: int
    revenue: int
    cost: int
    rent: int
    balance: int

    @property
    def spent(self) -> int:
        """On taking part, on compute and on what is held."""
        return self.ticket + self.cost + self.rent


@dataclass(frozen=True)
class Archived(Event):
    """A cell of the archive took a new elite, with the weights that earned the score."""

    id: OrganelleId
    cell: str
    score: float
    weights: BlobRef


@dataclass(frozen=True)
class Proposed(Event):
    """A child of several parents went on probation."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    weights: BlobRef


@dataclass(frozen=True)
class Gated(Event):
    """A probation ended: ``verdict`` is admit or reject, for a ``reason`` if that is known.

    Paired questions against the better parent, all together: ``wins``, ``ties``, ``losses``. An
    admitted child is ``Born`` in the same generation."""

    id: OrganelleId
    verdict: str
    wins: int
    ties: int
    losses: int
    reason: str = ""


@dataclass(frozen=True)
class Resized(Event):
    """An organelle has another rank. ``kept`` is the share of ‖ΔW‖² that is left, its mean over
    modules: 1 when it grew."""

    id: OrganelleId
    rank: int
    kept: float
    weights: BlobRef


@dataclass(frozen=True)
class Upheaved(Event):
    """The world was taken to have changed in some cells, ``"family/depth"``; nobody holds them
    now."""

    cells: tuple[str, ...]


@dataclass(frozen=True)
class Served(Event):
    """Users have new servers: the organelle that each of them asks from now on; empty where it
    leaves the old one and no new one is known."""

    servers: dict[str, OrganelleId]


@dataclass(frozen=True)
class Quarantined(Event):
    """An organelle was taken out of its slot, for example because its weights became NaN."""

    id: OrganelleId
    reason: str


@dataclass(frozen=True)
class BatchShrunk(Event):
    """The device ran out of memory: batches go in pieces of so many megabytes from here on.

    Pieces move logits in the last bits, so what follows need not repeat on a device with more
    memory.
    """

    memory_mb: float


@dataclass(frozen=True)
class GenerationEnded(Event):
    """The generation in one line. Energy in mATP; ``rows`` and ``calls`` count the host's work in
    it, ``train_flops`` are those of the whole run so far. ``accuracy`` is None where nobody was
    asked: the rule reads gold answers only."""

    population: int
    births: int
    deaths: int
    accuracy: float | None
    coverage: int
    train_flops: int
    energy_total: int
    rows: int
    calls: int

"""The memory of a run: an append-only log of typed events, the only thing that analysis reads.

One JSON line per event, numbered from 0 behind a header line with the schema version::

    {"schema":1}
    {"seq":0,"kind":"Born","generation":0,"id":"o1","operator":"founder","parents":[],...}

Lines hold no time of day, so equal runs write equal bytes. A kind of event is a frozen dataclass
that derives from ``Event``, and nothing else needs to know about it. Energy is in milli-ATP (mATP).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, ClassVar

from pydantic import TypeAdapter, ValidationError

from symbiont_ecology.errors import RunError
from symbiont_ecology.files import open_own
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.types import BlobRef, OrganelleId

SCHEMA = 1
"""Raise it when an event loses a field or a field changes its meaning; a new kind leaves it
alone."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a generation. A subclass is a kind of event, under its class
    name."""

    generation: int
    kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        taken = Event.kinds.setdefault(cls.__name__, cls)
        if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"event kind {cls.__name__!r} is already {taken.__module__}.{taken.__qualname__}"
            )
        Event.kinds[cls.__name__] = cls


@dataclass(frozen=True)
class Born(Event):
    """An organelle came to life, with weights that ``operator`` made from its parents' weights.

    ``rank`` is that of its adapter; logs of older versions do not say it (0).
    """

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    weights: BlobRef
    traits: dict[str, float]
    rank: int = 0


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
    the next. ``habitat`` is where the items came from, if the world has habitats.
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
    habitat: str = ""


@dataclass(frozen=True)
class VerifierFailed(Event):
    """A verifier raised, took too long or returned nonsense; the answer to that item scored 0."""

    id: OrganelleId
    item: str
    fault: str


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
    ``kl`` is the mean log-ratio of the centre's own answers to the bare host, in nats per token,
    where it was looked at. ``noise`` is ‖noise on ΔW‖ ÷ ‖W‖; logs of older versions do not say it
    (0).
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
    """What an organelle's weights earned in an exam: a mean reward, kept while they stay."""

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
    """A candidate went on probation: a child of several parents, or another self of one."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    weights: BlobRef


@dataclass(frozen=True)
class Gated(Event):
    """A probation ended: ``verdict`` is admit or reject, for a ``reason`` if that is known.

    Paired questions against the better parent, all together: ``wins``, ``ties``, ``losses``. In the
    same generation an admitted child is ``Born``, an organelle becomes a leaner self (``Resized``)
    or its former one (``Restored``)."""

    id: OrganelleId
    verdict: str
    wins: int
    ties: int
    losses: int
    reason: str = ""


@dataclass(frozen=True)
class Restored(Event):
    """An organelle that had lost its way became what it was before, with these weights."""

    id: OrganelleId
    weights: BlobRef


@dataclass(frozen=True)
class Resized(Event):
    """An organelle has another body: another rank, or a leaner ΔW. ``kept`` is the share of ‖ΔW‖²
    that is left (where ranks were cut, its mean over modules): 1 when it grew."""

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
    """Habitats have new servers: the organelle that each of them asks from now on; empty where it
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


class EventLog:
    """The writing end of a log. The caller keeps the sequence number: it is part of a run's
    state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._opened("a+b") as file:
            file.seek(0)
            header = file.readline()
            if not header.endswith(b"\n"):  # new, or killed while the header was written
                file.truncate(0)
                file.write(_HEADER)
            elif header != _HEADER:
                raise RunError(
                    f"{path} line 1: expected an event log of schema {SCHEMA}, got {header!r:.80}"
                )

    def emit(self, seq: int, *events: Event) -> int:
        """Appends the events as numbers ``seq``, ``seq + 1``, … and returns the next number.

        Raises:
            ValueError: a field is NaN, infinite or no plain value; nothing is written then.
            RunError: the file cannot be written.
        """
        text = "".join(_line(number, event) for number, event in enumerate(events, start=seq))
        with self._opened("ab") as file:
            file.write(text.encode())
        return seq + len(events)

    def sync(self) -> None:
        """Returns when everything emitted so far would survive a power cut.

        Raises:
            RunError: the disk is full or gone.
        """
        with self._opened("ab") as file:
            os.fsync(file.fileno())

    def rewind(self, seq: int) -> None:
        """Drops event ``seq`` and everything behind it, a line torn by a crash included.

        Raises:
            RunError: the log holds fewer than ``seq`` whole events, so the state is not of this
                log.
        """
        with self._opened("r+b") as file:
            for line in range(seq + 1):  # the header, then seq events
                if not file.readline().endswith(b"\n"):
                    raise RunError(
                        f"{self.path} holds {max(line - 1, 0)} events, expected at least {seq}"
                    )
            file.truncate(file.tell())

    @contextmanager
    def _opened(self, mode: str) -> Iterator[BinaryIO]:
        try:
            with open_own(self.path, mode) as file:
                yield file
        except OSError as error:
            raise RunError(f"cannot write events to {self.path}: {error.strerror}") from error


class LogReader:
    """The reading end of a log that may still grow: every call of ``news`` goes on behind the last
    one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = self._line = 0
        self._last = b""

    def news(self) -> Iterator[Event]:
        """The events that came since, without a last line that is not whole.

        Raises:
            RunError: no such log, another schema, an unknown kind, a damaged line, a gap in the
                numbers, or what was read before is not there any more (``LogRewoundError``).
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise RunError(f"cannot read events from {self.path}: {error.strerror}") from error
        with file:
            file.seek(self._offset - len(self._last))
            if file.read(len(self._last)) != self._last:
                raise LogRewoundError(f"{self.path} was rewound: read it anew")
            for line in file:
                if not line.endswith(b"\n"):
                    return
                where = f"{self.path} line {self._line + 1}"
                row = _row(line, where)
                if self._line:
                    yield _event(row, self._line - 1, where)
                elif row != {"schema": SCHEMA}:
                    raise RunError(
                        f"{where}: expected an event log of schema {SCHEMA}, got {row!r:.80}"
                    )
                self._offset += len(line)
                self._line += 1
                self._last = line


class LogRewoundError(RunError):
    """A run went on from an earlier checkpoint, so what was read of its log does not hold."""


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log in order, without a last line that a crash has torn.

    Raises:
        RunError: no such log, another schema, an unknown kind, a damaged line, or a gap in the
            numbers.
    """
    return LogReader(path).news()


def _row(line: bytes, where: str) -> dict[str, object]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{where}: not JSON ({error})") from error


_HEADER = f'{{"schema":{SCHEMA}}}\n'.encode()
_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def _line(seq: int, event: Event) -> str:
    """One event as JSON. A field with a default is left out where it has it."""
    kind = type(event)
    said = {name: at for name, at in vars(event).items() if at != getattr(kind, name, MISSING)}
    try:
        return _JSON.encode({"seq": seq, "kind": kind.__name__, **said}) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{event} cannot be written as JSON: {error}") from error


def _event(row: dict[str, object], seq: int, where: str) -> Event:
    found, kind = row.pop("seq", None), row.pop("kind", None)
    if found != seq:
        raise RunError(f"{where}: expected event {seq}, got {found}")
    if kind not in Event.kinds:
        hint = did_you_mean(str(kind), Event.kinds)
        raise RunError(
            f"{where}: unknown event kind {kind!r};{hint} known: {', '.join(Event.kinds)}"
        )
    try:
        return _adapter(kind).validate_python(row)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(
            f"{where}: {kind}.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    return TypeAdapter(Event.kinds[kind])

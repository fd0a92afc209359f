"""EcologyState: everything that changes during a run and must survive a crash, and nothing else.

What a component remembers between generations is a field here or a blob that a field names;
generators, slots and caches are not state. A checkpoint is atomic: blobs first (write-once), then
the file that names them. The one before it is kept, in case that one of its files is damaged.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, NonNegativeInt, TypeAdapter, ValidationError

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import lock, open_folder, write_whole, written_whole
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.removed import with_present_fields
from symbiont_ecology.base.types import BlobRef, OrganelleId, cell_name
from symbiont_ecology.ecology.checkpoint_header import (
    CHECKPOINT_FORMAT,
    CheckpointHeader,
    LogMark,
    read_header,
    with_header,
)
from symbiont_ecology.ecology.ledger import Ledger
from symbiont_ecology.ecology.organelle import Genome, Organelle
from symbiont_ecology.ecology.rollout import Assignment
from symbiont_ecology.ecology.success import Archive, DriftDetector, SuccessPosterior, pooled
from symbiont_ecology.ecology.users import RememberedAnswer, SketchSpace, User

STATE_FILE, PREVIOUS_FILE = "state.json", "state.previous.json"


@dataclass(repr=False)
class EcologyState:
    """A living ecology between two generations."""

    seed: int
    generation: NonNegativeInt = 0
    next_id: NonNegativeInt = 0
    next_seq: NonNegativeInt = 0
    mean_rollout_flops: int = 1
    """Useful FLOPs of one mean rollout of the bare host: the exchange rate, fixed at founding."""
    population: dict[OrganelleId, Organelle] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    posteriors: dict[OrganelleId, dict[str, SuccessPosterior]] = field(default_factory=dict)
    """Success of each organelle per niche: a cell, or where users ask a user."""
    success: dict[str, float] = field(default_factory=dict)
    """Moving average of success per niche, which prices follow."""
    drift_detectors: dict[str, DriftDetector] = field(default_factory=dict)
    """The last verdicts per niche: by them a change of the world is noticed."""
    effort: dict[str, float] = field(default_factory=dict)
    """Useful FLOPs that a rollout in a cell took lately, its lessons included."""
    archive: Archive = field(default_factory=Archive)
    users: dict[str, User] = field(default_factory=dict)
    """Every user that has asked, by its id."""
    dormant: dict[OrganelleId, Organelle] = field(default_factory=dict)
    """Bankrupts that remember what users wanted before they changed. They cost nothing, and may
    live again."""
    memory: dict[str, tuple[RememberedAnswer, ...]] = field(default_factory=dict)
    """Answers that were right, by cell name; only for learning rules that replay them, in a world
    without users."""
    warm: BlobRef | None = None
    """The adapter that founders without parents begin with, if there was a warm start."""
    sketch_space: SketchSpace = field(default_factory=SketchSpace)
    notes: dict[str, JsonValue] = field(default_factory=dict)
    """Notes of parts from one generation to the next, by the name of the part."""
    scored: int = 0
    """Answers of users that were sketched or embedded."""
    spent: Cost = field(default_factory=Cost)
    """All work of the run: evolution, learning, comparisons. Evaluating finished runs is counted
    apart."""

    def new_id(self) -> OrganelleId:
        """Return the next organelle id, never used before."""
        self.next_id += 1
        return f"o{self.next_id}"

    def genome(self, organelle_id: OrganelleId) -> Genome:
        """Return that of a living organelle."""
        return self.population[organelle_id].genome

    def success_at(self, assignment: Assignment) -> float:
        """Return the success average where an assignment is counted; of a new user, that of the
        cell."""
        average = self.success.get(assignment.niche)
        return self.success[cell_name(assignment.cell)] if average is None else average

    @property
    def served(self) -> dict[OrganelleId, list[str]]:
        """The users of each living organelle that serves some, by their names in order."""
        served: dict[OrganelleId, list[str]] = {}
        for name, user in sorted(self.users.items()):
            if user.server in self.population:
                served.setdefault(user.server, []).append(name)
        return served

    def accepted_answers(self) -> list[tuple[OrganelleId, RememberedAnswer]]:
        """Return what users accepted and remember, with the living organelle that serves each;
        and what the living remember of users that changed. In a world without users, return
        what was right, with who knows the cell best."""
        groups = [(o.id, o.memories) for o in self.population.values()]
        groups += [(user.server, user.accepted) for user in self.users.values()]
        groups += [(self._best_in(cell), answers) for cell, answers in self.memory.items()]
        return [
            (who, answer) for who, answers in groups if who in self.population for answer in answers
        ]

    def _best_in(self, cell: str) -> OrganelleId:
        """Return the living organelle with the best record in a cell, the oldest of equals; nobody
        if nobody lives."""
        posteriors = {name: self.posteriors.get(name, {}).get(cell) for name in self.population}
        records = {name: p.mean if p else 0.0 for name, p in posteriors.items()}
        return max(records, key=records.__getitem__, default="")

    def record(self, organelle_id: OrganelleId, *, but_for: str) -> float:
        """Return the rate at which an organelle was right lately in the other users that it
        pleases: those that accepted something."""
        posteriors = self.pleased(organelle_id)
        posteriors.pop(but_for, None)
        return pooled(posteriors.values()).mean

    def pleased(self, organelle_id: OrganelleId) -> dict[str, SuccessPosterior]:
        """Return its posteriors in the users that it serves and pleases."""
        return {
            name: posterior
            for name, posterior in self.posteriors.get(organelle_id, {}).items()
            if name in self.users  # not where nothing but empty replies was given
            and self.users[name].server == organelle_id
            and self.users[name].accepted
        }

    def reachable(self) -> set[BlobRef]:
        """Return every blob that must be kept."""
        refs = {elite.weights for elite in self.archive.elites.values()}
        for organelle in (*self.population.values(), *self.dormant.values()):
            refs |= {organelle.genome.weights, organelle.inborn, organelle.optimizer_state}
        return refs | ({self.warm} if self.warm else set())


@dataclass(frozen=True)
class Checkpoint:
    """A state as it is on the disk, and its header."""

    state: EcologyState
    header: CheckpointHeader


_schema = TypeAdapter(EcologyState)


def save_state(state: EcologyState, folder: Path, log: LogMark | None = None) -> None:
    """Write ``state.json`` by atomic rename, under a header that says how far the ``log`` was. The
    caller has flushed the blobs before.

    Raises:
        RunError: the disk is full or the folder is gone; the earlier state is untouched.
    """
    try:
        write_whole(folder / STATE_FILE, with_header(_schema.dump_json(state, indent=1), log))
    except RunError as error:
        raise RunError(f"{error}; free some space and resume") from error


def keep_previous(folder: Path) -> None:
    """Make the checkpoint that is there the previous one; ``save_state`` makes the next.

    Raises:
        RunError: it cannot be kept.
    """
    try:
        with written_whole(folder / PREVIOUS_FILE, syncs_folder=False) as temporary:
            shutil.copyfile(folder / STATE_FILE, temporary)
    except RunError as error:
        raise RunError(f"{error}; free some space and resume") from error


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time read the state of a run with what it names, or delete what it does
    not name.

    Raises:
        RunError: the folder cannot be read.
    """
    try:
        descriptor = open_folder(folder)
    except OSError as error:
        raise RunError(f"no run in {folder}: {error.strerror}") from error
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def load_state(folder: Path) -> EcologyState:
    """Return the last checkpoint of a run.

    Raises:
        RunError: there is none, or it is damaged.
    """
    return read_checkpoint(folder / STATE_FILE).state


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a state and its header.

    Raises:
        RunError: there is no such file, or it is damaged or was edited.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"no checkpoint in {path.parent}: {error.strerror}") from error
    header = read_header(data, path)
    is_old = header.format < CHECKPOINT_FORMAT
    try:
        state = _schema.validate_json(_of_older_format(data) if is_old else data)
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
    if state.ledger.total or state.population.keys() - state.ledger.balances.keys():
        raise RunError(
            f"{path} is damaged or was edited: its accounts hold {state.ledger.total} mATP, "
            "expected 0, and one for each of the living"
        )
    for name in state.ledger.balances.keys() - state.population.keys():
        state.ledger.close(name)  # of a child that an earlier version had on trial
    return Checkpoint(state, header)


def _of_older_format(data: bytes) -> bytes:
    """Return a state of format 2 or 3, with its fields in the places of today."""
    fields: dict[str, Any] = with_present_fields(json.loads(data))
    space = {name: fields[name] for name in ("common", "bases", "examples") if name in fields}
    fields.setdefault("sketch_space", space)
    for organelle in (*fields["population"].values(), *fields.get("dormant", {}).values()):
        notes = organelle.setdefault("notes", {})
        if organelle.get("range", {}).get("total"):
            notes["speciation"] = organelle["range"]
    return json.dumps(fields).encode()

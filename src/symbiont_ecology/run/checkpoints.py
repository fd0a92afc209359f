"""The checkpoints of a run: the last one, and the one before it.

A checkpoint is: events to disk, new blobs, the last checkpoint under its second name, then
``state.json`` by atomic rename, then the names of these files to disk, and only then blobs that
neither checkpoint names are deleted. ``state.json`` says how far the log was and what it held, so
a resume finds what was damaged or edited meanwhile.

Which checkpoint is kept beside the last one follows from the numbers of generations alone: the
newest older one that was due. So a run that was stopped and resumed ends with the same files.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.files import UNFINISHED, remove_unfinished
from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE
from symbiont_ecology.base.types import BlobRef
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.checkpoint_header import GrowingLog, mark_of
from symbiont_ecology.ecology.state import PREVIOUS_FILE, STATE_FILE, Checkpoint
from symbiont_ecology.run.provenance import PROVENANCE_FILE

WRITTEN_WHOLE = (
    "config.yaml",
    PROVENANCE_FILE,
    STATE_FILE,
    PREVIOUS_FILE,
    TRANSCRIPTS_FILE,
    "trackers.json",
)
"""Files of a run that take the place of older ones."""


class Checkpoints:
    """The two last checkpoints of a run whose folder this process has locked.

    One is made ``every`` so many generations in any case.
    """

    def __init__(self, folder: Path, store: BlobStore, log: Path, every: int = 1) -> None:
        self.folder, self._store, self._every = folder, store, every
        self._log, self._growing = log, GrowingLog(log)
        self._last: int | None = None
        """The generation of ``state.json``."""
        self._needed = set[BlobRef]()
        self._needed_before = set[BlobRef]()
        """Blobs of the last checkpoint, and of the one before it."""

    def restore(self) -> EcologyState:
        """Return the last checkpoint, if its log and its blobs are whole. The log is cut behind it.

        Raises:
            RunError: it is missing, or something that it needs is damaged.
        """
        last = checkpoint.read_checkpoint(self.folder / STATE_FILE)
        state = last.state
        check_log(self._log, last)
        check_blobs(self._store, state.reachable())
        EventLog(self._log).rewind(state.next_seq)
        self._last, self._needed = state.generation, state.reachable()
        self._needed_before = self._blobs_before()
        self._growing.mark(state.next_seq)
        with checkpoint.exclusive(self.folder):  # nobody is writing them any more
            for name in WRITTEN_WHOLE:  # others with that ending are not the run's own
                remove_unfinished(self.folder / (name + UNFINISHED))
        self._clean()
        return state

    def save(self, state: EcologyState) -> None:
        """Make a checkpoint. The log holds what led to this state, and has been synced.

        Raises:
            RunError: the disk is full or gone; what was there before is untouched.
        """
        self._store.flush(state.reachable())
        mark = self._growing.mark(state.next_seq)
        if self._last is not None and self._last % self._every == 0:
            checkpoint.keep_previous(self.folder)
            self._needed_before = self._needed
        checkpoint.save_state(state, self.folder, log=mark)
        self._last, self._needed = state.generation, state.reachable()
        self._clean()

    def _blobs_before(self) -> set[BlobRef]:
        """Return what the checkpoint before the last one needs; of one that is damaged, nothing."""
        try:
            return checkpoint.read_checkpoint(self.folder / PREVIOUS_FILE).state.reachable()
        except RunError:  # there is none, or ``symbiont verify`` says what is wrong with it
            return set()

    def _clean(self) -> None:
        """Delete every blob that the run cannot be asked for."""
        with checkpoint.exclusive(self.folder):  # an evaluation may be reading, a fork be copying
            self._store.collect(self._needed | self._needed_before)


def check_log(path: Path, last: Checkpoint) -> None:
    """Check that a log holds what it did when a checkpoint was made. More may stand behind it.

    Raises:
        RunError: it does not; the damaged line is named.
    """
    events, mark = last.state.next_seq, last.header.log
    if mark is not None and mark_of(path, mark.bytes) == mark:
        return
    count = sum(1 for _ in islice(read_events(path), events))  # names the line that is none
    if count < events:
        raise RunError(f"{path} holds {count} events, expected at least {events}")
    if mark is not None:
        raise RunError(f"{path} was edited: its first {events} events are not those of the run")


def check_blobs(store: BlobStore, refs: Iterable[BlobRef]) -> None:
    """Check that blobs are whole on the disk.

    Raises:
        RunError: one is missing or damaged.
    """
    for ref in sorted(refs):
        store.check(ref)

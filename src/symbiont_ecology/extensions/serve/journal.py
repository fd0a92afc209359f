"""The journal of a service: answers and verdicts, on the disk before they are acknowledged.

    {"answer": {"id": "…", "user": "ada", "prompt": "…", "replies": ["…"], "organelle": "o7", …}}
    {"verdict": {"id": "…", "choice": 0, "is_accepted": true, …}}
    {"generation": {"number": 12, "verdicts": 288}}

The last kind says which verdicts a generation learned from: all that came before, without those of
earlier generations. So a service that was killed lives its generations again, and comes to the same
weights. One thread writes, with one sync for all entries that wait.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, TypeAlias

from pydantic import TypeAdapter, ValidationError

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import json_line, open_own
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.run.open_run import JOURNAL_FILE

MAX_JUDGEABLE = 100_000
"""Number of answers that can be judged: the newest ones."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """The answer to a request: one reply, or several to choose from.

    ``prompt`` is as the host was asked, with its turns. ``organelle`` is the author, and
    ``log_probabilities`` are its own, of each reply, in nats, if all ended by themselves.
    """

    id: str
    user: str
    family: str
    prompt: str
    replies: tuple[str, ...]
    organelle: OrganelleId
    log_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """The verdict of a user on a reply. ``score``, if there is one, is from 0 to 1; ``correction``
    is the reply that the user wanted."""

    id: str
    is_accepted: bool
    choice: int = 0
    score: float | None = None
    comment: str = ""
    correction: str = ""


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """A generation learns from all verdicts up to the one of that number."""

    number: int
    verdicts: int


@dataclass(frozen=True, slots=True)
class JudgedReply:
    """A verdict with the answer that it is about."""

    answer: GivenAnswer
    verdict: GivenVerdict


JournalEntry: TypeAlias = GivenAnswer | GivenVerdict | GenerationBegun
ENTRY_KINDS: dict[str, type[JournalEntry]] = {
    "answer": GivenAnswer,
    "verdict": GivenVerdict,
    "generation": GenerationBegun,
}
_NAMES = {kind: name for name, kind in ENTRY_KINDS.items()}
_ADAPTERS = {name: TypeAdapter(kind) for name, kind in ENTRY_KINDS.items()}
Done = Callable[[RunError | None], None]
"""Listener: entries are on the disk, or the reason why they are not."""


class Journal:
    """The journal of one service. Any thread may call ``append`` and ``write``.

    Verdicts of generations before ``generation`` are not held: the checkpoint has learned them.

    Raises:
        RunError: the file cannot be read or written, or a line of it is damaged.
    """

    def __init__(self, folder: Path, generation: int = 0) -> None:
        self.path = folder / JOURNAL_FILE
        self._answers = OrderedDict[str, GivenAnswer]()
        self._said = dict[tuple[str, int], GivenVerdict]()
        self._judged, self._forgotten = list[JudgedReply](), 0
        self._is_learning = True
        self._until = dict[int, int]()
        self._learned = 0
        self._lock = threading.Lock()
        self._size, self._file = self._read(generation), self._opened()
        self._broken: RunError | None = None
        self._waiting = SimpleQueue[tuple[Sequence[JournalEntry], Done] | None]()
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def answer(self, name: str) -> GivenAnswer | None:
        """Return an answer, if it is not too long ago."""
        with self._lock:
            return self._answers.get(name)

    def verdict(self, name: str, choice: int) -> GivenVerdict | None:
        """Return the verdict on a reply, if there is one."""
        with self._lock:
            return self._said.get((name, choice))

    @property
    def verdicts(self) -> int:
        """Number of verdicts."""
        with self._lock:
            return self._forgotten + len(self._judged)

    @property
    def generations(self) -> Sequence[int]:
        """Numbers of the generations that were begun, rising."""
        with self._lock:
            return sorted(self._until)

    @property
    def learned(self) -> int:
        """Number of verdicts of the generations that were begun."""
        with self._lock:
            return self._learned

    def judged_in(self, generation: int) -> Sequence[JudgedReply]:
        """Return the replies that a generation learns from; none if it was not begun in service, or
        if they are not held any more."""
        with self._lock:
            begin, end = self._before(generation), self._until.get(generation, 0)
            return self._judged[max(begin - self._forgotten, 0) : max(end - self._forgotten, 0)]

    def stop_learning(self) -> None:
        """Count verdicts from now on, and do not hold them: nobody learns from them."""
        with self._lock:
            self._is_learning = False
            self._forgotten += len(self._judged)
            self._judged.clear()

    def append(self, entries: Sequence[JournalEntry], done: Done) -> None:
        """Write entries soon; ``done`` is then called, in the thread that writes."""
        self._waiting.put((entries, done))

    def write(self, *entries: JournalEntry) -> None:
        """Write entries; they are on the disk when this returns.

        Raises:
            RunError: they are not.
        """
        written = Future[RunError | None]()
        self.append(entries, written.set_result)
        if (error := written.result()) is not None:
            raise error

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._waiting.put(None)
        self._thread.join()
        self._file.close()

    def _write_all(self) -> None:
        """Write everything that waits with one sync, again and again: the work of the thread."""
        is_open = True
        while is_open:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            requests = [request for request in batch if request is not None]
            is_open = len(requests) == len(batch)
            error = self._put([entry for entries, _ in requests for entry in entries])
            for _, done in requests:
                done(error)

    def _put(self, entries: Sequence[JournalEntry]) -> RunError | None:
        """Write and sync; on an error the file is as it was. Nothing is written behind bytes that
        cannot be taken back."""
        if self._broken is not None:
            return self._broken
        lines = b"".join(_line(entry) for entry in entries)
        try:
            self._file.write(lines)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            run_error = self._failed(f"cannot write {self.path}: {error.strerror}")
            run_error.__cause__ = error  # it is raised in another thread
            return run_error
        self._size += len(lines)
        with self._lock:
            for entry in entries:
                self._keep(entry)
                if isinstance(entry, GenerationBegun):
                    self._forget_before(entry.number)
        return None

    def _failed(self, reason: str) -> RunError:
        """Return the error of a failed write. The disk may fail again while the file is mended."""
        try:
            self._take_back()
        except (OSError, RunError):
            self._broken = RunError(f"{reason}; mend the disk, then start the service again")
            return self._broken
        return RunError(f"{reason}; free some space")

    def _take_back(self) -> None:
        """Remove what was written of a batch. Closing a file with unwritten bytes raises again."""
        with suppress(OSError):
            self._file.close()
        os.truncate(self.path, self._size)
        self._file = self._opened()

    def _opened(self) -> BinaryIO:
        try:
            return open_own(self.path, "ab")
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error

    def _read(self, generation: int) -> int:
        """Read all entries; return the number of whole bytes. A torn end is cut off."""
        size = 0
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if not line.endswith(b"\n"):
                        os.truncate(self.path, size)
                        break
                    entry = _entry(line, f"{self.path} line {number}")
                    self._keep(entry)
                    if isinstance(entry, GenerationBegun) and entry.number <= generation:
                        self._forget_before(entry.number)
                    size += len(line)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror}") from error
        return size

    def _keep(self, entry: JournalEntry) -> None:
        match entry:
            case GivenAnswer():
                self._answers[entry.id] = entry
                if len(self._answers) > MAX_JUDGEABLE:
                    name, oldest = self._answers.popitem(last=False)
                    for choice in range(len(oldest.replies)):
                        self._said.pop((name, choice), None)
            case GivenVerdict():
                key, answer = (entry.id, entry.choice), self._answers.get(entry.id)
                first = self._said.get(key)
                if first is not None and adds_correction(entry, first):
                    self._said[key] = whole = replace(first, correction=entry.correction)
                    # What a generation has begun to learn from stays as it was.
                    for place in range(max(self._learned - self._forgotten, 0), len(self._judged)):
                        if (one := self._judged[place]).verdict is first:
                            self._judged[place] = JudgedReply(one.answer, whole)
                elif first is None and answer is not None:  # the first one counts
                    self._said[key] = entry
                    if self._is_learning:
                        self._judged.append(JudgedReply(answer, entry))
                    else:
                        self._forgotten += 1
            case GenerationBegun():
                self._until[entry.number] = entry.verdicts
                self._learned = max(self._learned, entry.verdicts)

    def _before(self, generation: int) -> int:
        """Return the number of verdicts of earlier generations."""
        counts = (count for number, count in self._until.items() if number < generation)
        return max(counts, default=0)

    def _forget_before(self, generation: int) -> None:
        """Forget the verdicts of earlier generations, which have been learned."""
        past = self._judged[: max(self._before(generation) - self._forgotten, 0)]
        del self._judged[: len(past)]
        self._forgotten += len(past)


def adds_correction(verdict: GivenVerdict, first: GivenVerdict) -> bool:
    """Return True for a second verdict that is the first one, with a correction."""
    is_same = verdict.is_accepted == first.is_accepted
    return is_same and bool(verdict.correction) and not first.correction


def _line(entry: JournalEntry) -> bytes:
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    if not fields.get("correction"):  # few bring one
        fields.pop("correction", None)
    return json_line({_NAMES[type(entry)]: fields})


def _entry(line: bytes, where: str) -> JournalEntry:
    try:
        ((name, fields),) = dict(json.loads(line)).items()
        return _ADAPTERS[name].validate_python(fields)
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise RunError(f"{where} is damaged: {line[:80]!r}") from error

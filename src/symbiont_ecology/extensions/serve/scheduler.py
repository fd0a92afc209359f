"""From waiting requests to answers: rows of all users in one batch, token after token."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from symbiont_ecology.errors import EcologyError, RunError
from symbiont_ecology.extensions.serve.journal import GivenAnswer, Journal
from symbiont_ecology.extensions.serve.world import ServingSnapshot, generator_of
from symbiont_ecology.host.engines import AnswerBatch
from symbiont_ecology.host.streaming import LostRow, NewToken, RowId, StreamedRequest
from symbiont_ecology.types import Decoding, Item, OrganelleId, behind


class LateError(EcologyError):
    """An answer was not done in time."""


FADING = 0.9
"""What is left of a measured time with each step in which it is only used."""
Encode = Callable[[Sequence[str]], Sequence[np.ndarray]]
"""Token ids of prompts."""


@dataclass(eq=False)
class AnswerJob:
    """Somebody waits for ``choices`` replies to an item.

    ``wanted`` names the organelle that is asked; None lets the strategy decide. ``told``
    hears every new token, with the number of the reply, in the scheduler's thread. ``done`` hears
    once that all of it is on the disk, or why it is not, in the journal's thread.
    """

    id: str
    item: Item
    decoding: Decoding
    choices: int
    seed: int | None
    alternatives: int
    deadline: float
    """By ``time.monotonic``: who is not done then is given up."""
    wanted: OrganelleId | None = None
    is_limited: bool = True
    """Whether it must have room for all tokens of its item's limit: somebody named that number."""
    has_scores: bool = False
    """Whether log-probabilities are told."""
    told: Callable[[int, NewToken], None] | None = None
    done: Callable[[EcologyError | None], None] = lambda error: None
    organelle: OrganelleId = ""
    prompt_tokens: int = 0
    replies: list[list[NewToken]] = field(default_factory=list)
    is_cancelled: bool = False

    @property
    def texts(self) -> list[str]:
        """The replies so far."""
        return ["".join(token.text for token in reply) for reply in self.replies]


@dataclass
class Tally:
    """What a scheduler has done since it began."""

    answers: int = 0
    refused: int = 0
    late: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0


class Scheduler:
    """Answers jobs of all users in one batch. ``submit`` and ``cancel`` may be called by any
    thread, the rest by one."""

    def __init__(
        self, batch: AnswerBatch, encode: Encode, journal: Journal, *, most: int, positions: int
    ) -> None:
        self._batch, self._encode, self._journal, self._most = batch, encode, journal, most
        self._positions = positions  # of the host
        self._new, self._changed = deque[AnswerJob](), threading.Condition()
        self._pending = deque[tuple[AnswerJob, int, StreamedRequest]]()
        self._rows: dict[RowId, tuple[AnswerJob, int]] = {}
        self._open = 0
        self._writing = 0.0  # seconds that a step took in which no prompt was read
        self._reads_from = 0.0  # by ``time.monotonic``; before it no prompts, while others write
        self.tally = Tally()

    @property
    def open_jobs(self) -> int:
        """Jobs that are not done."""
        return self._open

    @property
    def rows(self) -> int:
        """Rows that are being written."""
        return len(self._batch)

    def submit(self, job: AnswerJob) -> bool:
        """Takes a job, unless too many wait."""
        with self._changed:
            if self._open >= self._most:
                self.tally.refused += 1
                return False
            self._open += 1
            self._new.append(job)
            self._changed.notify()
        return True

    def cancel(self, job: AnswerJob) -> None:
        """Nobody waits for a job any more."""
        job.is_cancelled = True

    def wait(self, seconds: float) -> None:
        """Returns when somebody submits something, or after so long."""
        with self._changed:
            if not self._new:
                self._changed.wait(seconds)

    def wake(self) -> None:
        """Ends a wait."""
        with self._changed:
            self._changed.notify()

    def step(self, snapshot: ServingSnapshot) -> bool:
        """Lets newcomers in, and tells what was written; False if nothing was.

        While rows are being written, prompts are read in about half of the time at most, so that a
        long answer does not wait for every newcomer. If reading took longer than that, newcomers
        wait for the difference, and are read together.
        """
        may_read = not self._rows or time.monotonic() >= self._reads_from
        if may_read:
            self._take_in(snapshot)
        self._drop()
        began, is_writing = time.monotonic(), bool(self._rows)
        has_newcomers = may_read and self._let_in()
        messages = self._batch.step()
        if is_writing:
            self._pace(time.monotonic() - began, has_newcomers=has_newcomers)
        for message in messages:
            if message.row not in self._rows:  # another reply to the same job was lost
                continue
            if isinstance(message, LostRow):
                self._give_up([self._rows[message.row][0]], RunError(str(message.error)))
            else:
                self._tell(message)
        return bool(messages)

    def _let_in(self) -> bool:
        """As many rows as fit; False if there are none."""
        rows = self._batch.join([request for *_, request in self._pending])
        for row in rows:
            job, choice, _ = self._pending.popleft()
            self._rows[row] = job, choice
        return bool(rows)

    def _pace(self, seconds: float, *, has_newcomers: bool) -> None:
        """When prompts may be read again, after a step of so many seconds beside rows that are
        being written."""
        if has_newcomers:
            reading = seconds - self._writing
            self._reads_from = time.monotonic() + max(reading - self._writing, 0.0)
            self._writing *= FADING  # so that it is measured anew, sooner or later
        else:
            self._writing = seconds

    def _take_in(self, snapshot: ServingSnapshot) -> None:
        """Says who answers the new jobs."""
        with self._changed:
            jobs = list(self._new)
            self._new.clear()
        unnamed = [job for job in jobs if job.wanted is None]
        try:
            takers = snapshot.takers([job.item for job in unnamed]) if unnamed else []
        except EcologyError as error:
            for job in unnamed:
                self._end(job, error)
            jobs, takers = [job for job in jobs if job.wanted is not None], []
        organelle_ids = iter(takers)
        for job in jobs:
            job.organelle = next(organelle_ids) if job.wanted is None else job.wanted
            try:
                self._queue(job, snapshot)
            except EcologyError as error:
                self._end(job, error)

    def _queue(self, job: AnswerJob, snapshot: ServingSnapshot) -> None:
        weights, is_drawn = snapshot.adapter(job.organelle), job.decoding.temperature > 0
        text = job.item.prompt
        (prompt,) = self._encode([behind(weights.phrase, text) if weights else text])
        job.prompt_tokens, limit = len(prompt), job.item.reply_limit
        if not job.is_limited:
            limit = max(min(limit, self._positions - len(prompt)), 1)
        job.replies = [[] for _ in range(job.choices)]
        requests = [
            StreamedRequest(
                prompt,
                weights,
                limit,
                job.decoding,
                generator_of(job.seed, choice) if is_drawn else None,
                job.alternatives,
                job.organelle,
            )
            for choice in range(job.choices)
        ]
        self._batch.check(requests[0])
        self._pending.extend((job, choice, request) for choice, request in enumerate(requests))
        self.tally.prompt_tokens += len(prompt)

    def _drop(self) -> None:
        """Jobs that nobody waits for, and those that are late, are given up."""
        now, pending = time.monotonic(), [job for job, *_ in self._pending]
        leavers = {
            id(job): job
            for job in (*pending, *(job for job, _ in self._rows.values()))
            if job.is_cancelled or job.deadline < now
        }
        self.tally.late += sum(not job.is_cancelled for job in leavers.values())
        error = LateError("the answer took too long: ask for fewer tokens")
        self._give_up(list(leavers.values()), error)

    def _give_up(self, jobs: Sequence[AnswerJob], error: EcologyError) -> None:
        """All rows of these jobs leave, and who asked is told why."""
        ids = set(map(id, jobs))
        self._pending = deque(entry for entry in self._pending if id(entry[0]) not in ids)
        rows = [row for row, (job, _) in self._rows.items() if id(job) in ids]
        if rows:
            self._batch.leave(rows)
        for row in rows:
            del self._rows[row]
        for job in jobs:
            self._end(job, error)

    def _tell(self, token: NewToken) -> None:
        job, choice = self._rows[token.row]
        job.replies[choice].append(token)
        self.tally.new_tokens += 1
        if job.told is not None:
            job.told(choice, token)
        if not token.end:
            return
        del self._rows[token.row]
        if all(reply and reply[-1].end for reply in job.replies):
            self._finish(job)

    def _finish(self, job: AnswerJob) -> None:
        """The answer goes to the disk, and then to who asked."""
        item = job.item
        answer = GivenAnswer(
            job.id,
            item.habitat,
            item.family,
            item.prompt,
            tuple(job.texts),
            job.organelle,
            _sureness(job),
        )
        self._journal.append([answer], lambda error: self._end(job, error))

    def _end(self, job: AnswerJob, error: EcologyError | None) -> None:
        with self._changed:
            self._open -= 1
            self.tally.answers += error is None
        job.done(error)


def _sureness(job: AnswerJob) -> tuple[float, ...]:
    """The log-probability of each reply, if all ended by themselves: as they are learned, too."""
    if job.decoding.stop or any(reply[-1].end != "stop" for reply in job.replies):
        return ()
    sums = tuple(sum(token.log_probability for token in reply) for reply in job.replies)
    return sums if all(map(math.isfinite, sums)) else ()


def usage(job: AnswerJob) -> Mapping[str, int]:
    """Tokens read and written for a job."""
    new_tokens = sum(map(len, job.replies))
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": job.prompt_tokens + new_tokens,
    }

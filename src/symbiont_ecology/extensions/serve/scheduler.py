"""From waiting requests to answers: rows of all users in one batch, token after token."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from symbiont_ecology.base.errors import EcologyError, HostError, RunError
from symbiont_ecology.base.types import OrganelleId, prepend_phrase
from symbiont_ecology.extensions.serve.journal import GivenAnswer, Journal
from symbiont_ecology.extensions.serve.messages import Ask, RequestRefusedError
from symbiont_ecology.extensions.serve.streaming import (
    AnswerBatch,
    LostRow,
    NewToken,
    RowId,
    StreamedRequest,
)
from symbiont_ecology.extensions.serve.world import ServingSnapshot, generator_of

DECAY = 0.9
"""Factor on a measured time for each step in which it is only used."""
Clock = Callable[[], float]
"""Seconds that never go back, as ``time.monotonic``."""


@dataclass(eq=False)
class AnswerJob:
    """A request in work, and its replies so far.

    ``told`` hears every new token, with the number of the reply, in the scheduler's thread.
    ``done`` hears once that all of it is on the disk, or why it is not, in the journal's thread.
    """

    ask: Ask
    told: Callable[[int, NewToken], None] | None = None
    done: Callable[[EcologyError | None], None] = lambda error: None
    organelle: OrganelleId = ""
    prompt_tokens: int = 0
    replies: list[list[NewToken]] = field(init=False)
    created: int = field(default_factory=lambda: int(datetime.now(UTC).timestamp()))
    """Seconds since 1970."""
    is_cancelled: bool = False
    submitted: float = 0.0
    """Moment on the scheduler's clock."""

    def __post_init__(self) -> None:
        self.replies = [[] for _ in range(self.ask.choices)]

    @property
    def texts(self) -> list[str]:
        """The replies so far."""
        return ["".join(token.text for token in reply) for reply in self.replies]

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens read and written, in the words of OpenAI's API."""
        new_tokens = sum(map(len, self.replies))
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": new_tokens,
            "total_tokens": self.prompt_tokens + new_tokens,
        }


class Scheduler:
    """Answers jobs of all users in one batch. ``submit`` and ``cancel`` may be called by any
    thread, the rest by one."""

    def __init__(
        self,
        batch: AnswerBatch,
        encode: Callable[[Sequence[str]], Sequence[np.ndarray]],
        journal: Journal,
        positions: int,
        clock: Clock = time.monotonic,
    ) -> None:
        self._batch, self._encode, self._journal, self._clock = batch, encode, journal, clock
        self._positions = positions  # of the host
        self._new, self._changed = deque[AnswerJob](), threading.Condition()
        self._pending = deque[tuple[AnswerJob, int, StreamedRequest]]()
        self._rows: dict[RowId, tuple[AnswerJob, int]] = {}
        self._writing = 0.0  # seconds that a step took in which no prompt was read
        self._prefill_from = 0.0  # on the clock; before it no prompts, while others write
        self.open_jobs = 0
        """Number of jobs that are not done."""
        names = "answers", "answer_seconds", "late", "prompt_tokens", "new_tokens"
        self.tally: dict[str, float] = dict.fromkeys(names, 0)
        """Counts since it began."""

    @property
    def rows(self) -> int:
        """Number of rows that are being written."""
        return len(self._batch)

    def submit(self, job: AnswerJob) -> None:
        """Take a job."""
        job.submitted = self._clock()
        with self._changed:
            self.open_jobs += 1
            self._new.append(job)
            self._changed.notify()

    def cancel(self, job: AnswerJob) -> None:
        """Give up a job for which nobody waits any more."""
        job.is_cancelled = True

    def wait(self, seconds: float) -> None:
        """Return when a job is submitted, or after so many seconds."""
        with self._changed:
            if not self._new:
                self._changed.wait(seconds)

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._changed.notify()

    def step(self, snapshot: ServingSnapshot) -> bool:
        """Write one token of every row and prefill new ones; return True if anything was written.

        While rows are being written, prefill takes about half of the time at most, so that a long
        answer does not wait for every new prompt. If it took longer than that, new prompts wait for
        the difference, and are read together.
        """
        may_prefill = not self._rows or self._clock() >= self._prefill_from
        if may_prefill:
            self._choose(snapshot)
        self._drop()
        began, is_writing = self._clock(), bool(self._rows)
        has_prefilled = may_prefill and self._admit()
        messages = self._batch.step()
        if is_writing:
            self._pace(self._clock() - began, has_prefilled=has_prefilled)
        for message in messages:
            if message.row not in self._rows:  # another reply to the same job was lost
                continue
            if isinstance(message, LostRow):
                job, _ = self._rows[message.row]
                self._give_up([job], RunError(str(message.error)))
            else:
                self._tell(message)
        return bool(messages)

    def _admit(self) -> bool:
        """Let as many rows join as fit; return True if any did."""
        rows = self._batch.join([request for *_, request in self._pending])
        for row in rows:
            job, choice, _ = self._pending.popleft()
            self._rows[row] = job, choice
        return bool(rows)

    def _pace(self, seconds: float, *, has_prefilled: bool) -> None:
        """Set when prompts may be read again, after a step of so many seconds in which rows were
        written, too."""
        if has_prefilled:
            reading = seconds - self._writing
            self._prefill_from = self._clock() + max(reading - self._writing, 0.0)
            self._writing *= DECAY  # so that it is measured anew sooner or later
        else:
            self._writing = seconds

    def _choose(self, snapshot: ServingSnapshot) -> None:
        """Choose who answers the new jobs."""
        with self._changed:
            jobs = list(self._new)
            self._new.clear()
        unnamed = [job for job in jobs if job.ask.wanted is None]
        try:
            takers = snapshot.takers([job.ask for job in unnamed]) if unnamed else []
        except EcologyError as error:
            for job in unnamed:
                self._end(job, error)
            jobs, takers = [job for job in jobs if job.ask.wanted is not None], []
        organelle_ids = iter(takers)
        for job in jobs:
            job.organelle = next(organelle_ids) if job.ask.wanted is None else job.ask.wanted
            try:
                self._queue(job, snapshot)
            except EcologyError as error:
                self._end(job, error)

    def _queue(self, job: AnswerJob, snapshot: ServingSnapshot) -> None:
        ask, weights = job.ask, snapshot.adapter(job.organelle)
        text = prepend_phrase(weights.phrase, ask.prompt) if weights else ask.prompt
        try:
            (prompt,) = self._encode([text])
        except HostError as error:
            raise HostError(f"messages: {error}") from error
        job.prompt_tokens = len(prompt)
        limit = max(min(ask.limit, self._positions - len(prompt)), 1)
        requests = [
            StreamedRequest(
                prompt,
                weights,
                limit,
                ask.decoding,
                generator_of(ask.seed, choice) if ask.decoding.temperature > 0 else None,
                ask.alternatives,
                ask.schema,
            )
            for choice in range(ask.choices)
        ]
        self._batch.check(requests[0])
        self._pending.extend((job, choice, request) for choice, request in enumerate(requests))
        self.tally["prompt_tokens"] += len(prompt)

    def _drop(self) -> None:
        """Give up jobs that nobody waits for, and those that are late."""
        now, pending = self._clock(), [job for job, *_ in self._pending]
        leavers = {
            id(job): job
            for job in (*pending, *(job for job, _ in self._rows.values()))
            if job.is_cancelled or now > job.submitted + job.ask.seconds
        }
        self.tally["late"] += sum(not job.is_cancelled for job in leavers.values())
        error = RequestRefusedError(504, "the answer took too long: ask for fewer tokens")
        self._give_up(list(leavers.values()), error)

    def _give_up(self, jobs: Sequence[AnswerJob], error: EcologyError) -> None:
        """Remove all rows of these jobs, and tell why."""
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
        self.tally["new_tokens"] += 1
        if job.told is not None:
            job.told(choice, token)
        if not token.end:
            return
        del self._rows[token.row]
        if all(reply and reply[-1].end for reply in job.replies):
            self._finish(job)

    def _finish(self, job: AnswerJob) -> None:
        """Write the answer to the disk; only then it is told."""
        ask, texts = job.ask, tuple(job.texts)
        scores = _log_probabilities(job)
        answer = GivenAnswer(ask.id, ask.user, ask.family, ask.prompt, texts, job.organelle, scores)
        self._journal.append([answer], lambda error: self._end(job, error))

    def _end(self, job: AnswerJob, error: EcologyError | None) -> None:
        with self._changed:
            self.open_jobs -= 1
            if error is None:
                self.tally["answers"] += 1
                self.tally["answer_seconds"] += self._clock() - job.submitted
        job.done(error)


def _log_probabilities(job: AnswerJob) -> tuple[float, ...]:
    """Return the log-probability of each reply, if all ended by themselves: only then they are
    learned as they were written."""
    if job.ask.decoding.stop or any(reply[-1].end != "stop" for reply in job.replies):
        return ()
    sums = tuple(sum(token.log_probability for token in reply) for reply in job.replies)
    return sums if all(map(math.isfinite, sums)) else ()

"""Who is let in when: prompts are read beside answers that are being written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import numpy as np
import pytest

from symbiont_ecology.base.types import Decoding
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.journal import Journal
from symbiont_ecology.extensions.serve.messages import Ask
from symbiont_ecology.extensions.serve.scheduler import AnswerJob, Scheduler
from symbiont_ecology.extensions.serve.streaming import NewToken, RowId, StreamedRequest
from symbiont_ecology.extensions.serve.world import ServingSnapshot

READING, WRITING = 8.0, 2.0
"""Seconds that prompts take, however many they are, and a token of all rows."""
LONG = 1000
"""Tokens of an answer."""


@dataclass
class SlowBatch:
    """Rows that never end, and a clock that only their work moves."""

    now: float = 0.0
    hiccup: float = 0.0
    """Seconds that the next token takes beside its own."""
    joined: list[int] = field(default_factory=list)
    """How many came in, each time that prompts were read."""
    numbers: count[int] = field(default_factory=count)
    rows: list[RowId] = field(default_factory=list)
    unread: list[RowId] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def check(self, request: StreamedRequest) -> None:
        pass

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        rows = [next(self.numbers) for _ in requests]
        if rows:
            self.joined.append(len(rows))
        self.unread += rows
        return rows

    def step(self) -> list[NewToken]:
        self.now += WRITING * bool(self.rows) + READING * bool(self.unread) + self.hiccup
        self.hiccup = 0.0
        self.rows, self.unread = [*self.rows, *self.unread], []
        return [NewToken(row, 0, -1.0, "a") for row in self.rows]

    def leave(self, rows: Sequence[RowId]) -> None:
        self.rows = [row for row in self.rows if row not in rows]


class NobodyLives:
    """The bare host answers."""

    def adapter(self, organelle_id: str) -> None:
        return None


SNAPSHOT = cast(ServingSnapshot, NobodyLives())


@pytest.fixture
def batch() -> SlowBatch:
    return SlowBatch()


@pytest.fixture
def scheduler(batch: SlowBatch) -> Scheduler:
    def encode(texts: Sequence[str]) -> list[np.ndarray]:
        return [np.arange(4) for _ in texts]

    return Scheduler(batch, encode, cast(Journal, None), 512, lambda: batch.now)


def job(name: str) -> AnswerJob:
    return AnswerJob(Ask(name, "ada", "math.add", "1+1", LONG, Decoding(), 1e9, wanted=HOST))


def test_who_comes_to_an_empty_batch_is_read_at_once(
    scheduler: Scheduler, batch: SlowBatch
) -> None:
    first, second = job("first"), job("second")
    scheduler.submit(first)
    scheduler.step(SNAPSHOT)
    scheduler.cancel(first)
    scheduler.step(SNAPSHOT)
    assert len(batch) == 0
    scheduler.submit(second)
    scheduler.step(SNAPSHOT)
    assert batch.joined == [1, 1]


def test_prompts_take_half_of_the_time_at_most_while_others_write(
    scheduler: Scheduler, batch: SlowBatch
) -> None:
    """Newcomers at every token: they are read together, and rows write as long as that took."""
    scheduler.submit(job("first"))
    steps = 50
    for number in range(steps):
        scheduler.step(SNAPSHOT)
        scheduler.submit(job(f"newcomer {number}"))
    reading, writing = READING * len(batch.joined), WRITING * steps
    assert writing - READING <= reading <= writing + READING
    assert set(batch.joined[3:]) == {READING / WRITING}  # once it is known how long a token takes


def test_one_slow_token_is_forgotten(scheduler: Scheduler, batch: SlowBatch) -> None:
    """As long as it is not, prompts are read at every token."""
    scheduler.submit(job("first"))
    for number in range(200):
        if number == 20:
            batch.hiccup = 50 * READING
        scheduler.step(SNAPSHOT)
        scheduler.submit(job(f"newcomer {number}"))
    assert set(batch.joined[-10:]) == {READING / WRITING}

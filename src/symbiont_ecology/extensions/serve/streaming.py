"""Messages of a service: a request, its tokens, or why a row is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import EcologyError, HostError
from symbiont_ecology.base.types import Decoding

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel

RowId = int


@dataclass(frozen=True, eq=False)
class StreamedRequest:
    """A prompt, as token ids, for one adapter (None: the bare host), with its own way to choose
    tokens.

    Without a generator the answer is greedy. ``alternatives`` is how many of the most likely tokens
    are told beside each one; None tells no log-probabilities. ``schema`` is a JSON schema that the
    answer follows, or empty.
    """

    prompt: np.ndarray
    weights: AdapterWeights | None
    max_new_tokens: int
    decoding: Decoding = Decoding()  # noqa: RUF009  (frozen)
    generator: np.random.Generator | None = None
    alternatives: int | None = None
    schema: str = ""

    def check(self, most: int) -> None:
        """Check that prompt and answer have room in a host's ``most`` positions.

        Raises:
            HostError: they have none, or there is no prompt.
        """
        new_tokens = self.max_new_tokens
        if not len(self.prompt):
            raise HostError("expected a prompt of at least one token, got none: write something")
        if len(self.prompt) + new_tokens > most:
            raise HostError(
                f"messages: expected at most {most} tokens with the answer, got {len(self.prompt)} "
                f"and {new_tokens}: shorten the prompt, or ask for fewer"
            )


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its log-probability (nats, temperature 1). The bytes that it wrote may be a part
    of a character; a special token has none, since no text shows it."""

    text: str
    written: bytes
    log_probability: float

    @classmethod
    def of(cls, written: bytes, log_probability: float) -> ScoredToken:
        """Return the token that writes these bytes."""
        return cls(written.decode("utf-8", "replace"), written, log_probability)


@dataclass(frozen=True)
class NewToken:
    """The next token of a row, with its log-probability (nats, temperature 1).

    ``text`` is what can be shown since the last one: it may be empty, or more than this token.
    ``end`` says why the row has left: ``stop`` (it ended by itself, or at a stop text), ``length``,
    or empty while it goes on. ``scored`` are the token itself and then the most likely ones, of a
    row that asks for them, and of no token that ends an answer.
    """

    row: RowId
    token_id: int
    log_probability: float
    text: str
    end: str = ""
    scored: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True)
class LostRow:
    """A row that has left without an end, and why."""

    row: RowId
    error: EcologyError


class AnswerBatch(Protocol):
    """Answers that are being written; rows join and leave between tokens (``ContinuousBatch``)."""

    def __len__(self) -> int:
        """Return the number of rows that are being written, or wait for their prompts to be
        read."""

    def check(self, request: StreamedRequest) -> None:
        """Check that a request can be answered at all.

        Raises:
            HostError: it cannot.
            AdapterError: its adapter does not fit.
        """

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        """Take in the first of these, as many as there is room for; return their rows' ids."""

    def step(self) -> Sequence[NewToken | LostRow]:
        """Return what was written since the last step. Rows that end leave, and so do lost ones."""

    def leave(self, rows: Sequence[RowId]) -> None:
        """Drop rows that nobody waits for any more."""


@runtime_checkable
class BatchingEngine(Protocol):
    """An engine that has a batch of its own for a service. The kernel has ``ContinuousBatch``."""

    def batch(self, kernel: HostKernel, slots: int) -> AnswerBatch:
        """Return the batch, which answers by ``slots`` adapters at a time.

        Raises:
            HostError: see ``Engine.host``.
        """

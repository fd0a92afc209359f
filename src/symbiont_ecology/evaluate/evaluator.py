"""Asking greedily, with a cache: what was asked of whom is not asked again.

A greedy answer depends on the host, the adapter, the prompt, the limit of new tokens and the texts
that end it, and on nothing else. So an evaluation that was killed goes on where it stopped, and
another routing costs only what is new. The cache is one SQLite file, and processes can share it:
also those of several machines, so it has no write-ahead log, which works on one machine alone.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import is_writable
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Decoding, Item, OrganelleId
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.run.act import Question, roll_out
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import Judgement, judge

ITEMS_PER_WRITE = 512
"""Items between two entries in the cache: what a killed evaluation loses at most."""
LOCK_SECONDS = 60.0
"""Time to wait for another process that is writing."""

Progress = Callable[[int], None]
"""Called with the number of items that were just answered."""


def no_progress(count: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class CachedAnswer:
    """A text, the tokens of its prompt, its own tokens and their log-probabilities (tokens,), in
    nats."""

    text: str
    prompt_tokens: int
    token_ids: tuple[int, ...]
    log_probabilities: np.ndarray


class AnswerCache:
    """Answers by what decides them. In a folder that cannot be written, it knows what is there and
    keeps nothing new.

    Raises:
        RunError: the file cannot be opened or is no cache of answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_read_only = path.parent.is_dir() and not is_writable(path.parent)
        if not self._is_read_only:
            with self._opened() as connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, "
                    "prompt_tokens INTEGER NOT NULL, ids BLOB NOT NULL, nats BLOB NOT NULL) "
                    "WITHOUT ROWID"
                )

    @staticmethod
    def key(host: str, adapter: str, prompt: str, limit: int, stops: Sequence[str] = ()) -> bytes:
        """Return all that a greedy answer depends on, as one hash."""
        text = json.dumps((host, adapter, limit, prompt, *stops))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, CachedAnswer]:
        """Return the answers that are known."""
        query, answers = "SELECT * FROM answers WHERE key = ?", dict[bytes, CachedAnswer]()
        if self._is_read_only and not self.path.exists():
            return answers
        with self._opened() as connection:
            for wanted in keys:
                for key, text, prompt_tokens, ids, nats in connection.execute(query, (wanted,)):
                    token_ids = tuple(np.frombuffer(ids, np.int64).tolist())
                    answers[bytes(key)] = CachedAnswer(
                        str(text), int(prompt_tokens), token_ids, np.frombuffer(nats, np.float32)
                    )
        return answers

    def add(self, answers: Mapping[bytes, CachedAnswer]) -> None:
        """Write answers down; they are on disk when this returns."""
        rows = [
            (
                key,
                answer.text,
                answer.prompt_tokens,
                np.array(answer.token_ids, np.int64).tobytes(),
                np.asarray(answer.log_probabilities, np.float32).tobytes(),
            )
            for key, answer in answers.items()
        ]
        if not self._is_read_only:
            with self._opened() as connection:
                query = "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)"
                connection.executemany(query, rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for a transaction."""
        # Where nobody writes, SQLite needs no files beside it.
        options = "?immutable=1" if self._is_read_only else ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            place = f"{self.path.resolve().as_uri()}{options}"
            connection = sqlite3.connect(place, timeout=LOCK_SECONDS, uri=True)
            with closing(connection), connection:
                yield connection
        except (sqlite3.Error, OSError, TypeError, ValueError) as error:
            raise RunError(
                f"cannot keep answers in {self.path}: {error}: delete it, it only saves time"
            ) from error


@dataclass(frozen=True)
class Evaluator:
    """A host, the adapters of those who can be asked, and a cache of what they answered before.

    The cache knows a host by its ``fingerprint``. ``stops`` are texts that end an answer.
    """

    host: Host
    adapter: Callable[[OrganelleId], AdapterWeights]
    cache: AnswerCache | None = None
    fingerprint: str = ""
    progress: Progress = no_progress
    stops: tuple[str, ...] = ()

    def ask(self, items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """Return greedy answers, judged, in the order of the items; ``choices`` says who answers
        which."""
        weights = {name: self.adapter(name) for name in set(choices) if name != HOST}
        digests = {HOST: HOST} | {name: _digest(one) for name, one in weights.items()}
        keys = [
            AnswerCache.key(
                self.fingerprint, digests[choice], item.prompt, item.reply_limit, self.stops
            )
            for item, choice in zip(items, choices, strict=True)
        ]
        by_key = self.cache.find(keys) if self.cache else {}
        misses = list({key: index for index, key in enumerate(keys) if key not in by_key}.values())
        self.progress(len(keys) - len(misses))
        for start in range(0, len(misses), ITEMS_PER_WRITE):
            part = misses[start : start + ITEMS_PER_WRITE]
            questions = [Question(items[index], choices[index]) for index in part]
            greedy = Decoding(stop=self.stops)
            rollouts, _ = roll_out(questions, self.host, weights.__getitem__, greedy)
            fresh = {
                keys[index]: CachedAnswer(
                    rollout.text,
                    rollout.cost.tokens_in,
                    rollout.token_ids,
                    rollout.log_probabilities,
                )
                for index, rollout in zip(part, rollouts, strict=True)
            }
            if self.cache:
                self.cache.add(fresh)
            by_key |= fresh
            self.progress(len(part))
        answers = [by_key[key] for key in keys]
        judgements = judge((item, answer.text) for item, answer in zip(items, answers, strict=True))
        rows = zip(items, choices, answers, judgements, strict=True)
        return [
            self._judged(item, name, weights.get(name), answer, judgement)
            for item, name, answer, judgement in rows
        ]

    def _judged(
        self,
        item: Item,
        name: OrganelleId,
        weights: AdapterWeights | None,
        answer: CachedAnswer,
        judgement: Judgement,
    ) -> Rollout:
        """Return an answer as a rollout, with its verdict and what it would have cost."""
        size = self.host.layout.size(0 if weights is None else weights.rank)
        tokens_in, tokens_out = answer.prompt_tokens, len(answer.token_ids)
        flops = self.host.shape.rollout_flops(size, tokens_in, tokens_out)
        return Rollout(
            item,
            name,
            answer.token_ids,
            answer.log_probabilities,
            answer.text,
            verdict=judgement.verdict,
            reward=judgement.verdict,
            cost=Cost(tokens_in, tokens_out, rows=1, flops=flops),
            fault=judgement.fault,
        )


def _digest(weights: AdapterWeights) -> str:
    """Return what tells one adapter from another."""
    digest = hashlib.blake2b(weights.vector.tobytes(), digest_size=16)
    digest.update(repr((weights.rank, weights.scaling, weights.layout.modules)).encode())
    digest.update(weights.phrase.encode())
    return digest.hexdigest()

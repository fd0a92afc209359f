"""A cache of answers: what was asked of whom, so that nothing is asked twice.

A greedy answer depends on the host, the adapter, the prompt, the limit of new tokens and the texts
that end it, and on nothing else. So an evaluation that was killed goes on where it stopped, and
another routing costs only what is new. The cache is one SQLite file, and processes can share it:
also those of several machines, so it has no write-ahead log, which works on one machine alone.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from symbiont_ecology.errors import RunError
from symbiont_ecology.files import is_writable

LOCK_SECONDS = 60.0
"""Time to wait for another process that is writing."""
KEYS_PER_QUERY = 500


@dataclass(frozen=True, eq=False)
class CachedAnswer:
    """What was answered: its text, the tokens of its prompt, its own tokens and their
    log-probabilities (tokens,), in nats."""

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
        if self._is_read_only:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connection()) as connection, connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, "
                    "prompt_tokens INTEGER NOT NULL, ids BLOB NOT NULL, nats BLOB NOT NULL) "
                    "WITHOUT ROWID"
                )
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"cannot keep answers in {path}: {error}") from error

    @staticmethod
    def key(host: str, adapter: str, prompt: str, limit: int, stops: Sequence[str] = ()) -> bytes:
        """What a greedy answer depends on, as one hash."""
        text = json.dumps((host, adapter, limit, prompt, *stops))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, CachedAnswer]:
        """The answers that are known."""
        answers: dict[bytes, CachedAnswer] = {}
        if self._is_read_only and not self.path.exists():
            return answers
        try:
            with closing(self._connection()) as connection:
                for start in range(0, len(keys), KEYS_PER_QUERY):
                    part = keys[start : start + KEYS_PER_QUERY]
                    marks = ",".join("?" * len(part))
                    query = f"SELECT * FROM answers WHERE key IN ({marks})"
                    for key, text, prompt_tokens, ids, nats in connection.execute(query, part):
                        token_ids = tuple(np.frombuffer(ids, np.int64).tolist())
                        nats = np.frombuffer(nats, np.float32)
                        answers[bytes(key)] = CachedAnswer(
                            str(text), int(prompt_tokens), token_ids, nats
                        )
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise RunError(
                f"cannot read {self.path}: {error}; delete it, it only saves time"
            ) from error
        return answers

    def add(self, answers: Iterable[tuple[bytes, CachedAnswer]]) -> None:
        """Writes answers down; they are on disk when this returns."""
        if self._is_read_only:
            return
        rows = [
            (
                key,
                answer.text,
                answer.prompt_tokens,
                np.array(answer.token_ids, np.int64).tobytes(),
                np.asarray(answer.log_probabilities, np.float32).tobytes(),
            )
            for key, answer in answers
        ]
        try:
            with closing(self._connection()) as connection, connection:
                connection.executemany(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows
                )
        except sqlite3.Error as error:
            raise RunError(f"cannot write {self.path}: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        if self._is_read_only:  # nobody writes, so SQLite needs no files beside it
            place = f"{self.path.resolve().as_uri()}?immutable=1"
            return sqlite3.connect(place, uri=True)
        return sqlite3.connect(self.path, timeout=LOCK_SECONDS)

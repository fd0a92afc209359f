"""A book of answers: what was asked of whom, so that nothing is asked twice.

A greedy reply depends on the host, the adapter, the prompt and the limit of new tokens, and on
nothing else. An evaluation that was killed goes on where it stopped; another routing, or questions
of which some were asked before, cost only what is new. One SQLite file, safe to share between
processes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.errors import RunError

LOCK_SECONDS = 60.0
"""Seconds to wait for another process that is writing."""


@dataclass(frozen=True)
class CachedAnswer:
    """What was said, the tokens read and written, and the mean log-probability per token, in
    nats."""

    text: str
    read: int
    written: int
    confidence: float


class AnswerCache:
    """Replies by what decides them.

    Raises:
        RunError: the file cannot be opened or is no book of answers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connection()) as connection, connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, text TEXT NOT NULL, "
                    "read INTEGER NOT NULL, written INTEGER NOT NULL, confidence REAL NOT NULL) WITHOUT ROWID"
                )
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"cannot keep answers in {path}: {error}") from error

    @staticmethod
    def key(host: str, genome: str, prompt: str, limit: int) -> bytes:
        """What a greedy reply depends on, as one hash."""
        text = "\x1f".join((host, genome, str(limit), prompt))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, CachedAnswer]:
        """The replies that are known."""
        found: dict[bytes, CachedAnswer] = {}
        try:
            with closing(self._connection()) as connection:
                for start in range(0, len(keys), 500):
                    some = keys[start : start + 500]
                    marks = ",".join("?" * len(some))
                    rows = connection.execute(f"SELECT * FROM replies WHERE key IN ({marks})", some)
                    found |= {
                        bytes(key): CachedAnswer(str(t), int(r), int(w), float(c))
                        for key, t, r, w, c in rows
                    }
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise RunError(
                f"cannot read {self.path}: {error}; delete it, it only saves time"
            ) from error
        return found

    def add(self, replies: Iterable[tuple[bytes, CachedAnswer]]) -> None:
        """Writes replies down, on disk when this returns."""
        rows = [(key, one.text, one.read, one.written, one.confidence) for key, one in replies]
        try:
            with closing(self._connection()) as connection, connection:
                connection.executemany(
                    "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?)", rows
                )
        except sqlite3.Error as error:
            raise RunError(f"cannot write {self.path}: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=LOCK_SECONDS)

"""API keys: who may ask, and for whom. The file holds hashes, so that it gives no key away.

{"user": "ada", "sha256": "…"}     a key of one user
{"user": null, "sha256": "…"}      a key of an application, which asks for any user
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.errors import DataError
from symbiont_ecology.extensions.serve.schema import LONGEST_USER_NAME
from symbiont_ecology.files import append_line

PREFIX = "symbiont-"


@dataclass(frozen=True)
class Access:
    """What a key lets its owner do: everything as any user, or as the one that it names."""

    user: str | None = None

    @property
    def is_application(self) -> bool:
        """Whether it may ask for any user, and any organelle by name."""
        return self.user is None


@dataclass(frozen=True)
class ApiKeys:
    """The keys that a service knows, by their hashes."""

    known: Mapping[str, Access]

    @classmethod
    def read(cls, path: Path) -> ApiKeys:
        """The keys of a file.

        Raises:
            DataError: it cannot be read, a line is damaged, or it holds no key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the keys in {path}: {error}") from error
        keys = dict[str, Access]()
        for number, line in enumerate(lines, 1):
            try:
                key = json.loads(line)
                user, digest = key["user"], key["sha256"]
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{path} line {number}: {_EXPECTED}") from error
            if not (user is None or (isinstance(user, str) and user)) or not _is_digest(digest):
                raise DataError(f"{path} line {number}: {_EXPECTED}")
            keys[digest] = Access(user)
        if not keys:
            raise DataError(f"{path} holds no key: symbiont key {path} makes one")
        return cls(keys)

    def access(self, key: str) -> Access | None:
        """What a key lets its owner do; None for one that is not known."""
        return self.known.get(_digest(key))


def add_key(path: Path, user: str | None) -> str:
    """Makes a key and keeps its hash; the key itself is nowhere but in what is returned.

    Raises:
        DataError: no request can name such a user.
        RunError: the file cannot be written.
    """
    if user is not None and not 1 <= len(user) <= LONGEST_USER_NAME:
        raise DataError(
            f"user: expected a name of 1 to {LONGEST_USER_NAME} characters, got {user!r:.40}"
        )
    key = PREFIX + secrets.token_urlsafe(32)
    append_line(path, {"user": user, "sha256": _digest(key)}, is_synced=True)
    return key


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64


_EXPECTED = 'expected {"user": a name or null, "sha256": "64 digits"}'

"""Splits of questions into train, selection and holdout: by hash, the same everywhere.

crc32(family + question) mod 10: 0 and 1 are the holdout, 2 is the selection split, the rest trains.
The embedded host was pre-trained on the train split alone. So held-out questions test ability and
not memory.
"""

from __future__ import annotations

import zlib
from typing import Literal

Split = Literal["train", "selection", "holdout"]


def split_of(family: str, key: str) -> Split:
    """Return the split that a question of a family belongs to, by its split key."""
    bucket = zlib.crc32(f"{family}{key}".encode()) % 10
    return "holdout" if bucket < 2 else "selection" if bucket == 2 else "train"

"""Which payloads train, which select, which are held out: by hash, everywhere and for ever the
same.

crc32(family + payload) mod 10: 0 and 1 are the holdout, 2 is the selection split, the rest trains.
The embedded host was pre-trained on the train split alone, so held-out payloads test ability, not
memory.
"""

from __future__ import annotations

import zlib
from typing import Literal

Split = Literal["train", "selection", "holdout"]


def split_of(family: str, payload: str) -> Split:
    """The split that a payload of a family belongs to."""
    bucket = zlib.crc32(f"{family}{payload}".encode()) % 10
    return "holdout" if bucket < 2 else "selection" if bucket == 2 else "train"

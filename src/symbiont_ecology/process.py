"""What a process does for the machine that it runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def release_memory() -> None:
    """Gives freed memory back to the system, where the C library is glibc.

    Adapters and their moments are blocks of some megabytes that come and go. glibc keeps what was
    freed in pieces that hardly fit again, so a run on a real model grew from 2 to 6 GB within
    minutes. This takes about a millisecond.
    """
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return None

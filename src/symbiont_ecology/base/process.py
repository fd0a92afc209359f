"""Memory and cores of this process and of its machine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil


def memory_mb(field: str = "VmHWM") -> float:
    """Return the memory of this process in units of 1024² bytes: the most that it took, or what it
    takes (``VmRSS``); 0 where there is no /proc, which alone knows the most.

    Not ``ru_maxrss``, which begins with what the parent had.
    """
    return _number(Path("/proc/self/status"), f"{field}:") / 1024


def usable_cores() -> int:
    """Return the number of cores that this process may use (``taskset``)."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_memory(group: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Return the bytes of RAM that this machine (or the container) has, and how many are free.

    ``group`` is the container's folder of limits. Files that were read and may be forgotten are
    free, as on a machine.
    """
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit = group / "memory.max"
    if limit.is_file() and (words := limit.read_text(encoding="utf-8").strip()).isdigit():
        taken = int((group / "memory.current").read_text(encoding="utf-8"))
        taken -= _number(group / "memory.stat", "inactive_file ")
        total, free = min(total, int(words)), min(free, max(int(words) - taken, 0))
    return total, free


def _number(file: Path, field: str) -> int:
    """Return the number behind a field at the beginning of a line; 0 if there is none."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def release_memory() -> None:
    """Give freed memory back to the system, where the C library is glibc.

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

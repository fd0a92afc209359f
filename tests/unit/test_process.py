"""Freed memory goes back to the system."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from symbiont_ecology.process import release_memory


def resident_mb() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_was_freed_in_pieces_is_given_back() -> None:
    blocks = [np.ones(25_000, np.float32) for _ in range(2000)]  # 200 MB, too small for mmap
    kept = blocks[::2]
    before = resident_mb()
    del blocks
    release_memory()
    assert resident_mb() < before - 50
    assert sum(map(len, kept)) == 25_000_000

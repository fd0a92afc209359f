"""Freed memory goes back to the system, and what is there is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from symbiont_ecology.process import machine_memory, memory_mb, release_memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_was_freed_in_pieces_is_given_back() -> None:
    blocks = [np.ones(25_000, np.float32) for _ in range(2000)]  # 200 MB, too small for mmap
    kept = blocks[::2]
    before = memory_mb("VmRSS")
    del blocks
    release_memory()
    assert memory_mb("VmRSS") < before - 50
    assert sum(map(len, kept)) == 25_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_knows_what_it_takes_and_what_there_is() -> None:
    total, free = machine_memory()
    assert 0 < free <= total
    assert 0 < memory_mb("VmRSS") <= memory_mb() < total / 2**20
    assert memory_mb("NoSuchField") == 0.0

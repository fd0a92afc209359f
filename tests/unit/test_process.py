"""Freed memory goes back to the system, and what is there is known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from symbiont_ecology.base.process import machine_memory, memory_mb, release_memory


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_was_freed_in_pieces_is_given_back() -> None:
    blocks = [np.ones(25_000, np.float32) for _ in range(2000)]  # 200 MB, too small for mmap
    kept = blocks[::2]
    before = memory_mb("VmRSS")
    del blocks
    release_memory()
    assert memory_mb("VmRSS") < before - 50
    assert sum(map(len, kept)) == 25_000_000


def test_what_a_container_takes_already_is_not_free_in_it(tmp_path: Path) -> None:
    assert machine_memory(tmp_path)[0] > 1000  # without limits it is the machine's
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\nactive_file 50\ninactive_file 100\n")
    assert machine_memory(tmp_path) == (1000, 400)  # files that were read give way
    (tmp_path / "memory.current").write_text("1200\n")
    assert machine_memory(tmp_path) == (1000, 0)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory(tmp_path)[1] > 1000

"""Tiny hosts for the contract tests, made once per session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for ``hosts``, shared with the benchmarks
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))  # for ``host_recipe``

from hosts import KINDS, make_host
from symbiont_ecology.host.loading import EMBEDDED_FOLDER


@pytest.fixture(scope="session")
def host_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random host of every kind, and the one that ships: folder by kind."""
    torch.set_num_threads(1)
    made = {kind: make_host(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
    return made | {"embedded": EMBEDDED_FOLDER}

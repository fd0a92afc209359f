"""Runs of methods without an economy."""

from __future__ import annotations

from pathlib import Path

import pytest

from seen import METHODS, lived_to_its_end, method_plan


@pytest.fixture(scope="session")
def methods(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each method."""
    folder = tmp_path_factory.mktemp("methods")
    return {name: lived_to_its_end(folder / name, method_plan(name)) for name in METHODS}

"""A suite that was run once, and what types commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from command_fixtures import host, lived, small, symbiont  # noqa: F401
from killing import COMMAND
from tiny import TINY


@pytest.fixture(scope="session")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protocol") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def suite(protocol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete suite, run once, however many processes test."""
    mine = tmp_path_factory.getbasetemp()
    place = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    with FileLock(place / "suite.lock"):
        if not (place / "suite-is-complete").exists():
            words = ["suite", protocol, "--out", place / "suite", "--workers", "2"]
            subprocess.run([*COMMAND, *words], check=True)
            (place / "suite-is-complete").touch()
    return Path(shutil.copytree(place / "suite", mine / "whole-suite"))

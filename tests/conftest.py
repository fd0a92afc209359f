"""Ground of all tests: this folder is importable (``toy``, ``hosts``), and so are the benchmarks
(``life_history``, ``fork``); properties repeat their examples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--kills``: how often the killed run is killed."""
    parser.addoption(
        "--kills", type=int, default=5, help="SIGKILLs in tests/e2e/test_resume_kill.py"
    )


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How often to kill."""
    return int(request.config.getoption("--kills"))

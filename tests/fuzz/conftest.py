"""Campaigns of damage and nonsense: ``pytest tests/fuzz --cases 2000``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cases``: how many cases a campaign tries."""
    parser.addoption("--cases", type=int, default=200, help="cases of every campaign in tests/fuzz")


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many cases to try."""
    return int(request.config.getoption("--cases"))

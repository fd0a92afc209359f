"""``--cases``: how many inputs each fuzzer makes up, as in ``pytest tests/fuzz --cases 3000``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cases``, where this folder is named on the command line."""
    parser.addoption("--cases", type=int, default=200, help="inputs of each test in tests/fuzz")


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many inputs to try."""
    return int(request.config.getoption("cases", 200))

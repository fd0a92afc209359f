"""Ground of all tests: this folder is importable (``toy``, ``hosts``), properties repeat their
examples."""

from __future__ import annotations

import pytest
from hypothesis import settings

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

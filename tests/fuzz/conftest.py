"""How many cases the fuzzers draw: ``--cases``."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cases``: how many of each fuzzer."""
    parser.addoption("--cases", type=int, default=200, help="cases of each test in tests/fuzz")


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many; the option is known where this folder alone is tested."""
    return int(request.config.getoption("--cases", default=200))

"""A run whose adapters can be asked, and questions for it."""

from __future__ import annotations

import pytest

from asked import learned
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.measure import LoadedRun


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return LoadedRun.of_run(learned(tmp_path_factory.mktemp("evaluation") / "run"))


@pytest.fixture(scope="module")
def questions(candidates: LoadedRun) -> list[Item]:
    return candidates.items(60)

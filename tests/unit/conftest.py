"""A toy ecology that has learned, and a file of questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from asked import learned
from lines import jsonl, rows
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.measure import LoadedRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy ecology that has learned."""
    return learned(tmp_path_factory.mktemp("evaluation") / "run")


@pytest.fixture(scope="module")
def candidates(run: Path) -> LoadedRun:
    return LoadedRun.of_run(run)


@pytest.fixture(scope="module")
def questions(candidates: LoadedRun) -> list[Item]:
    return candidates.items(60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eighty lines."""
    return jsonl(tmp_path / "quiz.jsonl", rows())

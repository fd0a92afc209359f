"""A toy ecology that has learned, and a file of questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from asked import FAMILIES
from lines import jsonl, rows
from symbiont_ecology.engine.run import start
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.types import Item
from toy import ToyHost, toy_config, toy_ecology


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy ecology that has learned."""
    folder = tmp_path_factory.mktemp("evaluation") / "run"
    strategy = toy_ecology(founders=4, capacity=6, learning_rate=0.15)
    router = "lexical"
    start(
        toy_config(generations=40, families=FAMILIES, strategy=strategy, router=router),
        folder,
        host=ToyHost(),
    )
    return folder


@pytest.fixture(scope="module")
def candidates(run: Path) -> LoadedRun:
    return LoadedRun.of_run(run)


@pytest.fixture(scope="module")
def questions(candidates: LoadedRun) -> list[Item]:
    return candidates.questions(60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eighty lines."""
    return jsonl(tmp_path / "quiz.jsonl", rows())

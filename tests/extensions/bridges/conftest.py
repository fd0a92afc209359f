"""A short run on the embedded host, lived once."""

from __future__ import annotations

from pathlib import Path

import pytest

from symbiont_ecology import Run

CHANGES = (
    "tasks.families=[math.add,string.reverse]",
    "tasks.depths=[short]",
    "strategy.learning_rate=0.02",
    "strategy.founders=2",
    "run.generations=6",
)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two families, two founders, six generations."""
    return Run.start("base", *CHANGES, folder=tmp_path_factory.mktemp("lived") / "run").finish()


@pytest.fixture(scope="session")
def adapter(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best organelle of the run as a PEFT folder."""
    return run.best.save_peft(tmp_path_factory.mktemp("exported") / "best")

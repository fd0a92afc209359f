"""Ablations in real processes, on the embedded host: run, stopped, gone on with, and written
down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.extensions.study.ablation import AblationResults, render_ablation

COMMAND = [sys.executable, "-m", "symbiont_ecology", "ablate"]
TINY = """
name: tiny
question: does the machinery hold?
base: [base]
set:
- host.rank=2
- tasks.families=[math.add, logic.bool]
- tasks.depths=[short]
- strategy.samples=2
unit_flops: 1.0e+9
budgets: [1]
seeds: [0, 1]
per_cell: 4
flip: {at: 1, back: 1.5, extra: [0, 0.5], per_cell: 3}
rows:
  - {mechanism: upheaval, purpose: resilience, about: pioneers come when the world changes}
  - {mechanism: rent, purpose: energy, about: what is held costs energy, change: [economy.rent=0]}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ablation") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def place(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the ablations were run to their end, with no option but their file."""
    folder = tmp_path_factory.mktemp("place")
    subprocess.run([*COMMAND, file], cwd=folder, check=True)
    return folder


def test_the_page_has_a_row_for_every_mechanism_and_is_what_its_numbers_make(place: Path) -> None:
    page = (place / "docs" / "results" / "tiny.md").read_text()
    results = json.loads((place / "docs" / "results" / "tiny.json").read_text())
    assert page == render_ablation(AblationResults.model_validate(results))
    assert "| upheaval | resilience |" in page
    assert "| rent | what is held costs energy | yes | `economy.rent=0` |" in page
    assert f"Protocol `{results['digest']}`" in page
    assert set(results["effects"]) == {"upheaval", "rent"}
    for own in results["effects"].values():
        assert set(own) == {"accuracy", "coverage", "energy", "flops", "flipped", "kept"}
        assert all(len(one["seeds"]) == 2 for one in own.values())


def test_what_is_missing_is_run_and_the_page_is_the_same(place: Path, file: Path) -> None:
    page, outcomes = (
        place / "docs" / "results" / "tiny.md",
        sorted((place / "artifacts").rglob("outcome.json")),
    )
    before = page.read_bytes()
    assert len(outcomes) == 1 + 3 * 2 * 2  # the host; arms, seeds, with and without the flip
    page.unlink()
    next(path for path in outcomes if "main/upheaval" in str(path)).unlink()
    said = subprocess.run([*COMMAND, file], cwd=place, capture_output=True, text=True, check=True)
    assert page.read_bytes() == before
    assert "upheaval        never acted in these runs" in said.stdout


def test_the_plan_can_be_read_without_doing_it(
    symbiont: Symbiont, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont("ablate", file, "--dry-run")
    assert said.code == 0
    assert "0 to tune, 12 to report" in said.out
    assert "did you mean 'tiny.yaml'?" in symbiont("ablate", file.with_name("tinny.yaml")).error
    assert "expected one file at most" in symbiont("ablate", file, file).error
    assert not list(tmp_path.iterdir())

"""A suite in a world of arrivals: families are measured when their time is over, and at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from said import Symbiont

PLAN = """
name: arriving
question: do families that come one after another stay?
base: [base]
set:
  - host.rank=2
  - tasks.families=[string.sort, logic.bool, math.add]
  - tasks.depths=[short]
  - tasks.arrivals=[1.5e+9, 3.0e+9]
  - "strategy={kind: single, questions: 4}"
  - economy.rent=0
unit_flops: 4.5e+9
budgets: [1]
seeds: [0, 1]
tuning_seeds: []
main: ecology
per_cell: 4
stage_per_cell: 5
arms:
  ecology:
    about: organelles keep to prompts like those that they met
    set:
      - "strategy={kind: ecology, questions: 4}"
      - "strategy.mechanisms={speciation: true, breeding: false, upheaval: false}"
  single: {about: one adapter that goes on, routing: single}
  joint: {about: all families at once, set: ["tasks.arrivals=[]"], routing: single}
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "arriving.yaml"
    path.write_text(PLAN)
    return path


def test_families_are_measured_in_the_order_of_their_coming(
    symbiont: Symbiont, plan: Path, tmp_path: Path
) -> None:
    folder, pack = tmp_path / "suite", tmp_path / "packs" / "arriving"
    assert symbiont("suite", plan, "--out", folder, "--workers", 1).code == 0
    assert symbiont("pack", folder, "--out", pack).code == 0
    summary = json.loads((pack / "summary.json").read_text())["stages"]
    assert list(summary["arms"]) == ["ecology", "single", "joint"]
    for arm, course in summary["courses"].items():
        assert list(course) == ["string.sort", "logic.bool", "math.add"], arm
        assert {len(shares) for shares in course.values()} == {3}
    ecology = summary["arms"]["ecology"]
    course = summary["courses"]["ecology"]
    ends = [shares[stage] for stage, shares in enumerate(course.values())]
    assert sum(ecology["at_once"]) / 2 == pytest.approx(sum(ends) / 3)
    lost = [shares[stage] - shares[-1] for stage, shares in enumerate(course.values())][:2]
    assert sum(ecology["lost"]) / 2 == pytest.approx(sum(lost) / 2)
    assert set(summary["differences"]) == {"at_last", "lost"}
    page = (pack / "README.md").read_text()
    assert "## Families one after another" in page
    assert (pack / "stages.png").read_bytes().startswith(b"\x89PNG")
    outcome = next((folder / "main" / "single").rglob("outcome.json"))
    legs = [leg for leg in json.loads(outcome.read_text())["legs"] if leg["phase"] == "stage"]
    assert [leg["train_flops"] / 1.5e9 for leg in legs] == pytest.approx([1, 2, 3], rel=0.05)

"""Reports and differences of runs, as a user gets them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from said import Symbiont
from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology import Run
from symbiont_ecology.analysis.run_report import RunReport
from symbiont_ecology.config import TasksConfig
from symbiont_ecology.run import EventTables


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "eventful": lived_to_its_end(folder / "eventful", eventful_plan()),
        "users": lived_to_its_end(folder / "users", users_plan()),
        "longer": lived_to_its_end(folder / "longer", users_plan(generations=44)),
        "single": lived_to_its_end(folder / "single", users_plan("single")),
        "begun": lived_to_its_end(folder / "begun", users_plan(generations=0)),
    }


def figures_of(page: str) -> list[tuple[str, str, str]]:
    """The rows of the table of figures: name, value and query."""
    rows = [line.strip("| ").split(" | ", 2) for line in page.splitlines() if line.endswith("` |")]
    return [(name, value, query.strip("`")) for name, value, query in rows]


def test_a_report_of_a_run_that_asked_nothing_says_so(symbiont: Symbiont, tmp_path: Path) -> None:
    plan = eventful_plan().model_copy(
        update={
            "strategy": {"kind": "single", "samples": 0},
            "learning_rule": "supervised",
            "tasks": TasksConfig(families=("math.add",)),
        }
    )
    symbiont("report", lived_to_its_end(tmp_path / "run", plan))
    page = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "Nobody was asked anything." in page
    assert "% of all answers were right" not in page
    said = symbiont("diff", tmp_path / "run", tmp_path / "run", "--json", "-")
    assert {"name": "right, %", "one": "–", "other": "–"} in json.loads(said.out)["outcome"]


def test_a_family_that_nobody_asks_at_the_end_has_no_share_in_a_report(tmp_path: Path) -> None:
    tasks = TasksConfig(families=("math.add", "string.sort"), arrivals=(1e7,))
    plan = eventful_plan().model_copy(update={"tasks": tasks})
    page = RunReport.of(lived_to_its_end(tmp_path / "run", plan)).page()
    assert "| math.add | – | not solved |" in page


@pytest.mark.parametrize("name", ["eventful", "users", "single"])
def test_every_figure_of_a_report_is_what_its_query_says(
    symbiont: Symbiont, runs: dict[str, Path], name: str
) -> None:
    said = symbiont("report", runs[name])
    assert "report.md" in said.out
    page = (runs[name] / "report.md").read_text()
    figures = figures_of(page)
    assert len(figures) > 15
    events: EventTables = Run.open(runs[name]).events
    for figure, shown, query in figures:
        again = float(eval(query, {"e": events, "len": len, "sum": sum}))  # our own page
        assert math.isclose(float(shown.replace(",", "")), again, rel_tol=1e-3, abs_tol=0.06), (
            figure
        )


def test_a_report_made_twice_is_the_same(symbiont: Symbiont, runs: dict[str, Path]) -> None:
    places = [runs["eventful"] / name for name in ("one.md", "two.md")]
    for place in places:
        symbiont("report", runs["eventful"], "--out", place)
    assert places[0].read_bytes() == places[1].read_bytes()


def test_a_report_audits_trials_and_tells_what_happened(runs: dict[str, Path]) -> None:
    page, history = RunReport.of(runs["eventful"]).page(), RunReport.of(runs["eventful"]).history
    trial = next(trial for trial in history.trials.values() if trial.ended is not None)
    assert f"| {trial.began}–{trial.ended} | {trial.id} |" in page
    assert "A catastrophe kills 60% of all." in page
    assert "What counts as right changes" in page
    users = RunReport.of(runs["users"]).page()
    assert "## Who serves whom" in users
    assert "- 25: " in users


def test_a_run_without_a_generation_has_nothing_to_report(
    symbiont: Symbiont, runs: dict[str, Path]
) -> None:
    assert "no generation is over yet" in symbiont("report", runs["begun"]).error


def test_equal_runs_do_not_differ_and_others_part_where_they_do(
    symbiont: Symbiont, runs: dict[str, Path]
) -> None:
    said = symbiont("diff", runs["users"], runs["users"])
    assert "configs are equal" in said.out
    assert "histories are equal" in said.out
    said = symbiont("diff", runs["users"], runs["longer"], "--json", "-")
    found = json.loads(said.out)
    assert [row["name"] for row in found["config"]] == ["run.generations"]
    assert found["parting"]["generation"] == 40
    assert found["parting"]["kinds"][0] == "the end"
    found = json.loads(symbiont("diff", runs["users"], runs["single"], "--json", "-").out)
    assert found["parting"]["generation"] == 0
    names = {row["name"] for row in found["config"]}
    assert "strategy.kind" in names
    assert "strategy" not in names
    assert found["agreement"] is not None
    shown = {row["name"]: (row["one"], row["other"]) for row in found["outcome"]}
    assert shown["alive at the end"][1] == "1"

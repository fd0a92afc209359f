"""Reports, differences and replies of runs, as a user gets them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from said import Symbiont
from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology import Run
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.transcripts import Transcript, TranscriptLog, read_transcripts
from symbiont_ecology.extensions.evoscope.report import RunReport
from symbiont_ecology.run.run import EventTables
from symbiont_ecology.tasks.config import TasksConfig


@pytest.fixture(scope="module")
def runs(seen: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    longer = tmp_path_factory.mktemp("longer") / "run"
    return {**seen, "longer": lived_to_its_end(longer, users_plan(generations=44))}


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
    assert "What counts as right changes" in page
    users = RunReport.of(runs["users"]).page()
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
    assert found["first_difference"]["generation"] == 40
    assert found["first_difference"]["kinds"][0] == "the end"
    found = json.loads(symbiont("diff", runs["users"], runs["single"], "--json", "-").out)
    assert found["first_difference"]["generation"] == 0
    names = {row["name"] for row in found["config"]}
    assert "strategy.kind" in names
    assert "strategy" not in names
    shown = {row["name"]: (row["one"], row["other"]) for row in found["outcome"]}
    assert shown["alive at the end"][1] == "1"


def test_every_rollout_of_a_small_run_is_kept_and_can_be_shown(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    acts = [event for event in read_events(lived / "events.jsonl") if isinstance(event, Acted)]
    asked = [act for act in acts if act.id != "host"]
    wanted = [(act.generation, act.id, verdict) for act in asked for verdict in act.verdicts]
    said = symbiont("show", lived, "--last", 0, "--json", tmp_path / "all.json")
    rows = json.loads((tmp_path / "all.json").read_text())
    assert [(row["generation"], row["id"], row["verdict"]) for row in rows] == wanted
    assert len(said.out.splitlines()) == len(wanted)
    assert f"{len(wanted)} of {len(wanted)} replies" in said.err


def test_one_organelle_one_cell_and_one_verdict_can_be_chosen(
    symbiont: Symbiont, lived: Path
) -> None:
    kept = read_transcripts(lived / "transcripts.jsonl")
    one = kept[0]
    words = ["--organelle", one.id, "--cell", one.cell, "--right" if one.is_right else "--wrong"]
    said = symbiont("show", lived, *words, "--last", 0, "--json", "-")
    rows = json.loads(said.out)
    assert rows == [
        vars(other)
        for other in kept
        if (other.id, other.cell, other.is_right) == (one.id, one.cell, one.is_right)
    ]


def test_text_of_a_model_cannot_steer_the_terminal(symbiont: Symbiont, copied: Path) -> None:
    (copied / "transcripts.jsonl").unlink()
    log = TranscriptLog(copied / "transcripts.jsonl", 1.0)
    log.rewind(0)
    one = Transcript(
        0, "o1", "practice", "a/b", "i", "p\x1b[2J", "r\u202e\ud800\n" + "x" * 99, 1, 0, -1
    )
    log.write([one, replace(one, confidence=None), replace(one, id="o\x1b[1m", user="a\x1b[3m")])
    said = symbiont("show", copied)
    assert "\\u001b[2J" in said.out
    assert "o\\u001b[1m a\\u001b[3m" in said.out
    assert "\x1b" not in said.out
    assert "\\u202e\\ud800\\nxxx" in said.out
    assert said.out.isascii() or "\u202e" not in said.out
    assert "  37%  " in said.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--user", "h1"], "no reply of 'h1'"),
        (["--organelle", "o999"], "there are o"),
        (["--wrong", "--right"], "leave one out"),
    ],
)
def test_what_is_not_there_is_one_line(
    words: list[str], error: str, symbiont: Symbiont, lived: Path
) -> None:
    said = symbiont("show", lived, *words)
    assert said.code == 2
    assert error in said.error


def test_a_run_without_replies_says_so(symbiont: Symbiont, copied: Path) -> None:
    (copied / "transcripts.jsonl").unlink()
    said = symbiont("show", copied)
    assert said.code == 1
    assert "run.transcripts=0" in said.error

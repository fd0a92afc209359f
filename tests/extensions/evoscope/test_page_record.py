"""What a page holds, and what it leaves out: sampling, places, measures of adapters, comparison."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from runs import start
from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.transcripts import Transcript
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.evoscope.adapters import adapter_measures
from symbiont_ecology.extensions.evoscope.compare import RunDiff
from symbiont_ecology.extensions.evoscope.history import History
from symbiont_ecology.extensions.evoscope.page import embedded_json, page_record
from symbiont_ecology.extensions.evoscope.record import canvas_places, chosen_replies
from symbiont_ecology.extensions.evoscope.report import RunReport
from toy import ToyHost


@pytest.fixture(scope="module")
def eventful(seen: dict[str, Path]) -> Path:
    return seen["eventful"]


def test_everyone_keeps_right_and_wrong_replies_however_few_are_chosen() -> None:
    replies = [
        Transcript(g, f"o{g % 3}", "practice", "a/b", "i", "p", "r", float(g % 2), 0, None)
        for g in range(600)
    ]
    kept = chosen_replies(replies, 40)
    assert len(kept) == 40
    for who in ("o0", "o1", "o2"):
        assert {one.is_right for one in kept if one.id == who} == {True, False}
    assert kept == [one for one in replies if one in kept]


def test_the_living_never_share_a_place(eventful: Path) -> None:
    history = History.of_run(eventful)
    places = canvas_places(history.taxa)
    for generation in range(history.generation):
        alive = history.balances[generation].keys() & history.taxa.keys()
        assert len({places[name] for name in alive}) == len(alive)


def test_adapters_have_the_norm_and_spectrum_of_their_weights(eventful: Path) -> None:
    state = load_state(eventful)
    measures = adapter_measures(state, eventful)
    assert measures.keys() >= state.population.keys()
    for row in measures.values():
        norms = sum(norm**2 for norm in row["by_module"].values())
        assert math.isclose(norms, row["norm"] ** 2, rel_tol=1e-6)
        assert row["spectrum"] == sorted(row["spectrum"], reverse=True)


def test_columns_of_a_record_have_one_length_and_sum_to_the_run(eventful: Path) -> None:
    (record,) = page_record([eventful])["runs"]
    history = History.of_run(eventful)
    for table in ("acts", "books"):
        lengths = {len(column) for column in record[table].values() if isinstance(column, list)}
        assert len(lengths - {len(record["acts"]["cells"]), 0}) == 1
    assert sum(record["acts"]["asked"]) == sum(act.asked for act in history.acts)
    assert sum(record["books"]["revenue"]) == sum(book.revenue for book in history.books)
    assert record["acts"]["frame"] == sorted(record["acts"]["frame"])
    json.loads(embedded_json({"record": record}))


def test_the_rows_with_most_answers_stay_where_one_step_has_too_many(
    eventful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = page_record([eventful])["runs"]
    sums = Counter[tuple[int, int]]()
    columns = (whole["acts"][name] for name in ("who", "cell", "asked"))
    for who, cell, asked in zip(*columns, strict=True):
        sums[who, cell] += asked
    monkeypatch.setattr("symbiont_ecology.extensions.evoscope.record.MAX_ACTS", 20)
    (record,) = page_record([eventful])["runs"]
    acts = record["acts"]
    assert set(acts["frame"]) == {0}
    assert sorted(acts["asked"], reverse=True) == sorted(sums.values(), reverse=True)[:20]
    assert len(record["leftOut"]) == 2
    assert record["curves"] == whole["curves"]


def test_a_run_that_spent_its_budget_is_complete_and_one_in_service_never_is(
    tmp_path: Path,
) -> None:
    plan = eventful_plan(20)
    budget = plan.run.model_copy(update={"train_tokens": 3000})
    folder = lived_to_its_end(tmp_path / "spent", plan.model_copy(update={"run": budget}))
    (record,) = page_record([folder])["runs"]
    assert record["generations"] < record["planned"]
    assert record["isComplete"]
    start(plan, tmp_path / "stopped", host=ToyHost(), should_stop=lambda: True)
    assert not page_record([tmp_path / "stopped"])["runs"][0]["isComplete"]
    (folder / "service.jsonl").touch()
    assert not page_record([folder])["runs"][0]["isComplete"]


def test_json_on_a_page_cannot_end_its_element() -> None:
    text = embedded_json({"reply": "</script><!--", "loss": math.nan})
    assert "<" not in text
    assert json.loads(text) == {"reply": "</script><!--", "loss": None}


def test_the_living_and_those_on_trial_own_on_the_page_what_the_log_says(eventful: Path) -> None:
    (record,) = page_record([eventful])["runs"]
    history, books = History.of_run(eventful), record["books"]
    shown = [0] * len(record["frames"]["ends"])
    for frame, balance in zip(books["frame"], books["balance"], strict=True):
        shown[frame] += balance
    for frame, generation in enumerate(record["frames"]["ends"]):
        balances = history.balances[generation]
        on_trial = sum(balances[who] for who in balances.keys() - history.taxa.keys())
        assert shown[frame] + on_trial == history.ends[generation].energy_total


def test_a_run_that_somebody_sent_is_seen_without_running_its_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = lived_to_its_end(tmp_path / "sent", users_plan(generations=3))
    (folder / "x.py").write_text("from pathlib import Path\nPath('pwned').touch()\n")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("plugins: []", "plugins: [sent/x.py]"))
    assert "sent/x.py" in config.read_text()
    page_record([folder])
    RunReport.of(folder)
    RunDiff.of(folder, folder)
    assert not (tmp_path / "pwned").exists()


def test_a_log_about_somebody_unknown_is_one_line(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=3))
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines()
    count = len(lines) - 1
    gone = {"seq": count, "kind": "Retired", "generation": 3, "id": "zz", "cause": "x"}
    log.write_text("\n".join([*lines, json.dumps({**gone, "age": 1, "balance": 0})]) + "\n")
    with pytest.raises(RunError, match="Retired in generation 3 of 'zz'"):
        page_record([folder])

"""What a page holds, and what it leaves out: sampling, places, bodies, comparison, phylogenies."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lives import adapter
from logs import ECOLOGY
from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology.analysis.run_diff import RunDiff
from symbiont_ecology.analysis.run_report import RunReport
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.engine.run import read_config, start
from symbiont_ecology.errors import DataError, RunError
from symbiont_ecology.evoscope.berths import berths_of
from symbiont_ecology.evoscope.bodies import bodies_of
from symbiont_ecology.evoscope.comparing import compared
from symbiont_ecology.evoscope.page import embedded_json, page_record
from symbiont_ecology.evoscope.phylogenies import phylogeny_record
from symbiont_ecology.evoscope.sampling import chosen_news, chosen_replies
from symbiont_ecology.history.chronicle import News
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History, read_history
from symbiont_ecology.plots.drawing import colours_of
from symbiont_ecology.plots.palette import VIEW_COLOURS
from symbiont_ecology.transcripts import Transcript
from symbiont_ecology.weights.deltas import modules, singular_values, spectrum
from toy import ToyHost


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived_to_its_end(tmp_path_factory.mktemp("eventful") / "run", eventful_plan())


def test_every_generation_belongs_to_one_frame_and_ends_are_in_order() -> None:
    for generations in (0, 1, 599, 600, 601, 3000, 12345):
        frames = Frames.of(generations, 600)
        assert frames.count <= 600
        assert len(frames.ends) == frames.count
        owners = [frames.at(generation) for generation in range(generations)]
        assert owners == sorted(owners)
        for frame, end in enumerate(frames.ends):
            assert frames.at(end) == frame


def test_lesser_news_go_first_and_the_rest_keeps_its_order() -> None:
    news = [News(g, kind, f"{g}") for g in range(100) for kind in ("move", "birth")]
    kept = chosen_news(news, 120)
    assert len(kept) == 120
    assert sum(one.kind == "birth" for one in kept) == 100
    assert [one.generation for one in kept] == sorted(one.generation for one in kept)
    assert len(chosen_news(news, 50)) == 50
    assert chosen_news(news) == news


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


def test_the_living_never_share_a_berth(eventful: Path) -> None:
    history = read_history(eventful)
    taxa = history.phylogeny.taxa
    places = berths_of(taxa)
    for generation in range(history.generation):
        alive = [
            places[taxon.id]
            for taxon in taxa.values()
            if taxon.born <= generation and (taxon.died is None or taxon.died > generation)
        ]
        assert len(set(alive)) == len(alive)


def test_bodies_have_the_norm_and_spectrum_of_their_weights(eventful: Path) -> None:
    state = load_state(eventful)
    bodies = bodies_of(state, eventful)
    assert bodies.keys() >= state.population.keys()
    one = adapter(3)
    for _, [(a, b)] in modules([one]):
        assert np.allclose(singular_values(a, b), spectrum(a, b)[1], atol=1e-6)
    for body in bodies.values():
        norms = sum(norm**2 for norm in body.by_module.values())
        assert math.isclose(norms, body.norm**2, rel_tol=1e-6)
        assert list(body.spectrum) == sorted(body.spectrum, reverse=True)


def test_columns_of_a_record_have_one_length_and_sum_to_the_run(eventful: Path) -> None:
    (record,) = page_record([eventful])["runs"]
    history = read_history(eventful)
    for table in ("acts", "books"):
        lengths = {len(column) for column in record[table].values() if isinstance(column, list)}
        assert len(lengths - {len(record["acts"]["cells"]), 0}) == 1
    assert sum(record["acts"]["asked"]) == sum(act.asked for act in history.acts)
    assert sum(record["books"]["revenue"]) == sum(book.revenue for book in history.books)
    assert record["acts"]["frame"] == sorted(record["acts"]["frame"])
    json.loads(embedded_json({"record": record}))


def test_figures_have_the_colours_of_the_page(eventful: Path) -> None:
    organelles = page_record([eventful])["runs"][0]["organelles"]
    coloured = {one["id"]: VIEW_COLOURS[one["colour"]] for one in organelles if one["colour"] >= 0}
    assert coloured == colours_of(read_history(eventful))


def test_the_rows_with_most_answers_stay_where_one_step_has_too_many(
    eventful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = page_record([eventful])["runs"]
    sums = Counter[tuple[int, int]]()
    columns = (whole["acts"][name] for name in ("who", "cell", "asked"))
    for who, cell, asked in zip(*columns, strict=True):
        sums[who, cell] += asked
    monkeypatch.setattr("symbiont_ecology.evoscope.record.MOST_ACTS", 20)
    (record,) = page_record([eventful])["runs"]
    acts = record["acts"]
    assert set(acts["frame"]) == {0}
    most = sorted(sums.values(), reverse=True)[:20]
    assert sorted(acts["asked"], reverse=True) == most
    assert record["leftOut"] == [
        "Who was asked what is shown in longer steps than the rest.",
        f"20 of {len(sums)} rows of who was asked what are shown: those with most answers.",
    ]
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


def test_news_of_a_generation_that_goes_on_are_not_said_to_be_left_out(tmp_path: Path) -> None:
    (record,) = page_record([lived_to_its_end(tmp_path / "run", users_plan(generations=0))])["runs"]
    assert (record["news"], record["leftOut"]) == ([], [])


def test_json_on_a_page_cannot_end_its_element() -> None:
    text = embedded_json({"reply": "</script><!--", "loss": math.nan})
    assert "<" not in text
    assert json.loads(text) == {"reply": "</script><!--", "loss": None}


def test_arms_are_compared_over_seeds_where_they_share_some(tmp_path: Path) -> None:
    folders = [
        lived_to_its_end(tmp_path / f"{name}-{seed}", users_plan(strategy, seed, 24))
        for name, strategy in (("ecology", None), ("single", {"kind": "single"}))
        for seed in (0, 1)
    ]
    found = page_record(folders)["comparison"]
    assert [arm["name"] for arm in found["arms"]] == ["ecology", "single"]
    assert {pair["over"] for pair in found["pairs"]} == {"2 seeds"}
    one, other = found["pairs"]
    assert math.isclose(one["difference"]["estimate"], -other["difference"]["estimate"])
    config = folders[1] / "config.yaml"
    config.write_text(config.read_text().replace("executor: local", "executor: ray"))
    again = page_record(folders)["comparison"]
    assert [arm["name"] for arm in again["arms"]] == ["ecology", "single"]
    few = page_record([folders[0], folders[2]])["comparison"]["pairs"][0]
    assert few["difference"]["low"] == few["difference"]["high"]
    assert few["over"] == "one seed, too short for an interval"
    shutil.copytree(folders[3], tmp_path / "again")
    twice = page_record([*folders, tmp_path / "again"])["comparison"]["pairs"]
    assert {pair["over"] for pair in twice} == {"single has seed 1 twice: leave one of them out"}
    assert all(pair["difference"] is None for pair in twice)
    config = folders[1] / "config.yaml"
    config.write_text(config.read_text().replace("generations: 24", "generations: 25"))
    assert len(page_record(folders)["comparison"]["arms"]) == 3


def test_one_seed_is_cut_into_stretches_whichever_other_one_has_just_begun(tmp_path: Path) -> None:
    folders = [
        lived_to_its_end(tmp_path / kind, users_plan({"kind": kind}, 1, 160))
        for kind in ("single", "per_habitat")
    ]
    (pair, _) = page_record(folders)["comparison"]["pairs"]
    assert pair["over"] == "6 stretches of one seed, so not of others"
    runs = [(read_config(folder), read_history(folder)) for folder in folders]
    begun = [config.model_copy(update={"seed": 0}) for config, _ in runs]
    found = compared([*((config, History.of(config)) for config in begun), *runs], ["run"] * 4)
    assert found["pairs"] == page_record(folders)["comparison"]["pairs"]
    runs[1][1].acts[:] = [act for act in runs[1][1].acts if act.generation < 135]
    (pair, _) = compared(runs, ["run"] * 2)["pairs"]
    assert pair["over"] == "3 stretches of one seed, so not of others"
    runs[1][1].acts[:] = [act for act in runs[1][1].acts if act.generation < 124]
    (pair, _) = compared(runs, ["run"] * 2)["pairs"]
    assert pair["over"] == "one seed, too short for an interval"


def test_other_peoples_times_become_steps(tmp_path: Path) -> None:
    path = tmp_path / "tree.csv"
    path.write_text(
        "id,ancestor_list,origin_time,destruction_time\na,[NONE],0.25,1\nb,[a],0.5,inf\n"
    )
    record = phylogeny_record(path)
    lives = {one["id"]: (one["born"], one["died"], one["parents"]) for one in record["organelles"]}
    assert lives == {"a": (0, 1000, ()), "b": (333, None, ("a",))}
    path.write_text('id,ancestor_list\n1,[NONE]\n2,[1]\n3,"[1,2]"\n', encoding="utf-8-sig")
    lives = {
        one["id"]: (one["born"], one["parents"]) for one in phylogeny_record(path)["organelles"]
    }
    assert lives == {"1": (0, ()), "2": (1, ("1",)), "3": (1, ("1", "2"))}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "missing"),
        ("id,ancestor_list\n", "got 0"),
        ("name\nx\n", "ancestor_list and id missing"),
        ("id,ancestor_list\n1,[2]\n2,[1]\n", "a circle"),
        ("id,ancestor_list\n1,[1]\n", "a circle"),
        ("id,ancestor_list,origin_time\n1,[],1e308\n2,[],-1e308\n", "fit on one scale"),
    ],
)
def test_what_is_no_phylogeny_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        phylogeny_record(path)


def test_a_phylogeny_of_phylotrackpy_can_be_read(tmp_path: Path) -> None:
    systematics = pytest.importorskip("phylotrackpy.systematics")
    tracker = systematics.Systematics(lambda name: name)
    first = tracker.add_org("a")
    tracker.set_update(2)
    tracker.add_org("b", first)
    tracker.add_snapshot_fun(lambda taxon: taxon.get_info(), "taxon_info")
    tracker.snapshot(str(tmp_path / "theirs.csv"))
    record = phylogeny_record(tmp_path / "theirs.csv")
    assert [(one["id"], one["parents"], one["born"]) for one in record["organelles"]] == [
        ("1", (), 0),
        ("2", ("1",), 2),
    ]


def test_the_living_and_those_on_trial_own_on_the_page_what_the_log_says(eventful: Path) -> None:
    (record,) = page_record([eventful])["runs"]
    history = read_history(eventful)
    books = record["books"]
    shown = [0] * len(record["frames"]["ends"])
    for frame, balance in zip(books["frame"], books["balance"], strict=True):
        shown[frame] += balance
    for frame, generation in enumerate(record["frames"]["ends"]):
        on_trial = {
            who: balance
            for who, balance in history.balances[generation].items()
            if who not in history.phylogeny.taxa
        }
        total = history.ends[generation].energy_total
        assert shown[frame] + sum(on_trial.values()) == total


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


def test_arms_whose_runs_have_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [
        lived_to_its_end(tmp_path / place / "run", users_plan({**ECOLOGY, "aging": aging}, 0, 24))
        for place, aging in (("a", 0.0), ("b", 5.0))
    ]
    found = page_record(folders)["comparison"]
    assert [(pair["first"], pair["other"]) for pair in found["pairs"]] == [(0, 1), (1, 0)]

"""Suites of worlds with habitats: protocols, jobs, measures and packs."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from questions import accepted_share, of_newcomers, questions_of
from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.study import jobs, pack, suite
from symbiont_ecology.extensions.study.jobs import Job, course_of
from symbiont_ecology.extensions.study.measures import STREAM_MEASURES
from symbiont_ecology.extensions.study.outcomes import Outcome, Tuning
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results
from symbiont_ecology.extensions.study.worlds import summarise_worlds
from toy import ToyHost

PLAN: dict[str, Any] = {
    "name": "small",
    "question": "does it work?",
    "set": ["run.generations=40", "run.checkpoint_every=40"],
    "seeds": [3, 4],
    "tuning_seeds": [1],
    "worlds": {
        "drifting": {
            "about": "a town",
            "base": ["habitats/drift"],
            "set": ["tasks.habitats.drift_at=20", "tasks.habitats.count=12"],
            "arms": ["ecology", "told", "neutral"],
        },
        "coming": {
            "about": "a city",
            "base": ["habitats/city"],
            "set": ["tasks.habitats.count=30", "tasks.habitats.arrivals=30"],
            "arms": ["ecology", "told"],
        },
    },
    "arms": {
        "ecology": {"about": "foraging"},
        "told": {
            "about": "told",
            "set": ["strategy.kind=told"],
            "tune": [["strategy.learning_rate=0.001"], ["strategy.learning_rate=0.1"]],
        },
        "neutral": {"about": "drawn", "set": ["strategy.kind=neutral"], "repeats": "ecology"},
    },
    "goals": [
        {"about": "a", "world": "coming", "measure": "acceptance", "minus": "told", "at_most": 1},
        {"about": "b", "world": "drifting", "measure": "adapters", "at_least": 99},
        {
            "about": "c",
            "world": "coming",
            "measure": "acceptance",
            "than": "drifting",
            "at_least": -1,
        },
    ],
}


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Protocol, Path]:
    """A whole suite on the toy host, in this process."""
    plan, folder = Protocol.model_validate(PLAN), tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "host_of", lambda config: ToyHost())
        suite.claim_folder(plan, folder)
        for _, staged in suite.stages(plan, folder):
            for job in staged:
                job.work(plan.model_dump_json(), folder, never)
    return plan, folder


@pytest.fixture(scope="module")
def results(done: tuple[Protocol, Path]) -> Results:
    plan, folder = done
    return Results(plan, suite.Suite(plan, folder).outcomes)


def test_tuning_chooses_by_acceptance_on_other_seeds(done: tuple[Protocol, Path]) -> None:
    plan, folder = done
    tuning = suite.read_tuning(folder)
    assert {(score.arm, score.seed) for score in tuning.sweep} == {
        ("drifting/told", 1),
        ("coming/told", 1),
    }
    for world in plan.worlds:
        scores = {s.option: s.accuracy for s in tuning.sweep if s.arm == f"{world}/told"}
        assert tuning.chosen[world]["told"] == max(scores, key=scores.__getitem__)


def test_a_choice_that_was_made_before_is_not_made_again(tmp_path: Path) -> None:
    plan = Protocol.model_validate({**PLAN, "chosen": {"drifting": {"told": 1}}})
    assert {job.world for job in suite.tuning_jobs(plan)} == {"coming"}
    *_, (_, reported), _ = suite.stages(plan, tmp_path)
    options = {(job.world, job.arm): job.option for job in reported}
    assert options["drifting", "told"] == 1


def test_an_outcome_has_every_question_in_its_place_and_says_who_serves(
    done: tuple[Protocol, Path], results: Results
) -> None:
    for outcome in results.outcomes:
        folder = done[1] / Job(**{f.name: getattr(outcome, f.name) for f in fields(Job)}).name
        run, table = (
            results.streams[outcome.world, outcome.arm][outcome.seed],
            questions_of(read_events(folder / "events.jsonl")),
        )
        assert len(run.record.verdicts) == len(table)
        assert outcome.acceptance == pytest.approx(accepted_share(table))
        by_habitat = table.groupby("habitat")["verdict"].mean()
        for number, name in enumerate(run.asked.world.names):
            mine = run.accepted[run.asked.habitats == number]
            assert mine.mean() == pytest.approx(by_habitat[name]) if len(mine) else True
        newcomers = STREAM_MEASURES["newcomers"](run)
        if newcomers is not None:
            assert newcomers == pytest.approx(accepted_share(of_newcomers(table)), abs=0.1)
        served, groups = load_state(folder).served, defaultdict[int, set[str]](set)
        for name, server in zip(run.asked.world.names, run.record.served_by or (), strict=True):
            groups[server].add(name)
        groups.pop(-1, None)
        assert sorted(map(sorted, groups.values())) == sorted(served.values())
        assert STREAM_MEASURES["serving"](run) == len(served)


def test_a_measure_that_one_seed_does_not_have_is_told_of_no_seed(results: Results) -> None:
    first, *rest = (one for one in results.outcomes if one.world == "coming")
    assert first.stream is not None
    stream = first.stream.model_copy(update={"served_by": None, "deaths": [39]})
    old = first.model_copy(update={"stream": stream})
    worlds = summarise_worlds(Results(results.protocol, [old, *rest]))["worlds"]
    assert "serving" not in worlds["coming"]["measures"][old.arm]
    assert "acceptance" in worlds["coming"]["measures"][old.arm]


def test_a_question_with_half_of_the_marks_is_accepted(
    done: tuple[Protocol, Path], results: Results
) -> None:
    world = results.streams["coming", "ecology"][3].asked.world
    folder = done[1] / Job("stream", "ecology", 3, world="coming").name
    marked = [
        replace(event, verdicts=(0.5,) * len(event.verdicts)) if isinstance(event, Acted) else event
        for event in read_events(folder / "events.jsonl")
    ]
    assert set(str(course_of(marked, world, {})["verdicts"])) <= {"1", "-"}


def test_an_arm_that_repeats_another_is_born_and_dies_with_it(results: Results) -> None:
    for seed, run in results.streams["drifting", "neutral"].items():
        model = results.streams["drifting", "ecology"][seed].record
        assert run.record.births == model.births
        assert run.record.deaths == model.deaths
        assert run.record.population == model.population


def test_told_is_exact_and_the_same_questions_are_paired(results: Results) -> None:
    world = summarise_worlds(results)["worlds"]["drifting"]
    ecology, told = (world["measures"][arm] for arm in ("ecology", "told"))
    assert told["exact"].seeds == [1.0, 1.0]
    assert (told["scored"].estimate, ecology["scored"].estimate) == (0, pytest.approx(1))
    test = world["minus"]["told"]
    for found, measure in ((test, "acceptance"), (world["apart"]["told"]["adapters"], "adapters")):
        expected = np.subtract(ecology[measure].seeds, told[measure].seeds)
        assert found.seeds == pytest.approx(expected.tolist())
    assert not test.is_claimed  # two seeds can show nothing


def test_goals_are_judged_as_they_were_written(results: Results) -> None:
    summary = summarise_worlds(results)
    assert [goal["is_met"] for goal in summary["goals"]] == [True, False, True]
    means = [
        summary["worlds"][name]["measures"]["ecology"]["acceptance"].estimate
        for name in ("coming", "drifting")
    ]
    assert summary["goals"][2]["value"].estimate == pytest.approx(means[0] - means[1])


def test_a_pack_of_worlds_is_made_again_byte_for_byte(
    done: tuple[Protocol, Path], tmp_path: Path
) -> None:
    plan, folder = done
    target = suite.Suite(plan, folder).comparison.save_pack(tmp_path / "packs" / "small")
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert {"README.md", "summary.json", "coming.png", "coming-servers.png"} <= before.keys()
    pack.rebuild(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    page = before["README.md"].decode()
    assert "| coming | a |" in page
    assert "**no**" in page
    assert json.loads(before["manifest.json"])["protocol"] == plan.digest


def packed(results: Results, left: list[Outcome], folder: Path) -> str:
    """The page of a pack of some of the outcomes."""
    pack.write_pack(folder, results.protocol, left, Tuning(chosen={}))
    return (folder / "README.md").read_text()


def test_one_seed_of_an_unfinished_suite_is_sure_of_nothing(
    results: Results, tmp_path: Path
) -> None:
    left = [one for one in results.outcomes if one.seed == 3 and one.arm != "neutral"]
    few = Results(results.protocol, left)
    assert (few.missing, few.protocol.planned_runs) == (6, 10)
    goals = summarise_worlds(few)["goals"]
    assert any(goal["is_met"] for goal in goals)
    assert not any(goal["is_sure"] for goal in goals)
    page = packed(results, left, tmp_path / "pack")
    (dumped, *_) = json.loads((tmp_path / "pack" / "summary.json").read_text())["goals"]
    assert set(dumped["value"]) == {"estimate", "seeds"}
    assert "**This suite is not finished: 6 of its 10 runs are missing.**" in page
    assert "2 worlds, 3 arms, 1 seed." in page
    assert "surely |" not in page
    assert "nan" not in page


def test_a_suite_whose_main_arm_has_not_lived_yet_can_be_packed(
    results: Results, tmp_path: Path
) -> None:
    left = [one for one in results.outcomes if one.arm == "told" and one.world == "coming"]
    page = packed(results, left, tmp_path / "pack")
    assert "## coming" in page
    assert "## drifting" not in page


def test_a_run_that_is_done_is_lived_anew_only_if_its_outcome_was_deleted(
    done: tuple[Protocol, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, folder = done[0], shutil.copytree(done[1], tmp_path / "suite")
    monkeypatch.setattr(jobs, "host_of", lambda config: pytest.fail("a host was loaded"))
    job = Job("stream", "ecology", 3, world="coming")
    assert job.work(plan.model_dump_json(), folder, never).stream is not None
    monkeypatch.setattr(jobs, "host_of", lambda config: ToyHost())
    path = folder / job.name / "outcome.json"
    before = path.read_bytes()
    path.write_text("torn")
    with pytest.raises(RunError):
        job.work(plan.model_dump_json(), folder, never)
    path.unlink()
    job.work(plan.model_dump_json(), folder, never)
    assert path.read_bytes() == before


GOAL = {"about": "a", "world": "coming", "measure": "late", "at_most": 1}
NEUTRAL = PLAN["arms"]["neutral"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"main": "nobody"}, "main"),
        ({"seeds": [1]}, "seeds"),
        ({"tuning_seeds": []}, "tuning_seeds"),
        ({"budgets": [1, 2]}, "budgets"),
        ({"chosen": {"coming": {"told": 7}}}, "chosen.coming.told"),
        ({"chosen": {"comming": {"told": 1}}}, "did you mean 'coming'"),
        ({"chosen": {"coming": {"neutral": 0}}}, "chosen.coming"),
        ({"arms": PLAN["arms"] | {"neutral": NEUTRAL | {"repeats": "ecolgy"}}}, "repeats"),
        ({"arms": PLAN["arms"] | {"neutral": NEUTRAL | {"repeats": "neutral"}}}, "repeats"),
        (
            {
                "arms": PLAN["arms"]
                | {"neutral": NEUTRAL | {"repeats": "other"}, "other": {"about": "lives nowhere"}}
            },
            "neutral.repeats",
        ),
        ({"arms": PLAN["arms"] | {"neutral": NEUTRAL | {"tune": [[], []]}}}, "repeats"),
        ({"goals": [{**GOAL, "at_most": None}]}, "at_least or at_most"),
        ({"goals": [{**GOAL, "world": "x"}]}, "goals"),
        ({"goals": [{**GOAL, "minus": "neutral"}]}, "goals"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        Protocol.model_validate(PLAN | change)


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        ("steady", (), "got none"),
        ("habitats/log", (), "or users of data"),
        (
            "habitats/town",
            ("strategy={kind: single, samples: 0}", "learning_rule=supervised"),
            "strategy.samples",
        ),
    ],
)
def test_what_leaves_no_verdicts_or_kinds_is_refused_before_anything_runs(
    base: str, change: tuple[str, ...], message: str
) -> None:
    place = {"about": "w", "base": [base], "set": change, "arms": ["ecology"]}
    plan = Protocol.model_validate({**PLAN, "worlds": {"w": place}, "goals": []})
    with pytest.raises(ConfigError, match=message):
        suite.check_protocol(plan)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("tasks.habitats={activity: 2, noise: 0.4, kinds: 1}", "tasks"),
        ("run.generations=30", "run.generations"),
        ("host.model=smollm2", "host.model"),
    ],
)
def test_an_arm_that_meets_other_questions_is_refused_before_anything_runs(
    change: str, part: str
) -> None:
    arms = PLAN["arms"] | {"told": {"about": "told", "set": ["strategy.kind=told", change]}}
    plan = Protocol.model_validate({**PLAN, "arms": arms})
    with pytest.raises(ConfigError, match=f"drifting, arm told: expected the {part} of"):
        suite.check_protocol(plan)


def test_an_arm_may_be_asked_the_same_questions_in_other_words() -> None:
    change = ["strategy.kind=told", "tasks.habitats.shown=true"]
    arms = PLAN["arms"] | {"told": {"about": "told", "set": change}}
    suite.check_protocol(Protocol.model_validate({**PLAN, "arms": arms}))


def test_a_measure_that_nobody_knows_is_refused() -> None:
    goal = {"about": "a", "world": "coming", "measure": "acceptence", "at_most": 1}
    plan = Protocol.model_validate({**PLAN, "goals": [goal]})
    with pytest.raises(ConfigError, match="did you mean 'acceptance'"):
        suite.check_protocol(plan)

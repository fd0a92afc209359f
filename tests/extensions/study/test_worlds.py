"""Suites of worlds with users: protocols, jobs, measures and packs."""

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
from symbiont_ecology.extensions.study.jobs import Job, JobContext, course_of
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
            "set": ["tasks.users.drift_at=20", "tasks.users.count=12"],
            "arms": ["ecology", "told", "neutral"],
        },
        "coming": {
            "about": "a city",
            "base": ["habitats/city"],
            "set": ["tasks.users.count=30", "tasks.users.arrivals=30"],
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
        "neutral": {"about": "drawn", "set": ["strategy={kind: neutral, births: 0.2}"]},
    },
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
                jobs.run_job(JobContext(job, plan, folder, never))
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
        by_user = table.groupby("user")["verdict"].mean()
        for number, name in enumerate(run.asked.world.names):
            mine = run.accepted[run.asked.users == number]
            assert mine.mean() == pytest.approx(by_user[name]) if len(mine) else True
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


def test_told_is_exact_and_the_same_questions_are_paired(results: Results) -> None:
    world = summarise_worlds(results)["worlds"]["drifting"]
    ecology, told = (world["measures"][arm] for arm in ("ecology", "told"))
    assert told["exact"].seeds == [1.0, 1.0]
    assert (told["scored"].estimate, ecology["scored"].estimate) == (0, pytest.approx(1))
    test = world["minus"]["told"]
    expected = np.subtract(ecology["acceptance"].seeds, told["acceptance"].seeds)
    assert test.seeds == pytest.approx(expected.tolist())
    assert not test.is_claimed  # two seeds can show nothing


def test_a_pack_of_worlds_is_made_again_byte_for_byte(
    done: tuple[Protocol, Path], tmp_path: Path
) -> None:
    plan, folder = done
    target = suite.Suite(plan, folder).comparison.save_pack(tmp_path / "packs" / "small")
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert {"README.md", "summary.json", "coming.png"} <= before.keys()
    pack.rebuild(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert json.loads(before["manifest.json"])["protocol"] == plan.digest


def packed(results: Results, left: list[Outcome], folder: Path) -> str:
    """The page of a pack of some of the outcomes."""
    pack.write_pack(folder, results.protocol, left, Tuning(chosen={}))
    return (folder / "README.md").read_text()


def test_one_seed_of_an_unfinished_suite_has_no_interval(results: Results, tmp_path: Path) -> None:
    left = [one for one in results.outcomes if one.seed == 3 and one.arm != "neutral"]
    few = Results(results.protocol, left)
    assert (few.missing, few.protocol.planned_runs) == (6, 10)
    page = packed(results, left, tmp_path / "pack")
    worlds = json.loads((tmp_path / "pack" / "summary.json").read_text())["worlds"]
    assert set(worlds["coming"]["measures"]["told"]["acceptance"]) == {"estimate", "seeds"}
    assert "**This suite is not finished: 6 of its 10 runs are missing.**" in page
    assert "nan" not in page


def test_a_job_that_is_done_loads_no_host_and_a_torn_outcome_is_refused(
    done: tuple[Protocol, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, folder = done[0], shutil.copytree(done[1], tmp_path / "suite")
    monkeypatch.setattr(jobs, "host_of", lambda config: pytest.fail("a host was loaded"))
    context = JobContext(Job("stream", "ecology", 3, world="coming"), plan, folder, never)
    assert jobs.run_job(context).stream is not None
    (context.place / "outcome.json").write_text("torn")
    with pytest.raises(RunError):
        jobs.run_job(context)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"main": "nobody"}, "main"),
        ({"tuning_seeds": []}, "tuning_seeds"),
        ({"budgets": [2, 1]}, "budgets"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        Protocol.model_validate(PLAN | change)


@pytest.mark.parametrize(
    ("base", "message"), [("steady", "got none"), ("habitats/log", "or users of data")]
)
def test_what_leaves_no_kinds_is_refused_before_anything_runs(base: str, message: str) -> None:
    place = {"about": "w", "base": [base], "arms": ["ecology"]}
    plan = Protocol.model_validate({**PLAN, "worlds": {"w": place}})
    with pytest.raises(ConfigError, match=message):
        suite.check_protocol(plan)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("tasks.users={activity: 2, noise: 0.4, kinds: 1}", "tasks"),
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

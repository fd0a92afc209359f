"""Suites of worlds with habitats: protocols, jobs, measures and packs."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from questions import accepted_share, of_newcomers, questions_of
from symbiont_ecology.analysis import pack
from symbiont_ecology.analysis.streams import STREAM_MEASURES, check_measures
from symbiont_ecology.analysis.worlds import WorldResults
from symbiont_ecology.cli.compare import pack as typed_pack
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted
from symbiont_ecology.experiments import suite, world_jobs, worlds
from symbiont_ecology.experiments.outcomes import StreamOutcome
from symbiont_ecology.experiments.world_jobs import WorldJob
from symbiont_ecology.experiments.worlds import WorldsProtocol
from symbiont_ecology.statistics import adjusted_rand
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
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorldsProtocol, Path]:
    """A whole suite on the toy host, in this process."""
    plan, folder = WorldsProtocol.model_validate(PLAN), tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world_jobs, "host_of", lambda config: ToyHost())
        suite.claim_folder(plan, folder)
        for _, jobs in suite._world_stages(plan, folder):
            for job in jobs:
                job.work(plan.model_dump_json(), folder, never)
    return plan, folder


@pytest.fixture(scope="module")
def results(done: tuple[WorldsProtocol, Path]) -> WorldResults:
    plan, folder = done
    return WorldResults(plan, suite.streams(plan, folder))


def test_tuning_chooses_by_acceptance_on_other_seeds(done: tuple[WorldsProtocol, Path]) -> None:
    plan, folder = done
    tuning = suite.read_tuning(folder)
    assert {(score.arm, score.seed) for score in tuning.sweep} == {
        ("drifting/told", 1),
        ("coming/told", 1),
    }
    for world in plan.worlds:
        scores = {s.option: s.accuracy for s in tuning.sweep if s.arm == f"{world}/told"}
        assert tuning.chosen[world]["told"] == max(scores, key=scores.__getitem__)


def test_a_choice_that_was_made_before_is_not_made_again() -> None:
    plan = WorldsProtocol.model_validate({**PLAN, "chosen": {"drifting": {"told": 1}}})
    assert {job.world for job in world_jobs.tuning_runs(plan)} == {"coming"}
    assert world_jobs.choose_by_acceptance(plan, [])["drifting"] == {"told": 1}


def test_an_outcome_has_every_question_in_its_place(
    done: tuple[WorldsProtocol, Path], results: WorldResults
) -> None:
    _, folder = done
    for (world, arm), runs in results.runs.items():
        for seed, run in runs.items():
            job = WorldJob("stream", world, arm, seed, run.outcome.option)
            table = questions_of(read_events(folder / job.name / "events.jsonl"))
            assert len(run.outcome.verdicts) == len(table)
            assert run.outcome.acceptance == pytest.approx(accepted_share(table))
            by_habitat = table.groupby("habitat")["verdict"].mean()
            for number, name in enumerate(run.asked.world.names):
                mine = run.accepted[run.asked.habitats == number]
                assert mine.mean() == pytest.approx(by_habitat[name]) if len(mine) else True
            newcomers = STREAM_MEASURES["newcomers"](run)
            if newcomers is not None:
                assert newcomers == pytest.approx(accepted_share(of_newcomers(table)), abs=0.1)


def test_an_outcome_says_who_serves_whom_at_the_end(
    done: tuple[WorldsProtocol, Path], results: WorldResults
) -> None:
    _, folder = done
    for (world, arm), runs in results.runs.items():
        for seed, run in runs.items():
            job = WorldJob("stream", world, arm, seed, run.outcome.option)
            served = load_state(folder / job.name).served
            groups = defaultdict[int, set[str]](set)
            for name, server in zip(
                run.asked.world.names, run.outcome.served_by or (), strict=True
            ):
                groups[server].add(name)
            groups.pop(-1, None)
            assert sorted(map(sorted, groups.values())) == sorted(served.values())
            assert STREAM_MEASURES["serving"](run) == len(served)


def test_a_measure_that_one_seed_does_not_have_is_told_of_no_seed(results: WorldResults) -> None:
    first, *rest = (one for one in results.outcomes if one.world == "coming")
    old = first.model_copy(update={"served_by": None, "deaths": [39]})
    measures = WorldResults(results.protocol, [old, *rest]).measures["coming"]
    assert "serving" not in measures[old.arm]
    assert "acceptance" in measures[old.arm]


def test_a_question_with_half_of_the_marks_is_accepted(
    done: tuple[WorldsProtocol, Path], results: WorldResults
) -> None:
    run = results.runs["coming", "ecology"][3]
    job = WorldJob("stream", "coming", "ecology", 3, run.outcome.option)
    marked = [
        replace(event, verdicts=(0.5,) * len(event.verdicts)) if isinstance(event, Acted) else event
        for event in read_events(done[1] / job.name / "events.jsonl")
    ]
    assert set(str(world_jobs.course_of(marked, run.asked.world, {})["verdicts"])) <= {"1", "-"}


def test_an_arm_that_repeats_another_is_born_and_dies_with_it(results: WorldResults) -> None:
    for seed, run in results.runs["drifting", "neutral"].items():
        model = results.runs["drifting", "ecology"][seed]
        assert run.outcome.births == model.outcome.births
        assert run.outcome.deaths == model.outcome.deaths
        assert run.outcome.population == model.outcome.population


def test_told_is_exact_and_the_same_questions_are_paired(results: WorldResults) -> None:
    told = results.measures["drifting"]["told"]
    assert told["exact"].seeds == [1.0, 1.0]
    assert told["scored"].estimate == 0
    assert results.measures["drifting"]["ecology"]["scored"].estimate == pytest.approx(1)
    test = results.tests["drifting"]["told"]
    ecology = results.measures["drifting"]["ecology"]["acceptance"].seeds
    expected = np.subtract(ecology, told["acceptance"].seeds)
    assert test.seeds == pytest.approx(expected.tolist())
    assert not test.is_claimed  # two seeds can show nothing
    apart = results.dump()["worlds"]["drifting"]["apart"]["told"]["adapters"]  # type: ignore[index]
    mine, theirs = (
        results.measures["drifting"][arm]["adapters"].seeds for arm in ("ecology", "told")
    )
    assert apart["seeds"] == pytest.approx(np.subtract(mine, theirs).tolist())


def test_goals_are_judged_as_they_were_written(results: WorldResults) -> None:
    minus, many, than = results.verdicts
    assert (minus.is_met, many.is_met, than.is_met) == (True, False, True)
    means = {
        name: results.measures[name]["ecology"]["acceptance"].estimate
        for name in ("coming", "drifting")
    }
    assert than.value.estimate == pytest.approx(means["coming"] - means["drifting"])


def test_a_pack_of_worlds_is_made_again_byte_for_byte(
    done: tuple[WorldsProtocol, Path], results: WorldResults, tmp_path: Path
) -> None:
    plan, folder = done
    target = tmp_path / "pack"
    pack.write_worlds_pack(target, results, suite.read_tuning(folder))
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    assert {"README.md", "summary.json", "coming.png", "coming-servers.png"} <= before.keys()
    pack.rebuild(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    page = before["README.md"].decode()
    assert "| coming | a |" in page
    assert "**no**" in page
    assert json.loads(before["manifest.json"])["protocol"] == plan.digest


def test_one_seed_of_an_unfinished_suite_is_sure_of_nothing(
    done: tuple[WorldsProtocol, Path], results: WorldResults, tmp_path: Path
) -> None:
    left = [one for one in results.outcomes if one.seed == 3 and one.arm != "neutral"]
    few = WorldResults(results.protocol, left)
    assert (few.seeds, few.planned, few.missing) == ([3], 10, 6)
    assert not any(verdict.is_sure for verdict in few.verdicts)
    assert any(verdict.is_met for verdict in few.verdicts)
    dumped = few.dump()
    assert set(dumped["goals"][0]["value"]) == {"estimate", "seeds"}  # type: ignore[index]
    json.dumps(dumped, allow_nan=False)
    pack.write_worlds_pack(tmp_path / "pack", few, suite.read_tuning(done[1]))
    page = (tmp_path / "pack" / "README.md").read_text()
    assert "**This suite is not finished: 6 of its 10 runs are missing.**" in page
    assert "2 worlds, 3 arms, 1 seed." in page
    assert "surely |" not in page
    assert "nan" not in page
    whole = WorldResults(results.protocol, results.outcomes)
    assert (whole.seeds, whole.missing) == ([3, 4], 0)


def test_pack_says_how_much_of_a_suite_is_missing(
    done: tuple[WorldsProtocol, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "the suite is not finished, 1 of 10 runs are missing: "
    for is_whole in (True, False):
        folder = shutil.copytree(done[1], tmp_path / f"suite-{is_whole}")
        if not is_whole:
            (folder / WorldJob("stream", "coming", "ecology", 4).name / "outcome.json").unlink()
        typed_pack([folder], out=tmp_path / "pack", dry_run=True)
        assert (line in capsys.readouterr().out) is not is_whole


def test_a_suite_whose_main_arm_has_not_lived_yet_can_be_packed(
    done: tuple[WorldsProtocol, Path], results: WorldResults, tmp_path: Path
) -> None:
    left = [one for one in results.outcomes if one.arm == "told" and one.world == "coming"]
    few = WorldResults(results.protocol, left)
    pack.write_worlds_pack(tmp_path / "pack", few, suite.read_tuning(done[1]))
    page = (tmp_path / "pack" / "README.md").read_text()
    assert "## coming" in page
    assert "## drifting" not in page


def test_a_run_that_is_done_is_not_run_again(
    done: tuple[WorldsProtocol, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, folder = done
    monkeypatch.setattr(world_jobs, "host_of", lambda config: pytest.fail("a host was loaded"))
    job = WorldJob("stream", "coming", "ecology", 3)
    assert isinstance(job.work(plan.model_dump_json(), folder, never), StreamOutcome)


def test_a_run_whose_outcome_was_deleted_is_lived_anew(
    done: tuple[WorldsProtocol, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, suite_folder = done
    folder = shutil.copytree(suite_folder, tmp_path / "suite")
    monkeypatch.setattr(world_jobs, "host_of", lambda config: ToyHost())
    job = WorldJob("stream", "coming", "ecology", 3)
    path = folder / job.name / "outcome.json"
    before = path.read_bytes()
    path.write_text("torn")
    with pytest.raises(RunError, match="is damaged or of another version: delete it"):
        job.work(plan.model_dump_json(), folder, never)
    path.unlink()
    job.work(plan.model_dump_json(), folder, never)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"main": "nobody"}, "expected 'nobody' among them"),
        ({"seeds": [1]}, "seeds that tune cannot be reported"),
        ({"tuning_seeds": []}, "tuning_seeds: expected some: arms"),
        ({"chosen": {"coming": {"told": 7}}}, "no option 7"),
        ({"chosen": {"coming": {"told": -1}}}, "no option -1"),
        ({"chosen": {"comming": {"told": 1}}}, "none of the worlds; did you mean 'coming'"),
        ({"chosen": {"coming": {"tolt": 1}}}, "none of the arms; did you mean 'told'"),
        ({"chosen": {"coming": {"neutral": 0}}}, "chosen.coming: 'neutral' is none of the arms"),
        (
            {"arms": PLAN["arms"] | {"neutral": PLAN["arms"]["neutral"] | {"repeats": "ecolgy"}}},
            "arms.neutral.repeats: 'ecolgy' is none of the arms; did you mean 'ecology'",
        ),
        (
            {"arms": PLAN["arms"] | {"neutral": PLAN["arms"]["neutral"] | {"repeats": "neutral"}}},
            "expected an arm that repeats none",
        ),
        (
            {
                "arms": PLAN["arms"]
                | {"neutral": PLAN["arms"]["neutral"] | {"repeats": "other"}}
                | {"other": {"about": "lives nowhere"}}
            },
            "worlds.drifting.arms: 'neutral' repeats 'other', which is not among them",
        ),
        (
            {"arms": PLAN["arms"] | {"neutral": PLAN["arms"]["neutral"] | {"tune": [[], []]}}},
            "what it repeats is there after tuning only",
        ),
        ({"goals": [{"about": "a", "world": "coming", "measure": "late"}]}, "at_least or at_most"),
        (
            {"goals": [{"about": "a", "world": "x", "measure": "late", "at_most": 1}]},
            "'x' is none of the worlds",
        ),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        WorldsProtocol.model_validate(PLAN | change)


def test_a_world_without_habitats_is_refused_before_anything_runs() -> None:
    place = {"about": "none", "base": ["steady"], "arms": ["ecology"]}
    plan = WorldsProtocol.model_validate({**PLAN, "worlds": {"w": place}, "goals": []})
    with pytest.raises(ConfigError, match="expected a world with habitats"):
        worlds.check_worlds(plan)


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        ("habitats/log", (), "expected a world with habitats that the seed draws, got users of"),
        (
            "habitats/town",
            ("strategy={kind: single, samples: 0}", "learning_rule=supervised"),
            "w, arm ecology: strategy.samples: expected an arm that answers its users",
        ),
    ],
)
def test_what_leaves_no_verdicts_or_kinds_is_refused_before_anything_runs(
    base: str, change: tuple[str, ...], message: str
) -> None:
    place = {"about": "w", "base": [base], "set": change, "arms": ["ecology"]}
    plan = WorldsProtocol.model_validate({**PLAN, "worlds": {"w": place}, "goals": []})
    with pytest.raises(ConfigError, match=message):
        worlds.check_worlds(plan)


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
    plan = WorldsProtocol.model_validate({**PLAN, "arms": arms})
    with pytest.raises(ConfigError, match=f"drifting, arm told: {part}: expected that of 'ecol"):
        worlds.check_worlds(plan)


def test_an_arm_may_be_asked_the_same_questions_in_other_words() -> None:
    change = ["strategy.kind=told", "tasks.habitats.shown=true"]
    arms = PLAN["arms"] | {"told": {"about": "told", "set": change}}
    worlds.check_worlds(WorldsProtocol.model_validate({**PLAN, "arms": arms}))


def test_a_measure_that_nobody_knows_is_refused() -> None:
    goal = {"about": "a", "world": "coming", "measure": "acceptence", "at_most": 1}
    plan = WorldsProtocol.model_validate({**PLAN, "goals": [goal]})
    with pytest.raises(ConfigError, match="did you mean 'acceptance'"):
        check_measures(plan)


@pytest.mark.parametrize("name", ["habitats-v1", "habitats-ablations"])
def test_the_shipped_protocols_fit_together(name: str) -> None:
    plan = suite.load_plan(name)
    suite.check_plan(plan)
    assert isinstance(plan, WorldsProtocol)
    assert len(plan.seeds) >= 10
    check_measures(plan)


def test_groupings_agree_as_far_as_they_are_the_same() -> None:
    one = [0, 0, 1, 1, 2, 2]
    assert adjusted_rand(one, ["c", "c", "a", "a", "b", "b"]) == 1
    assert adjusted_rand(one, [0] * 6) == 0
    assert adjusted_rand(one, [0, 0, 1, 1, 2, 3]) == pytest.approx(0.7619, abs=1e-3)
    random = np.random.default_rng(0).integers(3, size=(2, 2000))
    assert abs(adjusted_rand(*random)) < 0.01


@pytest.mark.parametrize("things", [0, 1])
def test_groupings_of_one_thing_or_of_none_are_the_same(things: int) -> None:
    assert adjusted_rand(["a"] * things, ["b"] * things) == 1

"""Jobs of a suite on the toy host: killed in any call of the host they end as if nothing had
happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.extensions.study.jobs import Job, JobContext, Stopped, run_job
from symbiont_ecology.extensions.study.outcomes import Outcome, TuningScore
from symbiont_ecology.extensions.study.protocol import Arm, FlipPlan, Protocol
from symbiont_ecology.extensions.study.suite import (
    check_protocol,
    choose,
    reported_jobs,
    tuning_jobs,
)
from toy import Crash, ToyHost

SINGLE = ("strategy={kind: single, questions: 2, samples: 2, learning_rate: 0.1}",)


def protocol(**changes: Any) -> Protocol:
    fields: dict[str, Any] = {
        "name": "toy",
        "question": "does it hold?",
        "base": ("base",),
        "set": (
            "tasks.families=[math.add, logic.bool, string.sort]",
            "tasks.depths=[short]",
            "host.slots=4",
        ),
        "unit_flops": 3e7,
        "budgets": (0.5, 1.0),
        "seeds": (0, 1),
        "tuning_seeds": (9,),
        "main": "single",
        "shifts": ("in-distribution", "retention"),
        "per_cell": 5,
        "flip": FlipPlan(at=1.0, back=1.5, extra=(0.0, 0.5), per_cell=4),
        "arms": {
            "single": Arm(
                about="one",
                set=SINGLE,
                routing="single",
                tune=((), ("strategy.learning_rate=0.05",)),
            ),
            "ecology": Arm(
                about="many",
                set=(
                    "strategy={kind: ecology, founders: 3, questions: 2, samples: 2}",
                    "economy.dowry=12000",
                ),
                tune=((), ("strategy.learning_rate=0.05",)),
            ),
            "routed": Arm(about="one behind a router", of="single"),
        },
    }
    return Protocol(**{**fields, **changes})


JOBS = (
    Job("tune", "single", 9, 1.0, 1),
    Job("main", "ecology", 0, 1.0),
    Job("flip", "single", 1, 1.0),
    Job("flip", "ecology", 0, 1.0),
)


def crashing(job: Job, plan: Protocol, folder: Path, every: int) -> Outcome:
    """The job, killed again and again after so many calls of the host."""
    for _ in range(200):
        try:
            return run_job(JobContext(job, plan, folder, lambda: False, ToyHost(crash_at=every)))
        except Crash:
            continue
    raise AssertionError("it gets nowhere")


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.kind}-{job.arm}")
@pytest.mark.parametrize("every", [5, 8])
def test_a_job_killed_in_any_call_leaves_what_one_left_alone_leaves(
    job: Job, every: int, tmp_path: Path
) -> None:
    plan = protocol()
    whole = run_job(JobContext(job, plan, tmp_path / "whole", lambda: False, ToyHost()))
    assert crashing(job, plan, tmp_path / "killed", every) == whole
    for file in ("state.json", "events.jsonl", "outcome.json"):
        parts = (tmp_path / "killed" / job.name / file, tmp_path / "whole" / job.name / file)
        assert parts[0].read_bytes() == parts[1].read_bytes()


def test_a_run_with_stages_is_measured_whenever_a_family_came(tmp_path: Path) -> None:
    world = (*protocol().set, "tasks.arrivals=[5e6, 1e7]")
    plan = protocol(set=world, stage_per_cell=3)
    context = JobContext(Job("main", "single", 0, 1.0), plan, tmp_path, lambda: False, ToyHost())
    assert [leg.phase for leg in run_job(context).legs] == ["stage"] * 3 + ["run"]


def test_a_job_that_is_told_to_stop_stops_and_goes_on(tmp_path: Path) -> None:
    job, plan, stops = JOBS[2], protocol(), 0
    whole = run_job(JobContext(job, plan, tmp_path / "whole", lambda: False, ToyHost()))
    while True:
        try:
            found = run_job(JobContext(job, plan, tmp_path / "stopped", lambda: True, ToyHost()))
            break
        except Stopped:
            stops += 1
    assert found == whole
    assert stops > 3


def test_arms_that_share_runs_have_no_jobs_and_both_ways_of_answering(tmp_path: Path) -> None:
    plan = protocol()
    tuned = {arm: {"0.5": 0, "1": 1} for arm in plan.own_arms}
    jobs = reported_jobs(plan, tuned)
    assert {job.arm for job in (*jobs, *tuning_jobs(plan))} == {"host", "single", "ecology"}
    assert len(jobs) == 1 + 2 * 2 * (2 + 1)
    found = run_job(
        JobContext(Job("main", "single", 0, 0.5), plan, tmp_path, lambda: False, ToyHost())
    )
    assert list(found.systems) == ["single", "learned"]


def tuned(option: int, **scores: float) -> TuningScore:
    """What tuning an option came to."""
    return TuningScore(arm="single", seed=9, budget=1.0, option=option, **scores)


def test_tuning_chooses_the_best_mean_and_the_first_of_equals() -> None:
    def tried(*accuracies: tuple[int, float]) -> list[TuningScore]:
        return [tuned(option, accuracy=accuracy) for option, accuracy in accuracies]

    assert choose(tried((0, 0.2), (0, 0.4), (1, 0.35), (1, 0.35))) == 1
    assert choose(tried((0, 0.9), (0, 0.7), (1, 0.8), (1, 0.8))) == 0
    assert choose([]) == 0


def test_of_configs_within_the_tie_tuning_chooses_the_one_that_keeps_most() -> None:
    found = ((0.874, 0.75), (0.87, 0.85), (0.868, 0.84), (0.86, 0.99))
    tried = [
        tuned(option, accuracy=accuracy, retention=retention)
        for option, (accuracy, retention) in enumerate(found)
    ]
    assert choose(tried, tie=0.01) == 1
    assert choose(tried) == 0
    alike = [one.model_copy(update={"retention": 0.5}) for one in tried]
    assert choose(alike, tie=0.01) == 0  # the first of equals


def test_what_tuning_measures_is_what_is_reported(tmp_path: Path) -> None:
    """A run that goes on to other budgets is not the run that ends there."""
    plan = protocol()
    for budget in plan.budgets:
        tried = Job("tune", "single", 0, budget)
        reported = Job("main", "single", 0, budget)
        for job in (tried, reported):
            run_job(JobContext(job, plan, tmp_path, lambda: False, ToyHost()))
        states = [(tmp_path / job.name / "state.json").read_bytes() for job in (tried, reported)]
        assert states[0] == states[1]
    assert {job.budget for job in tuning_jobs(plan)} == set(plan.budgets)


def test_the_hash_of_a_protocol_covers_what_its_presets_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("tasks: {families: [math.add]}\n")
    first = protocol(base=(str(preset),)).digest
    assert protocol(base=(str(preset),)).digest == first
    preset.write_text("tasks: {families: [math.add]}\neconomy: {ticket: 400}\n")
    assert protocol(base=(str(preset),)).digest != first
    assert protocol(per_cell=6).digest != protocol().digest
    preset.write_text(
        "tasks: {families: [math.add]}\nrun: {transcripts: 3, report_to: [tensorboard]}\n"
    )
    assert protocol(base=(str(preset),)).digest == first  # who looks on decides nothing


def test_a_protocol_whose_first_shift_has_no_questions_is_refused() -> None:
    check_protocol(protocol(flip=None))
    with pytest.raises(ConfigError, match="expected a shift with questions for these tasks"):
        check_protocol(protocol(flip=None, shifts=("users",)))

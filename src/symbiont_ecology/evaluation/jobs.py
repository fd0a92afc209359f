"""One job of a suite: live a run to its budget, answer the protocol's questions, leave one file of outcomes.

A job is a value and its folder is named by it, so a suite that was killed finds again what is done: a finished
job has its ``outcome.json``, other runs go on from their last generation, and answers are kept in a book.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from symbiont_ecology.config import HostConfig, RunConfig, TasksConfig
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.build import build_host, mixture
from symbiont_ecology.engine.world import Host
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.biography import biography
from symbiont_ecology.evaluation.measure import Candidates, Evaluation
from symbiont_ecology.evaluation.protocol import Protocol
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.events import read_events

OUTCOME_FILE = "outcome.json"
SCHEMA = 1
"""Of the outcomes that a job leaves."""

Kind = Literal["tune", "main", "flip"]


@dataclass(frozen=True)
class Job:
    """A run of one arm with one seed: to choose among tuning configs, to be reported, or through the flip."""

    kind: Kind
    arm: str
    seed: int
    budget: float
    option: int = 0
    """Which of the arm's tuning configs."""

    @property
    def name(self) -> str:
        """Folder below the suite's."""
        return f"{self.kind}/{self.arm}/x{self.budget:g}/option-{self.option}/seed-{self.seed}"


class Stopped(Exception):  # noqa: N818
    """The job was asked to stop; it has checkpointed and can go on."""


def carry_out(
    job: Job, protocol: Protocol, folder: Path, should_stop: Callable[[], bool], host: Host | None = None
) -> dict[str, Any]:
    """Does a job, or what is left of it, and returns its outcome.

    Raises:
        Stopped: ``should_stop`` said so.
        RunError: the run cannot go on.
    """
    place = folder / job.name
    if (done := read_outcome(place, protocol)) is not None:
        return done
    tuned = protocol.arms[job.arm].tune[job.option]
    config = protocol.config(job.arm, job.budget, job.seed, tuned)
    body = {"tune": _tune, "main": _main, "flip": _flip}[job.kind]
    outcome = {
        "schema": SCHEMA,
        "protocol": protocol.digest,
        **asdict(job),
        **body(
            protocol, config, place, should_stop, host or _host(config.host, json.dumps(config.tasks.style))
        ),
    }
    _write(place / OUTCOME_FILE, outcome)
    return outcome


def read_outcome(place: Path, protocol: Protocol) -> dict[str, Any] | None:
    """What a finished job left; None while it is not finished.

    Raises:
        RunError: it belongs to another protocol.
    """
    path = place / OUTCOME_FILE
    if not path.exists():
        return None
    outcome = dict(json.loads(path.read_text(encoding="utf-8")))
    if outcome["protocol"] != protocol.digest:
        raise RunError(
            f"{path} belongs to protocol {outcome['protocol']}, this one is {protocol.digest}: "
            "choose another --out, results of two protocols do not mix"
        )
    return outcome


def _tune(
    protocol: Protocol, config: RunConfig, place: Path, should_stop: Callable[[], bool], host: Host
) -> dict[str, Any]:
    """Accuracy on selection questions, which no reported number uses."""
    _live(config, place, should_stop, host)
    candidates = Candidates.of_run(place)
    questions = draw_shifts(mixture(config), ["in-distribution"], protocol.tuning_per_cell, split="selection")
    evaluation = candidates.evaluate(questions, host, protocol.arms[_arm_of(place)].routing)
    return {"accuracy": evaluation.accuracy().estimate}


def _main(
    protocol: Protocol, config: RunConfig, place: Path, should_stop: Callable[[], bool], host: Host
) -> dict[str, Any]:
    """Every shift by every routing of the arm."""
    _live(config, place, should_stop, host)
    arm, candidates = protocol.arms[_arm_of(place)], Candidates.of_run(place)
    questions = main_questions(protocol, config)
    systems = {}
    for routing in (arm.routing, *arm.also):
        evaluation = candidates.evaluate(questions, host, routing)
        systems[routing] = {
            **_bits(evaluation),
            "flops": evaluation.flops,
            "choices": evaluation.summary()["choices"],
        }
        if should_stop():
            raise Stopped
    return {
        "systems": systems,
        "life": asdict(biography(read_events(place / runs.EVENTS_FILE))),
        "train": asdict(candidates.portfolio.state.budget.train),
        "selection_flops": candidates.selection_flops,
    }


def _flip(
    protocol: Protocol, config: RunConfig, place: Path, should_stop: Callable[[], bool], host: Host
) -> dict[str, Any]:
    """Accuracy in the conventions in force, at every leg after the flip and after the flip back."""
    plan = protocol.flip
    assert plan is not None
    config, legs = protocol.flipped(config), []
    moments = [("before", plan.at, 0.0)]
    moments += [("flipped", plan.at, extra) for extra in plan.extra]
    moments += [("back", plan.back, extra) for extra in plan.extra]
    for number, (phase, since, extra) in enumerate(moments):
        end = (since + extra) * protocol.unit_flops
        loop = config.run.model_copy(update={"train_flops": end})
        _live(config.model_copy(update={"run": loop}), place, should_stop, host)
        candidates = Candidates.of_run(place)
        # What is asked changes with the phase, even where nothing was spent since the change.
        tasks = replace(mixture(config), is_flipped=phase == "flipped")
        questions = draw_shifts(tasks, ["in-distribution"], plan.per_cell, seed=number)
        evaluation = candidates.evaluate(questions, host, protocol.arms[_arm_of(place)].routing)
        spent = candidates.portfolio.state.budget.train.flops
        legs.append({"phase": phase, "extra": extra, "train_flops": spent, **_bits(evaluation)})
    assert config.tasks.flip is not None
    return {"families": list(config.tasks.flip.families), "legs": legs}


def main_questions(protocol: Protocol, config: RunConfig) -> list[Question]:
    """What every reported run is asked; the same for all arms and seeds."""
    return draw_shifts(mixture(config), protocol.shifts, protocol.per_cell)


def _arm_of(place: Path) -> str:
    return place.parts[-4]


def _bits(evaluation: Evaluation) -> dict[str, Any]:
    """Verdicts as text of 0 and 1, by shift and cell, in the order of the questions."""
    bits: dict[str, dict[str, str]] = {}
    for one in evaluation.answers:
        cells = bits.setdefault(one.question.shift, {})
        cells[one.question.cell] = cells.get(one.question.cell, "") + ("1" if one.verdict else "0")
    return {"bits": bits}


def _live(config: RunConfig, place: Path, should_stop: Callable[[], bool], host: Host) -> None:
    """Founds the run or goes on with it, to its budget."""
    if (place / runs.CONFIG_FILE).exists():
        budget = [f"run.train_flops={config.run.train_flops}"]
        finished = runs.resume(place, overrides=budget, should_stop=should_stop, host=host)
    else:
        finished = runs.start(config, place, should_stop=should_stop, host=host)
    if not finished.is_complete:
        raise Stopped


@lru_cache(maxsize=2)
def _host(config: HostConfig, style: str) -> Host:
    """One host per process, config and style of prompts: loading it takes longer than a small run."""
    tasks = TasksConfig.model_construct(style=json.loads(style))
    return build_host(RunConfig.model_construct(host=config, tasks=tasks))


def _write(path: Path, outcome: dict[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_text(json.dumps(outcome) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def choose(outcomes: Sequence[dict[str, Any]], options: int) -> int:
    """The tuning config with the highest mean accuracy; the first of equals."""
    means = []
    for option in range(options):
        found = [one["accuracy"] for one in outcomes if one["option"] == option]
        means.append(sum(found) / len(found))
    return max(range(options), key=lambda option: means[option])

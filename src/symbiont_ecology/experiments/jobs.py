"""One job of a suite: live a run to its budget, answer the protocol's questions, leave one file of
outcomes.

A job is a value and its folder is named by it, so a killed suite finds again what is done: a
finished job has its ``outcome.json``, other runs go on from their last generation, answers are kept
in a book.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from symbiont_ecology.config import HostConfig, RunConfig, TasksConfig, dump_config
from symbiont_ecology.ecology import HOST, cell_name
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.build import build_host, mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.answer_cache import AnswerCache
from symbiont_ecology.evaluation.evaluator import Evaluator, Progress, no_progress
from symbiont_ecology.evaluation.measure import ANSWERS_FILE, Evaluation, LoadedRun
from symbiont_ecology.evaluation.run_summary import run_summary, training_curve
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.events import Acted, read_events
from symbiont_ecology.experiments.protocol import Arm, Protocol
from symbiont_ecology.files import write_whole
from symbiont_ecology.types import Item

OUTCOME_FILE, LEGS_FILE = "outcome.json", "legs.json"
OUTCOME_SCHEMA = 1
"""Of the outcomes that a job leaves."""

Kind = Literal["tune", "main", "flip", "host"]
ROUTING_SHIFTS = ("in-distribution", "wording", "unrelated-families")
"""Where the other routings of an arm are compared, at the largest budget."""


@dataclass(frozen=True)
class Job:
    """A run of one arm with one seed: to choose among tuning configs, to be reported, or through
    the flip.

    A run has one budget, known from the start, in tuning as in what is reported. The job of kind
    ``host`` lives nothing: the bare host answers.
    """

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


HOST_JOB = Job("host", HOST, 0, 0.0)


class Stopped(Exception):  # noqa: N818
    """The job was asked to stop; it has checkpointed and can go on."""


@dataclass(frozen=True)
class JobContext:
    """A job with everything that it needs."""

    job: Job
    protocol: Protocol
    config: RunConfig
    folder: Path
    host: Host
    should_stop: Callable[[], bool]

    @property
    def place(self) -> Path:
        """The job's own folder."""
        return self.folder / self.job.name

    @property
    def arm(self) -> Arm:
        """The side of the comparison that the job belongs to."""
        return self.protocol.arms[self.job.arm]

    def lived(self, config: RunConfig) -> LoadedRun:
        """Founds the run or goes on with it, to the end of the config's budget."""
        if (self.place / runs.CONFIG_FILE).exists():
            budget = [f"run.train_flops={config.run.train_flops}"]
            finished = runs.resume(
                self.place, overrides=budget, should_stop=self.should_stop, host=self.host
            )
        else:
            finished = runs.start(config, self.place, should_stop=self.should_stop, host=self.host)
        if not finished.is_complete:
            raise Stopped
        # Answers are shared by the whole suite: arms may leave the same question to the same host.
        return LoadedRun.of_run(self.place, cache=self.folder / ANSWERS_FILE)


def run_job(
    job: Job,
    protocol: Protocol,
    folder: Path,
    should_stop: Callable[[], bool],
    host: Host | None = None,
) -> dict[str, Any]:
    """Does a job, or what is left of it, and returns its outcome.

    Raises:
        Stopped: ``should_stop`` said so.
        RunError: the run cannot go on.
    """
    place = folder / job.name
    if (done := read_outcome(place, protocol)) is not None:
        return done
    arm = protocol.main if job.kind == "host" else job.arm
    config = protocol.config(arm, job.budget or 1.0, job.seed, protocol.arms[arm].tune[job.option])
    world = host or _host(config.host, json.dumps(config.tasks.style))
    task = JobContext(job, protocol, config, folder, world, should_stop)
    found = {"tune": _tune, "main": _main, "flip": _flip, "host": _bare}[job.kind](task)
    outcome = {**signed(protocol), **asdict(job), **found}
    write_whole(place / OUTCOME_FILE, json.dumps(outcome) + "\n")
    return outcome


def signed(protocol: Protocol) -> dict[str, Any]:
    """What every outcome begins with: which protocol and which code it comes from."""
    return {"schema": OUTCOME_SCHEMA, "protocol": protocol.digest, "source": runs.source()}


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


def _tune(task: JobContext) -> dict[str, Any]:
    """Accuracy, and retention where it may decide, on selection questions, which no reported number
    uses."""
    tasks, per_cell = mixture(task.config), task.protocol.tuning_per_cell
    candidates = task.lived(task.config)
    wanted = {"accuracy": "in-distribution"} | (
        {"retention": "retention"} if task.protocol.tie else {}
    )
    found = {}
    for name, shift in wanted.items():
        questions = draw_shifts(tasks, [shift], per_cell, split="selection")
        found[name] = (
            candidates.evaluate(questions, task.host, task.arm.routing).accuracy().estimate
        )
    return found


def _main(task: JobContext) -> dict[str, Any]:
    """Every shift, and at the largest budget some of them by every other routing of the arm."""
    is_largest = task.job.budget == max(task.protocol.budgets)
    candidates = task.lived(task.config)
    return outcome_of_run(
        task.protocol,
        task.job.arm,
        candidates,
        task.host,
        is_whole=is_largest,
        should_stop=task.should_stop,
    )


def outcome_of_run(
    protocol: Protocol,
    arm: str,
    candidates: LoadedRun,
    host: Host,
    watch: Progress = no_progress,
    *,
    is_whole: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """What a run answered, did and spent. ``is_whole`` asks by all other routings of the arm, too.

    Raises:
        Stopped: ``should_stop`` said so; what was answered is in the run's book.
    """
    systems = dict[str, dict[str, Any]]()
    main, others = protocol.routings(arm), protocol.arms[arm].also if is_whole else ()
    for routing in dict.fromkeys((*main, *others)):
        shifts = protocol.shifts
        if routing not in main:
            shifts = tuple(name for name in shifts if name in ROUTING_SHIFTS)
        questions = questions_of(protocol, candidates.config, shifts)
        evaluation = candidates.evaluate(questions, host, routing, progress=watch)
        systems[routing] = {**_bits(evaluation), **_costs(evaluation)}
        if should_stop():
            raise Stopped
    state = candidates.pool.state
    # Not beyond the checkpoint: what a killed run did after it will be done again.
    events = list(islice(read_events(candidates.folder / runs.EVENTS_FILE), state.next_seq))
    practice = [one for one in events if isinstance(one, Acted) and one.purpose == "practice"]
    return {
        "systems": systems,
        "life": asdict(run_summary(events)),
        "course": [list(astuple(moment)) for moment in training_curve(events)],
        "solved": sum(sum(one.verdicts) for one in practice),
        "train": asdict(state.spent),
        "selection_flops": candidates.selection.flops,
    }


def _flip(task: JobContext) -> dict[str, Any]:
    """Accuracy in the conventions in force, at every leg after the flip and after the flip back.

    What was measured is written down at once: a run that was killed later on has gone past that
    state.
    """
    plan = task.protocol.flip
    assert plan is not None
    config = task.protocol.flipped(task.config)
    assert config.tasks.flip is not None
    moments = [("before", plan.at, 0.0)]
    moments += [("flipped", plan.at, extra) for extra in plan.extra]
    moments += [("back", plan.back, extra) for extra in plan.extra]
    _fork(task, config)
    path = task.place / LEGS_FILE
    legs = list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []
    for number, (phase, since, extra) in enumerate(moments[len(legs) :], start=len(legs)):
        loop = config.run.model_copy(
            update={"train_flops": (since + extra) * task.protocol.unit_flops}
        )
        candidates = task.lived(config.model_copy(update={"run": loop}))
        # What is asked changes with the phase, even where nothing was spent since the change.
        tasks = replace(mixture(config), is_flipped=phase == "flipped")
        questions = draw_shifts(tasks, ["in-distribution"], plan.per_cell, seed=number)
        systems = {
            routing: _bits(candidates.evaluate(questions, task.host, routing))
            for routing in task.protocol.routings(task.job.arm)
        }
        spent = candidates.pool.state.spent.flops
        legs.append({"phase": phase, "extra": extra, "train_flops": spent, "systems": systems})
        write_whole(path, json.dumps(legs) + "\n")
    return {"families": list(config.tasks.flip.families), "legs": legs}


def _fork(task: JobContext, config: RunConfig) -> None:
    """Begins where the reported run of the same arm and seed ended: it lived the same up to the
    flip."""
    source = task.folder / replace(task.job, kind="main").name
    if task.place.exists() or not (source / OUTCOME_FILE).exists():
        return
    half_made = task.place.with_name(f"{task.place.name}.new")
    shutil.rmtree(half_made, ignore_errors=True)
    shutil.copytree(
        source, half_made, ignore=shutil.ignore_patterns(OUTCOME_FILE, f"{ANSWERS_FILE}*", "lock")
    )
    (half_made / runs.CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
    half_made.replace(task.place)


def _bare(task: JobContext) -> dict[str, Any]:
    """The bare host on every shift."""
    task.place.mkdir(parents=True, exist_ok=True)
    return bare_host(task.protocol, task.config, task.host, task.folder / ANSWERS_FILE)


def bare_host(protocol: Protocol, config: RunConfig, host: Host, book: Path) -> dict[str, Any]:
    """The bare host on every shift, and where each cell's convention is told: its ceiling."""
    questions = questions_of(protocol, config, tuple(dict.fromkeys((*protocol.shifts, "ceiling"))))
    examiner = Evaluator(host, {}, AnswerCache(book), host.fingerprint())
    answers = examiner.ask(questions, [HOST] * len(questions))
    evaluation = Evaluation(HOST, HOST, examiner.fingerprint, tuple(answers))
    systems = {HOST: {**_bits(evaluation), **_costs(evaluation)}}
    found = {"systems": systems, "host": evaluation.host, "versions": runs.versions()}
    return {**signed(protocol), **asdict(HOST_JOB), **found}


def questions_of(protocol: Protocol, config: RunConfig, shifts: Sequence[str]) -> list[Item]:
    """What every reported run is asked; the same for all arms and seeds."""
    return list(_drawn(config.tasks.model_dump_json(), tuple(shifts), protocol.per_cell))


@lru_cache(maxsize=4)
def _drawn(tasks: str, shifts: tuple[str, ...], per_cell: int) -> tuple[Item, ...]:
    """Once per process: drawing many questions takes a second."""
    config = RunConfig.model_construct(tasks=TasksConfig.model_validate_json(tasks))
    return tuple(draw_shifts(mixture(config), shifts, per_cell))


def _bits(evaluation: Evaluation) -> dict[str, Any]:
    """Verdicts as text of 0 and 1, by shift and cell, in the order of the items."""
    bits: dict[str, dict[str, str]] = {}
    for rollout in evaluation.rollouts:
        cells, cell = bits.setdefault(rollout.item.shift, {}), cell_name(rollout.item.cell)
        cells[cell] = cells.get(cell, "") + ("1" if rollout.verdict else "0")
    return {"bits": bits}


def _costs(evaluation: Evaluation) -> dict[str, Any]:
    """Useful FLOPs of the answers by shift, and how many of them the host gave."""
    flops: dict[str, int] = {}
    abstained: dict[str, int] = {}
    for rollout in evaluation.rollouts:
        shift = rollout.item.shift
        flops[shift] = flops.get(shift, 0) + rollout.cost.flops
        abstained[shift] = abstained.get(shift, 0) + (rollout.organelle_id == HOST)
    organelles = len(set(evaluation.choices) - {HOST})
    return {"flops": flops, "abstained": abstained, "organelles": organelles}


@lru_cache(maxsize=2)
def _host(config: HostConfig, style: str) -> Host:
    """One host per process, config and style of prompts: loading it takes longer than a small
    run."""
    tasks = TasksConfig.model_construct(style=json.loads(style))
    return build_host(RunConfig.model_construct(host=config, tasks=tasks))


def choose(outcomes: Sequence[dict[str, Any]], tie: float = 0.0) -> int:
    """The tuning config with the highest mean accuracy; the first of equals, and of none.

    A few tenths of a point are luck, and may cost ten points of what the host could do before. So
    of configs within ``tie`` of the best, the one with the highest mean retention is chosen, in the
    spirit of the one-standard-error rule (Breiman et al. 1984, Classification and Regression Trees,
    section 3.4.3).
    """
    runs: dict[int, list[tuple[float, float]]] = {}
    for one in outcomes:
        runs.setdefault(one["option"], []).append((one["accuracy"], one.get("retention", 0.0)))
    means = {
        option: [fmean(some) for some in zip(*runs[option], strict=True)] for option in sorted(runs)
    }
    best = max((accuracy for accuracy, _ in means.values()), default=0.0)
    level = {option: kept for option, (accuracy, kept) in means.items() if accuracy >= best - tie}
    return max(level, key=level.__getitem__, default=0)

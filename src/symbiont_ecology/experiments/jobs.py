"""One job of a suite: live a run to its budget, ask the protocol's items, leave one outcome.

A job is a value and its folder is named by it, so a killed suite finds again what is done: a
finished job has its ``outcome.json``, other runs go on from their last generation, and answers are
kept in a cache.
"""

from __future__ import annotations

import json
import shutil
import typing
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from pydantic import TypeAdapter

from symbiont_ecology.config import HostConfig, RunConfig, TasksConfig
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.engine import living, provenance
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.build import build_host, mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.evaluator import AnswerCache, Evaluator, Progress, no_progress
from symbiont_ecology.evaluation.general import general_of_servers, general_reader
from symbiont_ecology.evaluation.measure import ANSWERS_FILE, Evaluation, LoadedRun
from symbiont_ecology.evaluation.run_summary import run_summary, training_curve
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted
from symbiont_ecology.experiments.outcomes import (
    OUTCOME_SCHEMA,
    FlipOutcome,
    HostOutcome,
    JobKind,
    JobOutcome,
    Leg,
    Phase,
    RunOutcome,
    SystemAnswers,
    TuneOutcome,
    load_outcome,
)
from symbiont_ecology.experiments.protocol import Arm, Protocol
from symbiont_ecology.files import write_whole
from symbiont_ecology.inference.routings import routings
from symbiont_ecology.tasks.habitats import END
from symbiont_ecology.tasks.synthetic.styles import prompt_styles
from symbiont_ecology.types import Item

OUTCOME_FILE, LEGS_FILE = "outcome.json", "legs.json"
ROUTING_SHIFTS = ("in-distribution", "wording", "unrelated-families")
"""The shifts in which the other routings of an arm are compared, at the largest budget."""
STAGE_SEED = 1
"""Seed of the questions that are asked whenever a family came: others than in the end."""
_Outcome = TypeVar("_Outcome", bound=JobOutcome)
_legs = TypeAdapter(list[Leg])


@dataclass(frozen=True)
class Job:
    """A run of one arm with one seed: to tune, to be reported, or through the flip.

    A run has one budget, known from the start, in tuning as in what is reported. ``option`` says
    which of the arm's tuning configs. The job of kind ``host`` lives nothing: the host answers.
    """

    kind: JobKind
    arm: str
    seed: int
    budget: float
    option: int = 0

    @property
    def name(self) -> str:
        """Folder below the suite's."""
        return f"{self.kind}/{self.arm}/x{self.budget:g}/option-{self.option}/seed-{self.seed}"

    def work(self, protocol: str, folder: Path, should_stop: Callable[[], bool]) -> JobOutcome:
        """Does the job, or what is left of it; ``protocol`` is its JSON, ``folder`` the suite's."""
        plan = Protocol.model_validate_json(protocol)
        return run_job(JobContext(self, plan, folder, should_stop))

    def outcome(self, kind: type[_Outcome], protocol: Protocol, **parts: object) -> _Outcome:
        """The outcome of this job, signed with the protocol and the code that it comes from."""
        signature = {
            "schema": OUTCOME_SCHEMA,
            "protocol": protocol.digest,
            "source": provenance.source(),
        }
        return kind.model_validate({**signature, **asdict(self), **parts})


HOST_JOB = Job("host", HOST, 0, 0.0)


class Signed(typing.Protocol):
    """A protocol of any kind."""

    @property
    def digest(self) -> str:
        """Its hash, which every outcome names."""


class Stopped(Exception):  # noqa: N818
    """The job was asked to stop; it has checkpointed and can go on."""


@dataclass(frozen=True)
class JobContext:
    """A job with everything that it needs. ``folder`` is the suite's."""

    job: Job
    protocol: Protocol
    folder: Path
    should_stop: Callable[[], bool]
    given_host: Host | None = None

    @property
    def config(self) -> RunConfig:
        """The config of the job's run."""
        arm = self.protocol.main if self.job.kind == "host" else self.job.arm
        overrides = self.protocol.arms[arm].tune[self.job.option]
        return self.protocol.config(arm, self.job.budget or 1.0, self.job.seed, overrides)

    @property
    def host(self) -> Host:
        """The host of the job's run."""
        return self.given_host or host_of(self.config)

    @property
    def place(self) -> Path:
        """The job's own folder."""
        return self.folder / self.job.name

    @property
    def arm(self) -> Arm:
        """The side of the comparison that the job belongs to."""
        return self.protocol.arms[self.job.arm]

    def live(self, config: RunConfig) -> LoadedRun:
        """Founds the run or goes on with it, to the end of the config's budget.

        A budget that founding spends is a point of the curve like any other: nothing was learned.
        """
        host = self.host
        if (self.place / STATE_FILE).exists():
            budget = [f"run.train_flops={config.run.train_flops or 'null'}"]
            result = runs.resume(
                self.place, overrides=budget, should_stop=self.should_stop, host=host
            )
        else:
            result = runs.start(
                config, self.place, should_stop=self.should_stop, host=host, may_learn_nothing=True
            )
        if not result.is_complete:
            raise Stopped
        # Answers are shared by the whole suite: arms may leave the same item to the same host.
        return LoadedRun.of_run(self.place, cache=self.folder / ANSWERS_FILE)


def run_job(context: JobContext) -> JobOutcome:
    """Does a job, or what is left of it, and returns its outcome.

    Raises:
        Stopped: ``should_stop`` said so.
        RunError: the run cannot go on.
    """
    outcome = read_outcome(context.place, context.protocol)
    if outcome is None:
        outcome = _WORK[context.job.kind](context)
        write_whole(context.place / OUTCOME_FILE, outcome.to_json())
    return outcome


def read_outcome(place: Path, protocol: Signed) -> JobOutcome | None:
    """What a finished job left; None while it is not finished.

    Raises:
        RunError: it belongs to another protocol.
    """
    path = place / OUTCOME_FILE
    if not path.exists():
        return None
    outcome = load_outcome(path)
    if outcome.protocol != protocol.digest:
        raise RunError(
            f"{path} belongs to protocol {outcome.protocol}, this one is {protocol.digest}: "
            "choose another --out, results of two protocols do not mix"
        )
    return outcome


def _tune(context: JobContext) -> TuneOutcome:
    """Accuracy, and retention if it may decide, on selection items, which no result uses."""
    tasks, per_cell = mixture(context.config), context.protocol.tuning_per_cell
    run = context.live(context.config)

    def share(shift: str) -> float:
        """The share of selection items of a shift that is right."""
        items = draw_shifts(tasks, [shift], per_cell, split="selection")
        return run.evaluate(items, context.host, context.arm.routing).accuracy().estimate

    accuracy = share("in-distribution")
    retention = share("retention") if context.protocol.tie else None
    return context.job.outcome(
        TuneOutcome, context.protocol, accuracy=accuracy, retention=retention
    )


def _main(context: JobContext) -> RunOutcome:
    """Every shift, and at the largest budget some of them by every other routing of the arm."""
    is_largest = context.job.budget == max(context.protocol.budgets)
    stages = _stages(context)
    run = context.live(context.config)
    outcome = outcome_of_run(
        context.job,
        context.protocol,
        run,
        context.host,
        is_whole=is_largest,
        should_stop=context.should_stop,
    )
    if not stages:
        return outcome
    families = list(context.config.tasks.families)
    return outcome.model_copy(update={"stages": stages, "arrived": families})


def _stages(context: JobContext) -> list[Leg]:
    """Accuracy in all families whenever the time of one is over, if the protocol wants it.

    Arms that know of no arrivals are measured at the same moments. What was measured is written
    down at once, as in a flip.
    """
    plan, config = context.protocol, context.config
    ends = (*plan.arrivals(context.job.budget), config.run.train_flops)
    if not plan.stage_per_cell or len(ends) == 1:
        return []
    path = context.place / LEGS_FILE
    legs = _legs.validate_json(path.read_bytes()) if path.exists() else []
    for number, moment in enumerate(ends[len(legs) :], start=len(legs)):
        loop = config.run.model_copy(update={"train_flops": moment})
        run = context.live(config.model_copy(update={"run": loop}))
        items = draw_shifts(run.tasks, ["in-distribution"], plan.stage_per_cell, seed=STAGE_SEED)
        systems = {
            routing: SystemAnswers.verdicts_of(run.evaluate(items, context.host, routing))
            for routing in plan.routings(context.job.arm)
        }
        flops = run.pool.state.spent.flops
        legs.append(Leg(extra=number, train_flops=flops, systems=systems))
        write_whole(path, _legs.dump_json(legs, exclude_unset=True).decode() + "\n")
    return legs


def outcome_of_run(
    job: Job,
    protocol: Protocol,
    run: LoadedRun,
    host: Host,
    progress: Progress = no_progress,
    *,
    is_whole: bool = True,
    generation: int = END,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunOutcome:
    """What a run answered, did and spent. ``is_whole`` asks by all other routings of the arm, too;
    users are judged as in ``generation``.

    Raises:
        Stopped: ``should_stop`` said so; what was answered is in the run's cache.
    """
    systems = dict[str, SystemAnswers]()
    main, alternatives = protocol.routings(job.arm), protocol.arms[job.arm].also if is_whole else ()
    for routing in dict.fromkeys((*main, *alternatives)):
        shifts = protocol.shifts
        if routing not in main:
            shifts = tuple(name for name in shifts if name in ROUTING_SHIFTS)
        items = items_of(protocol, run.config, shifts, generation)
        systems[routing] = SystemAnswers.of(run.evaluate(items, host, routing, progress=progress))
        if should_stop():
            raise Stopped
    state, reader = run.pool.state, general_reader(run.config, run.pool, host)
    general = {}
    if reader is not None:
        general = {name: reader.of_routing(run.pool, routings.build(name)) for name in main}
        general |= general_of_servers(reader, run.pool)
    # Not beyond the checkpoint: what a killed run did after it will be done again.
    events = list(islice(read_events(run.folder / living.EVENTS_FILE), state.next_seq))
    acts = (event for event in events if isinstance(event, Acted))
    return job.outcome(
        RunOutcome,
        protocol,
        systems=systems,
        life=run_summary(events),
        course=[astuple(point) for point in training_curve(events)],
        solved=sum(sum(event.verdicts) for event in acts if event.purpose == "practice"),
        train=state.spent,
        selection_flops=run.selection.flops,
        **({"general": general} if general else {}),
    )


def _flip(context: JobContext) -> FlipOutcome:
    """Accuracy as it is judged then, at every leg after the flip and after the flip back.

    What was measured is written down at once: a run that was killed later has gone past it.
    """
    protocol, plan = context.protocol, context.protocol.flip
    assert plan is not None
    config = protocol.flipped(context.config)
    assert config.tasks.flip is not None
    moments: list[tuple[Phase, float, float]] = [("before", plan.at, 0.0)]
    moments += [("flipped", plan.at, extra) for extra in plan.extra]
    moments += [("back", plan.back, extra) for extra in plan.extra]
    _fork(context, config)
    path = context.place / LEGS_FILE
    legs = _legs.validate_json(path.read_bytes()) if path.exists() else []
    for number, (phase, since, extra) in enumerate(moments[len(legs) :], start=len(legs)):
        loop = config.run.model_copy(update={"train_flops": (since + extra) * protocol.unit_flops})
        run = context.live(config.model_copy(update={"run": loop}))
        # What is asked changes with the phase, even if nothing was spent since the change.
        tasks = replace(mixture(config), is_flipped=phase == "flipped")
        items = draw_shifts(tasks, ["in-distribution"], plan.per_cell, seed=number)
        systems = {
            routing: SystemAnswers.verdicts_of(run.evaluate(items, context.host, routing))
            for routing in protocol.routings(context.job.arm)
        }
        flops = run.pool.state.spent.flops
        legs.append(Leg(phase=phase, extra=extra, train_flops=flops, systems=systems))
        write_whole(path, _legs.dump_json(legs, exclude_unset=True).decode() + "\n")
    families = list(config.tasks.flip.families)
    return context.job.outcome(FlipOutcome, protocol, families=families, legs=legs)


def _fork(context: JobContext, config: RunConfig) -> None:
    """Begins where the reported run of the same arm and seed ended: they are equal so far."""
    source = context.folder / replace(context.job, kind="main").name
    if context.place.exists() or not (source / OUTCOME_FILE).exists():
        return
    half_made = context.place.with_name(f"{context.place.name}.new")
    shutil.rmtree(half_made, ignore_errors=True)
    ignore = shutil.ignore_patterns(OUTCOME_FILE, LEGS_FILE, f"{ANSWERS_FILE}*", "lock")
    shutil.copytree(source, half_made, ignore=ignore)
    provenance.write_config(config, half_made / living.CONFIG_FILE)
    half_made.replace(context.place)


def _bare(context: JobContext) -> HostOutcome:
    """The bare host on every shift."""
    context.place.mkdir(parents=True, exist_ok=True)
    cache = context.folder / ANSWERS_FILE
    return bare_host(context.protocol, context.config, context.host, cache)


def bare_host(
    protocol: Protocol, config: RunConfig, host: Host, cache: Path, generation: int = END
) -> HostOutcome:
    """The bare host on every shift, and with each cell's convention told: its ceiling."""
    shifts = tuple(dict.fromkeys((*protocol.shifts, "ceiling")))
    items = items_of(protocol, config, shifts, generation)
    stops = prompt_styles.build(config.tasks.style).stops
    evaluator = Evaluator(host, {}, AnswerCache(cache), host.fingerprint(), stops=stops)
    rollouts = tuple(evaluator.ask(items, [HOST] * len(items)))
    evaluation = Evaluation(HOST, HOST, evaluator.fingerprint, rollouts)
    return HOST_JOB.outcome(
        HostOutcome,
        protocol,
        systems={HOST: SystemAnswers.of(evaluation)},
        host=evaluation.host,
        versions=provenance.versions(),
    )


_WORK: dict[JobKind, Callable[[JobContext], JobOutcome]] = {
    "tune": _tune,
    "main": _main,
    "flip": _flip,
    "host": _bare,
}


def items_of(
    protocol: Protocol, config: RunConfig, shifts: Sequence[str], generation: int = END
) -> list[Item]:
    """What every reported run is asked; the same for all arms and seeds, but that the seed draws
    the users of a synthetic world. They are judged as in ``generation``."""
    seed, tasks = config.seed if config.tasks.habitats else 0, config.tasks.model_dump_json()
    return list(_drawn(tasks, tuple(shifts), protocol.per_cell, seed, generation))


@lru_cache(maxsize=4)
def _drawn(
    tasks: str, shifts: tuple[str, ...], per_cell: int, seed: int, generation: int
) -> tuple[Item, ...]:
    """Once per process: drawing many items takes a second."""
    config = RunConfig.model_construct(tasks=TasksConfig.model_validate_json(tasks), seed=seed)
    return tuple(draw_shifts(replace(mixture(config), generation=generation), shifts, per_cell))


def host_of(config: RunConfig) -> Host:
    """The host of a config. One per process, config and style: loading it takes longer than a small
    run."""
    return _host(config.host.model_dump_json(), json.dumps(config.tasks.style))


@lru_cache(maxsize=2)
def _host(config: str, style: str) -> Host:
    host = HostConfig.model_validate_json(config)
    tasks = TasksConfig.model_construct(style=json.loads(style))
    return build_host(RunConfig.model_construct(host=host, tasks=tasks))


def choose(outcomes: Sequence[TuneOutcome], tie: float = 0.0) -> int:
    """The tuning option with the highest mean accuracy; the first of equals, and of none.

    A few tenths of a point are luck, and may cost ten points of what the host could do before. So
    of options within ``tie`` of the best, the one with the highest mean retention is chosen, in the
    spirit of the one-standard-error rule (Breiman et al. 1984, Classification and Regression Trees,
    section 3.4.3).
    """
    scores: dict[int, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        score = outcome.accuracy, outcome.retention or 0.0
        scores.setdefault(outcome.option, []).append(score)
    means = {
        option: tuple(fmean(column) for column in zip(*scores[option], strict=True))
        for option in sorted(scores)
    }
    best = max((accuracy for accuracy, _ in means.values()), default=0.0)
    equals = {
        option: retention
        for option, (accuracy, retention) in means.items()
        if accuracy >= best - tie
    }
    return max(equals, key=equals.__getitem__, default=0)

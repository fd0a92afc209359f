"""One job of a suite: live a run, ask what the protocol asks, leave one outcome.

A job is a value and its folder is named by it, so a killed suite finds again what is done: a
finished job has its ``outcome.json``, other runs go on from their last generation, and what was
measured on the way is in ``legs.json``.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Event, GenerationEnded, Retired
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import Item, OrganelleId
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.evaluate.evaluator import Evaluator
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.evaluate.shifts import shifts as registered_shifts
from symbiont_ecology.extensions.study.outcomes import (
    OUTCOME_SCHEMA,
    JobKind,
    Leg,
    Outcome,
    Phase,
    SystemAnswers,
    load_outcome,
    run_summary,
)
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.run import open_run as living
from symbiont_ecology.run import provenance
from symbiont_ecology.run.build import build_host, mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.run import Run
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.styles import prompt_styles
from symbiont_ecology.tasks.users import END, SyntheticUsers, Users

OUTCOME_FILE, LEGS_FILE, TUNED_FILE = "outcome.json", "legs.json", "tuned.json"
STAGE_SEED = 1
"""Seed of the questions that are asked whenever a family came: others than in the end."""
_legs = TypeAdapter(list[Leg])


class Stopped(Exception):  # noqa: N818
    """The job was asked to stop; it has checkpointed and can go on."""


@dataclass(frozen=True)
class Job:
    """A run of one arm with one seed: to tune, to be reported, or through the flip.

    A run has one budget, known from the start, in tuning as in what is reported; in a world it has
    none. ``option`` says which of the arm's tuning configs. The job of kind ``host`` lives nothing:
    the host answers. That of kind ``stream`` is reported by what users accepted while it lived.
    """

    kind: JobKind
    arm: str
    seed: int
    budget: float = 0.0
    option: int = 0
    world: str = ""

    @property
    def name(self) -> str:
        """Folder below the suite's."""
        place = f"{self.world}/{self.arm}" if self.world else f"{self.arm}/x{self.budget:g}"
        return f"{self.kind}/{place}/option-{self.option}/seed-{self.seed}"

    def outcome(self, protocol: Protocol, **parts: object) -> Outcome:
        """Return the outcome of this job, signed with the protocol and the code that it comes
        from."""
        signature = {"schema": OUTCOME_SCHEMA, "source": provenance.source()}
        about = {**signature, "protocol": protocol.digest, **asdict(self)}
        return Outcome.model_validate({**about, **parts})


HOST_JOB = Job("host", HOST, 0)


@dataclass(frozen=True)
class Moment:
    """A measurement of a run at so many training FLOPs: so many questions per cell.
    ``extra`` is the number of a stage, or the units of FLOPs since a flip. At the end everything is
    asked that the protocol names."""

    phase: Phase
    train_flops: float | None
    extra: float = 0.0
    per_cell: int = 0
    seed: int = 0


@dataclass(frozen=True)
class JobContext:
    """A job with everything that it needs. ``folder`` is the suite's."""

    job: Job
    protocol: Protocol
    folder: Path
    should_stop: Callable[[], bool]
    given_host: Host | None = None

    @cached_property
    def config(self) -> RunConfig:
        """The config of the job's run, with the flip that it goes through."""
        job, protocol = self.job, self.protocol
        arm = protocol.main if job.kind == "host" else job.arm
        config = protocol.config(arm, job.budget or 1.0, job.seed, job.option, job.world)
        return protocol.flipped(config) if job.kind == "flip" else config

    @cached_property
    def host(self) -> Host:
        """The host of the job's run."""
        return self.given_host or host_of(self.config)

    @property
    def place(self) -> Path:
        """The job's own folder."""
        return self.folder / self.job.name

    def live(self, config: RunConfig) -> LoadedRun:
        """Found the run or go on with it, to the end of the config's budget.

        A budget that founding spends is a point of the curve like any other: nothing was learned.

        Raises:
            Stopped: ``should_stop`` said so.
        """
        if (self.place / STATE_FILE).exists():
            budget = f"run.train_flops={config.run.train_flops or 'null'}"
            run = Run.open(self.place, budget, host=self.host)
        else:
            run = Run.start(config, folder=self.place, host=self.host)
        if not run.finish(self.should_stop).is_complete:
            raise Stopped
        return run.loaded


def run_job(context: JobContext) -> Outcome:
    """Do a job, or what is left of it, and return its outcome.

    Raises:
        Stopped: ``should_stop`` said so.
        RunError: the run cannot go on.
    """
    outcome = read_outcome(context.place, context.protocol)
    if outcome is None:
        parts = _parts_of(context)
        outcome = context.job.outcome(context.protocol, **parts)
        write_whole(context.place / OUTCOME_FILE, outcome.to_json())
        if context.job.world:
            shutil.rmtree(context.place / "blobs", ignore_errors=True)  # a hundred fill a disk
    return outcome


def read_outcome(place: Path, protocol: Protocol) -> Outcome | None:
    """Return what a finished job left; None while it is not finished.

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


def _parts_of(context: JobContext) -> dict[str, object]:
    """Do the work of a job; return what its outcome is made of."""
    job, protocol, host = context.job, context.protocol, context.host
    if job.kind == "host":
        context.place.mkdir(parents=True, exist_ok=True)
        return host_parts(protocol, context.config, host)
    if job.world:
        return stream_parts(context.live(context.config))
    legs = _measured_legs(context)
    if job.kind == "main":
        run, families = context.live(context.config), context.config.tasks.families
        arrived = families if len(legs) > 1 else ()
        return {"legs": legs, **run_parts(run, arrived)}
    flip = context.config.tasks.flip
    return {"legs": legs, **({"families": list(flip.families)} if flip else {})}


def _measured_legs(context: JobContext) -> list[Leg]:
    """Live the run from moment to moment, and ask it at each of them.

    What was measured is written down at once: a run that was killed later has gone past it.
    """
    config, path = context.config, context.place / LEGS_FILE
    legs = _legs.validate_json(path.read_bytes()) if path.exists() else []
    for moment in list(_moments(context, config))[len(legs) :]:
        loop = config.run.model_copy(update={"train_flops": moment.train_flops})
        run = context.live(config.model_copy(update={"run": loop}))
        systems = {}
        for routing, items in _questions(context, moment).items():
            systems[routing] = SystemAnswers.of(run.evaluate(items, context.host, routing))
            if context.should_stop() and moment.phase == "run":
                raise Stopped
        flops = run.pool.state.spent.flops
        legs.append(Leg(phase=moment.phase, extra=moment.extra, train_flops=flops, systems=systems))
        write_whole(path, _legs.dump_json(legs, exclude_unset=True).decode() + "\n")
    return legs


def _moments(context: JobContext, config: RunConfig) -> Iterator[Moment]:
    """Yield when the run of a job is measured, in the order of its life.

    In a flip these are the moments after each change. Else it is the end, and where the protocol
    wants it, whenever the time of a family is over: arms that know of no arrivals are measured at
    the same moments.
    """
    protocol, kind, end = context.protocol, context.job.kind, config.run.train_flops
    if kind == "tune":
        yield Moment("selection", end, per_cell=protocol.tuning_per_cell)
    elif kind == "flip":
        plan, unit = protocol.flip, protocol.unit_flops
        assert plan is not None
        moments: list[tuple[Phase, float, float]] = [("before", plan.at, 0.0)]
        moments += [("flipped", plan.at, extra) for extra in plan.extra]
        moments += [("back", plan.back, extra) for extra in plan.extra]
        for number, (phase, since, extra) in enumerate(moments):
            yield Moment(phase, (since + extra) * unit, extra, plan.per_cell, seed=number)
    else:
        main = protocol.config(protocol.main, context.job.budget, 0)
        arrivals = main.tasks.arrivals if protocol.stage_per_cell else ()
        for number, flops in enumerate((*arrivals, end) if arrivals else ()):
            yield Moment("stage", flops, number, protocol.stage_per_cell, STAGE_SEED)
        yield Moment("run", end)


def _questions(context: JobContext, moment: Moment) -> dict[str, Sequence[Item]]:
    """Return what is asked at a moment, by routing; at the end of a run it is every shift."""
    protocol, config = context.protocol, context.config
    every = protocol.routings(context.job.arm)
    if moment.phase == "run":
        return dict.fromkeys(every, items_of(protocol, config, protocol.shifts))
    is_tuned = moment.phase == "selection"
    shifts = ("in-distribution", "retention") if is_tuned and protocol.tie else ("in-distribution",)
    # What is asked changes with the phase, even if nothing was spent since the change.
    tasks = replace(mixture(config), is_flipped=moment.phase == "flipped")
    split: Split = "selection" if is_tuned else "holdout"
    items = draw_shifts(tasks, shifts, moment.per_cell, moment.seed, split)
    return dict.fromkeys(every[:1] if is_tuned else every, items)


def host_parts(
    protocol: Protocol, config: RunConfig, host: Host, generation: int = END
) -> dict[str, object]:
    """Ask the bare host every shift."""
    items = items_of(protocol, config, protocol.shifts, generation)
    stops = prompt_styles.build(config.tasks.style).stops
    rollouts = tuple(Evaluator(host, {}, stops=stops).ask(items, [HOST] * len(items)))
    evaluation = Evaluation(HOST, HOST, host.fingerprint(), rollouts)
    leg = Leg(systems={HOST: SystemAnswers.of(evaluation)})
    return {"legs": [leg], "host": evaluation.host, "versions": provenance.versions()}


def run_parts(run: LoadedRun, arrived: Sequence[object] = ()) -> dict[str, object]:
    """Return what a run did and spent."""
    state = run.pool.state
    # Not beyond the checkpoint: what a killed run did after it will be done again.
    events = list(islice(read_events(run.folder / living.EVENTS_FILE), state.next_seq))
    acts = (event for event in events if isinstance(event, Acted))
    record = {
        "life": run_summary(events),
        "solved": sum(sum(event.verdicts) for event in acts if event.purpose == "practice"),
        **({"arrived": list(arrived)} if arrived else {}),
    }
    return {"run": record, "train": state.spent}


def stream_parts(run: LoadedRun) -> dict[str, object]:
    """Return what a run in a world with users leaves."""
    world = run.tasks.users
    assert world is not None
    state, events = run.pool.state, list(read_events(run.folder / living.EVENTS_FILE))
    course = {**course_of(events, world, state.served), "scored": state.scored}
    return {"stream": course, "train": state.spent}


def course_of(
    events: Sequence[Event], world: Users, served: Mapping[OrganelleId, Sequence[str]]
) -> dict[str, object]:
    """Return what became of every question, and of everybody (``StreamRecord``); ``served`` are the
    users of each living organelle at the end."""
    answers: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    servers, moves = dict[str, OrganelleId](), list[tuple[int, int, int]]()
    numbers: dict[OrganelleId, int] = defaultdict(lambda: len(numbers))
    deaths = [event.generation for event in events if isinstance(event, Retired)]
    ended = [event for event in events if isinstance(event, GenerationEnded)]
    acts = (event for event in events if isinstance(event, Acted) and event.purpose == "practice")
    for event in acts:
        for item, verdict in zip(event.items, event.verdicts[:: event.samples], strict=True):
            answers[event.generation, event.user, item].append(verdict)
        if servers.get(event.user) != event.id:
            servers[event.user] = event.id
            moves.append((event.generation, world.names.index(event.user), numbers[event.id]))
    verdicts = list[str]()
    for generation in range(ended[-1].generation + 1 if ended else 0):
        for question in world.questions(generation):
            marks = answers.get((generation, question.user, question.id))
            verdicts.append(str(int(marks.pop(0) >= 0.5)) if marks else "-")
    served_by = dict.fromkeys(world.names, -1)
    for organelle_id, users in served.items():
        served_by |= dict.fromkeys(users, numbers[organelle_id])
    return {
        "verdicts": "".join(verdicts),
        "moves": moves,
        "served_by": list(served_by.values()),
        "population": [event.population for event in ended],
        "deaths": deaths,
    }


def items_of(
    protocol: Protocol, config: RunConfig, shifts: Sequence[str], generation: int = END
) -> Sequence[Item]:
    """Return what every reported run is asked; the same for all arms and seeds, but that the seed
    draws the users of a synthetic world. They are judged as in ``generation``."""
    seed = config.seed if config.tasks.users else 0
    about = config.model_copy(update={"seed": seed}).model_dump_json(include={"seed", "tasks"})
    return _drawn(about, tuple(shifts), protocol.per_cell, generation)


@lru_cache(maxsize=4)
def _drawn(about: str, shifts: tuple[str, ...], per_cell: int, generation: int) -> tuple[Item, ...]:
    """Draw once per process: drawing many items takes a second."""
    tasks = replace(mixture(RunConfig.model_validate_json(about)), generation=generation)
    return tuple(draw_shifts(tasks, shifts, per_cell))


def host_of(config: RunConfig) -> Host:
    """Return the host of a config. There is one per process, config and style: loading it takes
    longer than a small run."""
    return _loaded(config.model_dump_json(include={"host": True, "tasks": {"families", "style"}}))


@lru_cache(maxsize=2)
def _loaded(about: str) -> Host:
    """Load a host once per process, as this process computes it."""
    return build_host(RunConfig.model_validate_json(about))


def check_questions(config: RunConfig, names: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse shifts of which nothing, or not the same of all seeds, can be asked.

    Raises:
        ConfigError: the first shift has no questions for the tasks, or runs of different seeds are
            to be asked what users want whom each seed draws anew.
    """
    mix = mixture(config)
    asks_users = "users" in map(registered_shifts.present_name, names)
    if isinstance(mix.users, SyntheticUsers) and asks_users and len(seeds) > 1:
        raise ConfigError(
            f"shift users: expected runs of one seed, got seeds {', '.join(map(str, seeds))}: "
            "each seed draws users of its own, so compare the runs of one seed at a time"
        )
    if not draw_shifts(mix, names[:1], 1):
        raise ConfigError(
            f"expected a shift with questions for these tasks, got {names[0]}, which has none"
        )

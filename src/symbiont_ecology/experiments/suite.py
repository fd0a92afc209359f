"""A suite: all jobs of a protocol, on as many cores as there are, resumable at any moment.

Tuning comes first (on seeds that are not reported), then the arms with what tuning chose, seed by
seed. The folder holds the protocol, ``tuned.json`` and a folder per job; nothing else is state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.config_layers import read_layers
from symbiont_ecology.ecology import HOST
from symbiont_ecology.engine.build import check, mixture
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.evaluation.shifts import draw_shifts, shifts
from symbiont_ecology.experiments.job_pool import AnyJob, JobCallback, Workers, job_pool
from symbiont_ecology.experiments.jobs import HOST_JOB, Job, Stopped, choose, read_outcome
from symbiont_ecology.experiments.outcomes import (
    TUNED_FILE,
    Chosen,
    ReportedOutcome,
    StreamOutcome,
    TuneOutcome,
    Tuning,
    TuningScore,
)
from symbiont_ecology.experiments.protocol import Protocol, find_protocol, load_as
from symbiont_ecology.experiments.world_jobs import (
    WorldJob,
    choose_by_acceptance,
    repeats,
    reported_runs,
    tuning_runs,
)
from symbiont_ecology.experiments.worlds import WorldsProtocol, check_worlds
from symbiont_ecology.files import write_whole
from symbiont_ecology.inference.routings import routings
from symbiont_ecology.process import usable_cores
from symbiont_ecology.tasks.habitats import SyntheticHabitats
from symbiont_ecology.untrusted import parse_json

PROTOCOL_FILE = "protocol.json"
Plan = Protocol | WorldsProtocol


def check_protocol(protocol: Protocol, alike: Sequence[str] = ("tasks", "economy")) -> None:
    """Builds every part of every arm but the host, so that a mistake is found before anything is
    run.

    ``alike`` are the parts of a config that all arms must have in common.

    Raises:
        ConfigError: one line that says which arm and what is wrong.
    """
    for name, arm in protocol.arms.items():
        for routing in (arm.routing, *arm.also):
            routings.build(routing)
        for tuned in arm.tune:
            check(protocol.config(name, protocol.budgets[0], 0, tuned))
    for shift in protocol.shifts:
        shifts.build(shift)
    _check_alike(protocol, alike)
    smallest = protocol.budgets[0] * protocol.unit_flops
    last = max(protocol.arrivals(protocol.budgets[0]), default=0.0)
    if protocol.stage_per_cell and last > smallest:
        raise ConfigError(
            f"stage_per_cell: expected no arrival above the smallest budget, {smallest:g} FLOPs: "
            "its runs would be lived up to the last arrival"
        )
    first = protocol.config(protocol.own_arms[0], protocol.budgets[0], 0)
    check_questions(first, protocol.shifts, protocol.seeds)


def check_questions(config: RunConfig, names: Sequence[str], seeds: Sequence[int]) -> None:
    """Whether there is something to ask, and all seeds can be asked the same.

    Raises:
        ConfigError: the first shift has no questions for the tasks, or runs of different seeds are
            to be asked what users want whom each seed draws anew.
    """
    mix = mixture(config)
    if isinstance(mix.habitats, SyntheticHabitats) and "habitats" in names and len(seeds) > 1:
        raise ConfigError(
            f"shift habitats: expected runs of one seed, got seeds {', '.join(map(str, seeds))}: "
            "each seed draws users of its own, so compare the runs of one seed at a time"
        )
    if not draw_shifts(mix, names[:1], 1):
        raise ConfigError(
            f"expected a shift with questions for these tasks, got {names[0]}, which has none"
        )


def _check_alike(protocol: Protocol, alike: Sequence[str]) -> None:
    """Arms that met other questions, hosts or prices could not be compared."""
    first = protocol.config(protocol.own_arms[0], protocol.budgets[0], 0)
    tuned = [(name, option) for name in protocol.own_arms for option in protocol.arms[name].tune]
    for name, option in tuned:
        config = protocol.config(name, protocol.budgets[0], 0, option)
        is_bare = protocol.arms[name].routing == HOST
        for part in alike:
            if _alike(config, part, is_bare) != _alike(first, part, is_bare):
                raise ConfigError(
                    f"arms.{name}: expected the {part} of {protocol.own_arms[0]!r}, got others"
                )
        if config.host.model != first.host.model:
            raise ConfigError(
                f"arms.{name}: expected host {first.host.model!r}, got {config.host.model!r}"
            )
        if protocol.flip is not None:
            check(protocol.flipped(config))


def _alike(config: RunConfig, part: str, is_bare: bool) -> object:
    """What must be alike of a part of a config. Families that come one after another may come at
    once in another arm, and the bare host may be asked in another style: these are controls."""
    value = getattr(config, part)
    if part != "tasks":
        return value
    return value.model_copy(update={"arrivals": (), **({"style": "terse"} if is_bare else {})})


def tuning_jobs(protocol: Protocol) -> tuple[Job, ...]:
    """Every tuning config of every arm at every budget; none where there is nothing to choose."""
    return tuple(
        Job("tune", arm, seed, budget, option)
        for arm in protocol.own_arms
        if len(protocol.arms[arm].tune) > 1
        for option in range(len(protocol.arms[arm].tune))
        for budget in protocol.budgets
        for seed in protocol.tuning_seeds
    )


def reported_jobs(protocol: Protocol, tuned: Chosen) -> tuple[Job, ...]:
    """The runs that results are made of; seeds outermost, so that an unfinished suite is a smaller
    one."""
    jobs = [HOST_JOB]
    for seed in protocol.seeds:
        for budget in protocol.budgets:
            jobs += [
                Job("main", arm, seed, budget, tuned[arm][f"{budget:g}"])
                for arm in protocol.own_arms
            ]
        if protocol.flip is not None:
            moment = protocol.flip.at
            # The flip meets each arm as it was tuned for the budget nearest to the flip's moment.
            distances = {abs(budget - moment): budget for budget in reversed(protocol.budgets)}
            near = distances[min(distances)]
            jobs += [
                Job("flip", arm, seed, moment, tuned[arm][f"{near:g}"]) for arm in protocol.own_arms
            ]
    return tuple(jobs)


def run_suite(protocol: Plan, folder: Path, workers: Workers) -> bool:
    """Does all jobs that are not done; returns whether the suite is complete.

    Raises:
        RunError: a job failed, or the folder belongs to another protocol (``claim_folder``).
    """
    claim_folder(protocol, folder)
    stages: Iterator[tuple[str, Sequence[AnyJob]]] = (
        _world_stages(protocol, folder)
        if isinstance(protocol, WorldsProtocol)
        else _stages(protocol, folder)
    )
    return do_jobs(stages, protocol, folder, workers)


def _world_stages(
    protocol: WorldsProtocol, folder: Path
) -> Iterator[tuple[str, Sequence[WorldJob]]]:
    tuning = tuning_runs(protocol)
    yield "tuning", tuning
    outcomes = [read_outcome(folder / job.name, protocol) for job in tuning]
    streams = [outcome for outcome in outcomes if isinstance(outcome, StreamOutcome)]
    sweep = [
        TuningScore(
            arm=f"{stream.world}/{stream.arm}",
            option=stream.option,
            seed=stream.seed,
            budget=1,
            accuracy=stream.acceptance,
        )
        for stream in streams
    ]
    chosen = choose_by_acceptance(protocol, streams)
    text = Tuning(chosen=chosen, sweep=sweep).model_dump_json(indent=1, exclude_none=True)
    write_whole(folder / TUNED_FILE, text + "\n")
    reported = reported_runs(protocol, chosen)
    yield "arms", [job for job in reported if not repeats(protocol, job)]
    yield "repeats", [job for job in reported if repeats(protocol, job)]


def streams(protocol: WorldsProtocol, folder: Path) -> list[StreamOutcome]:
    """What the finished reported runs left, in the order of the protocol.

    Raises:
        RunError: no suite of this protocol has got that far in the folder.
    """
    jobs = reported_runs(protocol, read_tuning(folder).chosen)
    outcomes = [read_outcome(folder / job.name, protocol) for job in jobs]
    return [outcome for outcome in outcomes if isinstance(outcome, StreamOutcome)]


def check_plan(plan: Plan) -> None:
    """Builds every part of every arm but the host (``check_protocol``, ``check_worlds``).

    Raises:
        ConfigError: one line that says which arm and what is wrong.
    """
    if isinstance(plan, WorldsProtocol):
        check_worlds(plan)
    else:
        check_protocol(plan)


def load_plan(
    name_or_path: str | Path, overrides: Sequence[str] = (), additions: Sequence[str] = ()
) -> Plan:
    """A protocol of any kind, by name or path, changed (``load_protocol``).

    Raises:
        ConfigError: there is none, or it does not fit its schema.
    """
    path = find_protocol(name_or_path)
    schema: type[Plan] = WorldsProtocol if "worlds" in read_layers(path) else Protocol
    return load_as(schema, path, overrides, additions)


def _stages(protocol: Protocol, folder: Path) -> Iterator[tuple[str, Sequence[Job]]]:
    tuning = tuning_jobs(protocol)
    yield "tuning", tuning
    yield "arms", reported_jobs(protocol, _tuned(protocol, folder, tuning))


def outcomes(protocol: Protocol, folder: Path) -> Iterator[ReportedOutcome]:
    """What the finished reported jobs left, in the order of the protocol.

    Raises:
        RunError: no suite of this protocol has got that far in the folder.
    """
    for job in reported_jobs(protocol, read_tuning(folder).chosen):
        outcome = read_outcome(folder / job.name, protocol)
        if isinstance(outcome, ReportedOutcome):
            yield outcome


def all_done(protocol: Protocol, folder: Path) -> bool:
    """Whether all reported jobs are done."""
    if not (folder / TUNED_FILE).exists():
        return False
    jobs = reported_jobs(protocol, read_tuning(folder).chosen)
    return len(list(outcomes(protocol, folder))) == len(jobs)


def read_tuning(folder: Path) -> Tuning:
    """How the arms of a suite were tuned.

    Raises:
        RunError: they are not tuned yet.
    """
    path = folder / TUNED_FILE
    if not path.exists():
        raise RunError(f"no reported runs in {folder} yet: symbiont suite goes on with it")
    return Tuning.model_validate_json(path.read_bytes())


def read_protocol(folder: Path) -> Protocol:
    """The protocol of the suite in a folder.

    Raises:
        RunError: there is no suite, one of another version, or one of worlds.
    """
    plan = read_plan(folder)
    if isinstance(plan, WorldsProtocol):
        raise RunError(f"{folder} holds a suite of worlds: expected one of budgets")
    return plan


def read_plan(folder: Path) -> Plan:
    """The protocol of the suite in a folder, of any kind.

    Raises:
        RunError: there is no suite, or one of another version.
    """
    path = folder / PROTOCOL_FILE
    if not path.exists():
        raise RunError(f"no suite in {folder}: expected a {PROTOCOL_FILE} there")
    try:
        text = path.read_text(encoding="utf-8")
        kind = WorldsProtocol if is_of_worlds(text) else Protocol
        return kind.model_validate_json(text)
    except ValueError as error:
        raise RunError(f"{path}: not a protocol of this version: make the suite anew") from error


def is_of_worlds(text: str) -> bool:
    """Whether the JSON of a protocol is that of one of worlds.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    data = parse_json(text)
    return isinstance(data, dict) and "worlds" in data


def usual_workers(protocol: Plan) -> int:
    """Runs at a time: one per core that it may use, or one alone where the host takes a GPU."""
    if isinstance(protocol, WorldsProtocol):
        name, world = next(iter(protocol.worlds.items()))
        config = protocol.config(name, world.arms[0], 0)
    else:
        arm = protocol.own_arms[0]
        config = protocol.config(arm, protocol.budgets[0], 0, protocol.arms[arm].tune[0])
    return usable_cores() if config.host.device == "cpu" else 1


def claim_folder(protocol: Plan, folder: Path) -> None:
    """Makes the folder that of a suite of this protocol.

    Raises:
        RunError: it is another's, or cannot be written.
    """
    path = folder / PROTOCOL_FILE
    text = protocol.model_dump_json(indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        if path.exists():
            raise RunError(
                f"{folder} holds a suite of another protocol, that is of another base, budget or "
                "plan: choose another --out"
            )
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    write_whole(path, text)


def _tuned(protocol: Protocol, folder: Path, jobs: Sequence[Job]) -> Chosen:
    """The chosen option by arm and budget, written down with the whole sweep."""
    outcomes = [read_outcome(folder / job.name, protocol) for job in jobs]
    sweep = [outcome for outcome in outcomes if isinstance(outcome, TuneOutcome)]

    def best(arm: str, budget: float) -> int:
        """The option that an arm's own tuning chooses at a budget."""
        scores = [outcome for outcome in sweep if (outcome.arm, outcome.budget) == (arm, budget)]
        return choose(scores, protocol.tie)

    chosen = {
        arm: {f"{budget:g}": best(arm, budget) for budget in protocol.budgets}
        for arm in protocol.own_arms
    }
    tuning = Tuning(chosen=chosen, sweep=[TuningScore.of(outcome) for outcome in sweep])
    text = tuning.model_dump_json(indent=1, exclude_none=True)
    write_whole(folder / TUNED_FILE, text + "\n")
    return chosen


def do_jobs(
    stages: Iterable[tuple[str, Sequence[AnyJob]]], protocol: Plan, folder: Path, workers: Workers
) -> bool:
    """Does the jobs of each stage side by side; returns whether all are done. A job that fails
    stops the others.

    Raises:
        RunError: a job failed.
    """
    with job_pool(workers, folder) as pool:
        for stage, jobs in stages:
            callback, todo = workers.watch(stage, len(jobs)), []
            for job in jobs:
                if read_outcome(folder / job.name, protocol) is None:
                    todo.append(job)
                else:
                    callback(job, 0.0)
            text = protocol.model_dump_json()
            futures = {pool(job, text): job for job in todo}
            if not _are_finished(futures, callback, folder, workers.stop):
                return False
    return True


def _are_finished(
    futures: Mapping[Future[float], AnyJob], callback: JobCallback, folder: Path, stop: Event
) -> bool:
    """Waits for the jobs of a stage; returns whether none of them was stopped."""
    try:
        for future in as_completed(futures):
            callback(futures[future], future.result())
    except (Stopped, KeyboardInterrupt):
        return False
    except BrokenProcessPool as error:
        raise RunError(
            f"a worker of the suite died (out of memory?): run it again, {folder} goes on"
        ) from error
    finally:
        if not all(future.done() for future in futures):
            stop.set()
            for future in futures:
                future.cancel()
    return True

"""Suites and comparisons: all jobs of a protocol, on as many cores as there are, resumable at any
moment.

    suite = Suite.start("ci").finish()
    print(suite.comparison)  # accuracies of the arms, with intervals
    suite.comparison.answers  # a pandas table: a row per answer
    Comparison.of_runs("artifacts/demo-1", "artifacts/demo-2").save_pack("artifacts/pack")

Tuning comes first (on seeds that are not reported), then the arms with what tuning chose, seed by
seed. The folder holds the protocol, ``tuned.json`` and a folder per job; nothing else is state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import pandas as pd
from tqdm import tqdm

from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.process import usable_cores
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.routings import routings
from symbiont_ecology.evaluate.shifts import shifts
from symbiont_ecology.extensions.study import adhoc
from symbiont_ecology.extensions.study.comparison import Summary, summarise
from symbiont_ecology.extensions.study.jobs import (
    HOST_JOB,
    TUNED_FILE,
    Job,
    Stopped,
    check_questions,
    read_outcome,
)
from symbiont_ecology.extensions.study.outcomes import Chosen, Outcome, Tuning, TuningScore
from symbiont_ecology.extensions.study.protocol import Protocol, load_protocol
from symbiont_ecology.extensions.study.results import Results
from symbiont_ecology.extensions.study.workers import STOP_FILE, work, worker_processes
from symbiont_ecology.run.build import check, mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.users import SyntheticUsers

PROTOCOL_FILE = "protocol.json"


# What a protocol has to fulfil before anything is run.


def check_protocol(protocol: Protocol) -> None:
    """Build every part of every arm but the host, so that a mistake is found before anything is
    run.

    Raises:
        ConfigError: one line that says which arm and what is wrong.
    """
    for side in protocol.arms.values():
        routings.build(side.routing)
    for shift in protocol.shifts:
        shifts.build(shift)
    budget, main = protocol.budgets[0], protocol.runs_of(protocol.main)
    for world, place in protocol.places.items():
        first = protocol.config(main, budget, 0, world=world)
        for arm in place.arms:
            for option in range(len(protocol.arms[arm].tune)):
                config = protocol.config(arm, budget, 0, option, world)
                try:
                    check(config)
                    _check_comparable(protocol, arm, config, first)
                except ConfigError as error:
                    where = f"{world}, arm {arm}" if world else f"arms.{arm}"
                    raise ConfigError(f"{where}: {error}") from error
        if not world:
            check_questions(first, protocol.shifts, protocol.seeds)


def _check_comparable(protocol: Protocol, arm: str, config: RunConfig, first: RunConfig) -> None:
    """Refuse an arm that meets other questions or another host than the main arm."""
    if protocol.flip is not None:
        check(protocol.flipped(config))
    is_bare = protocol.arms[arm].routing == HOST
    mine, theirs = (_common(protocol, one, is_bare=is_bare) for one in (config, first))
    if others := [part for part, value in mine.items() if value != theirs[part]]:
        raise ConfigError(f"expected the {others[0]} of {protocol.main!r}, got others")
    if protocol.worlds and not isinstance(mixture(config).users, SyntheticUsers):
        raise ConfigError(
            "expected a world with users that the seed draws, got none, or users of data, whose "
            "kinds nobody knows"
        )


def _common(protocol: Protocol, config: RunConfig, *, is_bare: bool) -> dict[str, object]:
    """Return what all arms have in common. In a world these are the questions and whose answers
    they get; how they are put is an arm's own affair.

    Elsewhere families that come one after another may come at once in another arm, and the bare
    host may be asked in another style: these are controls.
    """
    parts: dict[str, object] = {"host.model": config.host.model}
    if protocol.worlds:
        tasks = config.tasks.model_dump(exclude={"style": True, "users": {"shown"}})
        return {**parts, "tasks": tasks, "run.generations": config.run.generations}
    loose = {"arrivals": (), **({"style": "terse"} if is_bare else {})}
    return {**parts, "tasks": config.tasks.model_copy(update=loose)}


# The jobs, and who does them.


def tuning_jobs(protocol: Protocol) -> tuple[Job, ...]:
    """Return every config that is to be tried; none where there is nothing to choose."""
    return tuple(
        Job("tune", arm, seed, budget, option, world)
        for world, place in protocol.places.items()
        for arm in place.arms
        for option in range(len(protocol.arms[arm].tune))
        if len(protocol.arms[arm].tune) > 1
        for budget in protocol.run_budgets
        for seed in protocol.tuning_seeds
    )


def reported_jobs(protocol: Protocol, chosen: Chosen) -> tuple[Job, ...]:
    """Return the jobs that results are made of. Seeds are outermost, so that an unfinished suite is
    a smaller one."""
    if protocol.worlds:
        return tuple(
            Job("stream", arm, seed, 0.0, chosen.get(world, {}).get(arm, 0), world)
            for seed in protocol.seeds
            for world, place in protocol.worlds.items()
            for arm in place.arms
        )
    arms, jobs = protocol.own_arms, [HOST_JOB]
    for seed in protocol.seeds:
        jobs += [
            Job("main", arm, seed, budget, chosen[arm][f"{budget:g}"])
            for budget in protocol.budgets
            for arm in arms
        ]
        if protocol.flip is not None:
            moment = protocol.flip.at
            # The flip meets each arm as it was tuned for the budget nearest to the flip's moment.
            near = min(protocol.budgets, key=lambda budget: abs(budget - moment))
            jobs += [Job("flip", arm, seed, moment, chosen[arm][f"{near:g}"]) for arm in arms]
    return tuple(jobs)


def stages(protocol: Protocol, folder: Path) -> Iterator[tuple[str, Sequence[Job]]]:
    """Yield the jobs stage by stage: those of one stage need the outcomes of the ones before."""
    tuning = tuning_jobs(protocol)
    yield "tuning", tuning
    yield "arms", reported_jobs(protocol, _tuned(protocol, folder, tuning))


def _tuned(protocol: Protocol, folder: Path, jobs: Sequence[Job]) -> Chosen:
    """The chosen options, written down with the whole sweep."""
    sweep, chosen = list[TuningScore](), Chosen()
    arms = () if protocol.worlds else protocol.own_arms
    tried = {
        (arm, f"{budget:g}"): list[TuningScore]() for arm in arms for budget in protocol.budgets
    }
    for job in jobs:
        if (outcome := read_outcome(folder / job.name, protocol)) is not None:
            sweep.append(score_of(outcome, has_retention=bool(protocol.tie)))
            key = (job.world, job.arm) if job.world else (job.arm, f"{job.budget:g}")
            tried.setdefault(key, []).append(sweep[-1])
    for (first, second), scores in tried.items():
        chosen.setdefault(first, {})[second] = choose(scores, protocol.tie)
    text = Tuning(chosen=chosen, sweep=sweep).model_dump_json(indent=1, exclude_none=True)
    write_whole(folder / TUNED_FILE, text + "\n")
    return chosen


def score_of(outcome: Outcome, *, has_retention: bool = False) -> TuningScore:
    """Return what a tuning job achieved: on selection items, or by what users accepted."""
    arm, budget, retention = outcome.arm, outcome.budget, None
    if outcome.stream is not None:
        arm, budget, accuracy = f"{outcome.world}/{arm}", 1.0, outcome.acceptance
    else:
        (answers,) = outcome.systems.values()
        accuracy = answers.share("in-distribution")
        retention = answers.share("retention") if has_retention else None
    about = {"arm": arm, "option": outcome.option, "seed": outcome.seed, "budget": budget}
    return TuningScore.model_validate({**about, "accuracy": accuracy, "retention": retention})


def choose(scores: Sequence[TuningScore], tie: float = 0.0) -> int:
    """Return the tuning option with the highest mean accuracy; the first of equals, and of none.

    A few tenths of a point are luck, and may cost ten points of what the host could do before. So
    of options within ``tie`` of the best, the one with the highest mean retention is chosen, in the
    spirit of the one-standard-error rule (Breiman et al. 1984, Classification and Regression Trees,
    section 3.4.3).
    """
    by_option = {option: list[TuningScore]() for option in sorted({one.option for one in scores})}
    for score in scores:
        by_option[score.option].append(score)
    accuracy = {key: fmean(one.accuracy for one in own) for key, own in by_option.items()}
    retention = {key: fmean(one.retention or 0.0 for one in own) for key, own in by_option.items()}
    best = max(accuracy.values(), default=0.0)
    equals = [option for option, value in accuracy.items() if value >= best - tie]
    return max(equals, key=retention.__getitem__, default=0)


def do_jobs(
    staged: Iterable[tuple[str, Sequence[Job]]], protocol: Protocol, folder: Path, workers: int
) -> bool:
    """Do the jobs of each stage side by side, with a bar on stderr; return whether all are done. A
    job that fails stops the others.

    Raises:
        RunError: a job failed.
    """
    stop_file = folder / STOP_FILE
    stop_file.unlink(missing_ok=True)
    try:
        with worker_processes(workers) as pool:
            for stage, jobs in staged:
                todo = [job for job in jobs if read_outcome(folder / job.name, protocol) is None]
                futures = [pool.submit(work, job, protocol, folder) for job in todo]
                done = len(jobs) - len(todo)
                bar = tqdm(as_completed(futures), stage, len(jobs), initial=done, unit="job")
                if jobs and not _are_finished(futures, bar, folder):
                    return False
    finally:
        stop_file.unlink(missing_ok=True)
    return True


def _are_finished(
    futures: Sequence[Future[None]], in_turn: Iterable[Future[None]], folder: Path
) -> bool:
    """Wait for the jobs of a stage; return whether none of them was stopped."""
    try:
        for future in in_turn:
            future.result()
    except (Stopped, KeyboardInterrupt):
        return False
    except BrokenProcessPool as error:
        raise RunError(
            f"a worker of the suite died (out of memory?): run it again, {folder} goes on"
        ) from error
    finally:
        if not all(future.done() for future in futures):
            (folder / STOP_FILE).touch()
            for future in futures:
                future.cancel()
    return True


def usual_workers(protocol: Protocol) -> int:
    """Return how many runs go on at a time: one per core that it may use, or one alone where the
    host takes a GPU."""
    world, place = next(iter(protocol.places.items()))
    config = protocol.config(place.arms[0], protocol.budgets[0], 0, world=world)
    return usable_cores() if config.host.device == "cpu" else 1


# The folder of a suite.


def claim_folder(protocol: Protocol, folder: Path) -> None:
    """Make the folder that of a suite of this protocol.

    Raises:
        RunError: it is another's.
    """
    path = folder / PROTOCOL_FILE
    text = protocol.model_dump_json(indent=1) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise RunError(
            f"{folder} holds a suite of another protocol, that is of another base, budget or "
            "plan: choose another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def read_protocol(folder: Path) -> Protocol:
    """Return the protocol of the suite in a folder.

    Raises:
        RunError: there is no suite, or one of another version.
    """
    path = folder / PROTOCOL_FILE
    if not path.exists():
        raise RunError(f"no suite in {folder}: expected a {PROTOCOL_FILE} there")
    try:
        return Protocol.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path}: not a protocol of this version: make the suite anew") from error


def read_tuning(folder: Path) -> Tuning:
    """Return how the arms of a suite were tuned.

    Raises:
        RunError: they are not tuned yet.
    """
    path = folder / TUNED_FILE
    if not path.exists():
        raise RunError(f"no reported runs in {folder} yet: symbiont suite goes on with it")
    return Tuning.model_validate_json(path.read_bytes())


@dataclass(frozen=True, repr=False)
class Comparison:
    """Answers of the runs of several arms to the same questions."""

    protocol: Protocol
    outcomes: Sequence[Outcome]
    tuning: Tuning

    @classmethod
    def of_runs(
        cls,
        *folders: str | Path,
        shifts: Sequence[str] = ("in-distribution",),
        per_cell: int = 40,
        name: str = "comparison",
        progress: Progress = no_progress,
    ) -> Comparison:
        """Ask runs of one task mix the same holdout questions.

        Runs whose configs differ in the seed, and in what is no part of a life, are one arm.

        Raises:
            ConfigError: the runs cannot be asked the same questions, or there is no such shift.
            RunError: a folder holds no run.
        """
        protocol, arms = adhoc.gather([Path(one) for one in folders], shifts, per_cell, name)
        tuning = Tuning(chosen={arm: {"1": 0} for arm in arms})
        return cls(protocol, adhoc.ask(protocol, arms, progress), tuning)

    @cached_property
    def results(self) -> Results:
        """The table of answers with a record of every run. All numbers are made of it."""
        return Results(self.protocol, self.outcomes)

    @property
    def answers(self) -> pd.DataFrame:
        """A row per answer: arm, routing, seed, budget, shift, cell, item, right, flops, …"""
        return self.results.answers

    @cached_property
    def summary(self) -> Summary:
        """Accuracies and paired differences with intervals, as in ``summary.json`` of a pack."""
        return summarise(self.results)

    def save_pack(self, folder: str | Path) -> Path:
        """Write a paper pack (tables, figures, outcomes), and an index beside it."""
        from symbiont_ecology.extensions.study.pack import write_index, write_pack

        target = Path(folder)
        write_pack(target, self.protocol, self.outcomes, self.tuning)
        write_index(target.parent)
        return target

    def __repr__(self) -> str:
        if self.protocol.worlds:
            return f"<Comparison {self.protocol.name}: {len(self.outcomes)} runs>"
        view, budget = self.protocol.shifts[0], self.summary.largest
        shares = ", ".join(
            f"{arm} {share.estimate:.0%} [{share.low:.0%}, {share.high:.0%}]"
            for arm, share in self.summary.accuracy[budget][view].items()
        )
        return f"<Comparison {self.protocol.name}, {view}: {shares}>"


@dataclass(frozen=True)
class Suite:
    """All runs of a protocol, in a folder. Make one with ``start`` or ``open``."""

    protocol: Protocol
    folder: Path

    @classmethod
    def start(
        cls, protocol: str | Path | Protocol, *overrides: str, folder: str | Path | None = None
    ) -> Suite:
        """Make a suite of a protocol; nothing is run yet. In the folder of that suite it goes on.

        Args:
            protocol: ``"ci"``, ``"mine.yaml"`` or a ``Protocol``.
            overrides: changes of the protocol, such as ``"seeds=[0]"``.
            folder: where the suite lives; ``artifacts/<name>`` if it is left out.

        Raises:
            ConfigError: the protocol does not fit together.
            RunError: the folder holds the suite of another protocol.
        """
        plan = protocol if isinstance(protocol, Protocol) else load_protocol(protocol, overrides)
        check_protocol(plan)
        place = Path("artifacts") / plan.name if folder is None else Path(folder)
        claim_folder(plan, place)
        return cls(plan, place)

    @classmethod
    def open(cls, folder: str | Path) -> Suite:
        """Return a suite that exists.

        Raises:
            RunError: there is none in the folder.
        """
        return cls(read_protocol(Path(folder)), Path(folder))

    def finish(self, workers: int | None = None) -> Suite:
        """Do what is left, so many runs at a time; one per core, or per GPU, if left out.

        Raises:
            RunError: a run failed.
        """
        count = workers or usual_workers(self.protocol)
        do_jobs(stages(self.protocol, self.folder), self.protocol, self.folder, count)
        return self

    @property
    def outcomes(self) -> list[Outcome]:
        """Outcomes of the finished reported jobs, in the order of the protocol.

        Raises:
            RunError: the suite has not got that far.
        """
        jobs = reported_jobs(self.protocol, read_tuning(self.folder).chosen)
        found = (read_outcome(self.folder / job.name, self.protocol) for job in jobs)
        return [outcome for outcome in found if outcome is not None]

    @property
    def comparison(self) -> Comparison:
        """Comparison of the runs that are done.

        Raises:
            RunError: none is done.
        """
        return Comparison(self.protocol, self.outcomes, read_tuning(self.folder))

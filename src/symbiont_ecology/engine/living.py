"""A run that this process has opened: founded, or restored from its last checkpoint."""

import fcntl
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from symbiont_ecology.config import RunConfig, dump_config
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import ROLLOUT_WITH_LESSON
from symbiont_ecology.engine.budget import is_complete, milestones
from symbiont_ecology.engine.build import build_runtime
from symbiont_ecology.engine.generation import found_population, run_generation
from symbiont_ecology.engine.laps import Laps
from symbiont_ecology.engine.provenance import check_host, write_provenance
from symbiont_ecology.engine.runtime import Host, Runtime
from symbiont_ecology.errors import EcologyError, LockedError, RunError
from symbiont_ecology.events import EventLog, GenerationEnded
from symbiont_ecology.fence import blamed
from symbiont_ecology.files import append_line, read_lines, write_whole
from symbiont_ecology.process import release_memory
from symbiont_ecology.trackers.reporting import Reports

CONFIG_FILE, EVENTS_FILE, TIMINGS_FILE = "config.yaml", "events.jsonl", "timings.jsonl"
LOCK_FILE = "lock"
JOURNAL_FILE = "service.jsonl"
"""What a run in service answered, and what was said of it (``service.journal``)."""
LEAST_GENERATIONS = 10
"""Generations that a budget should pay for, at least."""


@dataclass(frozen=True)
class Generation:
    """The state after one generation, its summary, and its wall-clock seconds."""

    state: EcologyState
    summary: GenerationEnded
    seconds: float


@dataclass(eq=False, repr=False)
class LivingRun:
    """A run whose folder this process has locked, between two generations."""

    config: RunConfig
    folder: Path
    runtime: Runtime
    state: EcologyState
    log: EventLog
    reports: Reports
    laps: Laps
    elapsed: float
    """Wall-clock seconds of all generations so far."""
    is_endless: bool = False
    is_saved: bool = True

    def __repr__(self) -> str:
        return f"<run in {self.folder}: {self.state}>"

    @property
    def is_complete(self) -> bool:
        """Whether it has had its generations, or spent its budget; in service it never has."""
        return not self.is_endless and is_complete(self.config, self.state, self.elapsed)

    def live(self) -> Generation:
        """One generation, and a checkpoint if one is due."""
        state, runtime, began = self.state, self.runtime, self.laps.begin()
        summary = run_generation(state, runtime, self.log)
        runtime.store.forget(state.reachable())
        self.elapsed += time.perf_counter() - began
        self.is_saved = False
        is_due = state.generation % self.config.run.checkpoint_every == 0
        if is_due or runtime.reward.asks_people or self.is_complete:
            self.save()
        self.laps.end("save")
        seconds = time.perf_counter() - began
        timing = {
            "generation": summary.generation,
            "seconds": round(seconds, 4),
            "phases": {name: round(took, 4) for name, took in self.laps.seconds.items()},
        }
        append_line(self.folder / TIMINGS_FILE, timing)
        self.reports.report(state, summary, seconds)
        return Generation(state, summary, seconds)

    def save(self) -> None:
        """Makes a checkpoint, unless nothing happened since the last one."""
        if not self.is_saved:
            _save(self.state, self.runtime, self.log, self.folder)
            self.is_saved = True


@contextmanager
def opened(
    config: RunConfig,
    folder: Path,
    host: Host,
    *,
    is_new: bool = False,
    may_learn_nothing: bool = False,
    is_endless: bool = False,
    tell: Callable[[str], None] = lambda news: None,
) -> Iterator[LivingRun]:
    """A run as it was at its last checkpoint, or newly founded. Its folder is locked meanwhile. An
    endless one ends with its process.

    Raises:
        RunError: see ``engine.run.start`` and ``resume``.
        HostError: the host is not the one that the run was founded with.
    """
    with (
        locked(folder),
        _without_remains(folder),
        blamed(RunError),
        Reports(config, folder) as reports,
    ):
        if is_new:
            check_free(folder)  # again: another process may have founded a run while this loaded
        write_whole(folder / CONFIG_FILE, dump_config(config))
        laps, log = Laps(), EventLog(folder / EVENTS_FILE)
        runtime = replace(build_runtime(config, host, folder), tell=tell, passed=laps.end)
        state = _restored(runtime, log, folder)
        if state is None:
            state = _founded(config, runtime, log, folder, may_learn_nothing or is_endless)
        runtime = replace(runtime, milestones=milestones(config, state.mean_rollout_flops))
        elapsed = lived_seconds(folder)
        yield LivingRun(config, folder, runtime, state, log, reports, laps, elapsed, is_endless)


def lived_seconds(folder: Path) -> float:
    """Wall-clock seconds of all generations of a run so far."""
    return sum(float(str(line["seconds"])) for _, line in read_lines(folder / TIMINGS_FILE))


def _restored(runtime: Runtime, log: EventLog, folder: Path) -> EcologyState | None:
    """The state of the last checkpoint, if there is one."""
    if not (folder / checkpoint.STATE_FILE).exists():
        return None
    check_host(folder, runtime.host)
    state = checkpoint.load_state(folder)
    log.rewind(state.next_seq)
    runtime.transcripts.rewind(state.generation)
    _collect(state, runtime, folder)  # what a crash left behind
    return state


def _founded(
    config: RunConfig, runtime: Runtime, log: EventLog, folder: Path, may_learn_nothing: bool
) -> EcologyState:
    """A new run. Until its first checkpoint the folder holds no run, whatever happens."""
    write_provenance(config, folder, runtime.host)
    state = EcologyState(config.seed)
    log.rewind(0)
    runtime.transcripts.rewind(0)
    runtime.store.collect(())
    found_population(state, runtime, log)
    is_spent = is_complete(config, state)
    if config.run.generations and is_spent and not may_learn_nothing:
        raise _too_small(config, runtime, state)
    _save(state, runtime, log, folder)
    return state


def _save(state: EcologyState, runtime: Runtime, log: EventLog, folder: Path) -> None:
    log.sync()
    runtime.store.flush(state.reachable())
    checkpoint.save_state(state, folder)
    _collect(state, runtime, folder)
    release_memory()


def _collect(state: EcologyState, runtime: Runtime, folder: Path) -> None:
    """Deletes every blob that neither the run, nor an evaluation of it, can be asked for."""
    with checkpoint.exclusive(folder):  # an evaluation may be reading, a fork be copying
        kept = checkpoint.kept_states(folder)
        needed = state.reachable().union(*(evaluated.reachable() for evaluated in kept))
        runtime.store.collect(needed)


def _too_small(config: RunConfig, runtime: Runtime, state: EcologyState) -> RunError:
    """What is wrong with a budget that founding spends, and one that is enough."""
    keys = " and ".join(f"run.{key}" for key in config.train_budgets)
    strategy, cells = runtime.strategy, runtime.tasks.cells
    rollouts = LEAST_GENERATIONS * len(cells) * strategy.questions * max(strategy.samples, 1)
    return RunError(
        f"{keys}: the budget is spent before anybody learned. Founding took "
        f"{state.spent.flops:.3g} FLOPs, and a rollout of this host takes "
        f"{state.mean_rollout_flops:.3g}: set run.train_flops=null "
        f"run.train_rollouts={math.ceil(rollouts * ROLLOUT_WITH_LESSON)} or more"
    )


@contextmanager
def _without_remains(folder: Path) -> Iterator[None]:
    """A run that fails before its first checkpoint leaves nothing behind, unless something was
    there before it. One that was killed leaves what it needs to begin again."""
    was_empty = [path.name for path in folder.iterdir()] == [LOCK_FILE]
    try:
        yield
    except EcologyError:
        if was_empty and not (folder / checkpoint.STATE_FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time. The lock goes with its process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise RunError(f"cannot use {folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockedError(
                f"another process is writing to {folder}: wait for it or stop it first"
            ) from error
        yield


def check_free(folder: Path) -> None:
    """Refuses a folder that holds a run.

    Raises:
        RunError: it does.
    """
    if os.path.exists(folder / checkpoint.STATE_FILE):  # no error where a name is too long
        raise RunError(
            f"{folder} holds a run already: resume it (symbiont resume {folder}) or choose another "
            "--out"
        )

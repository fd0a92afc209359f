"""A run: a folder that holds everything, founded once, continued any number of times, always the
same.

    config.yaml      resolved config, written first
    provenance.json  versions, host, seed
    events.jsonl     what happened
    timings.jsonl    how long it took (not state)
    transcripts.jsonl what was asked and replied, or a sample (not state)
    state.json       the last checkpoint
    queue.jsonl      replies that wait for people (``engine.judgements``)
    judgements.jsonl what they said
    blobs/           weights and optimizer states
    trackers.json    what trackers were told (not state)

A checkpoint is: events to disk, new blobs, then ``state.json`` by atomic rename, then blobs that
nothing names any more are deleted. So a run that is killed anywhere and resumed ends with the same
``state.json`` and ``events.jsonl``, byte for byte, as one that never stopped (same machine and
build).
"""

import fcntl
import hashlib
import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from symbiont_ecology.config import LoopConfig, RunConfig, dump_config, load_config
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import ROLLOUT_WITH_LESSON
from symbiont_ecology.engine.budget import budget_flops, budget_phase, milestones
from symbiont_ecology.engine.build import build_host, build_runtime, check, mixture
from symbiont_ecology.engine.generation import found_population, run_generation
from symbiont_ecology.engine.laps import Laps
from symbiont_ecology.engine.runtime import Host, Runtime
from symbiont_ecology.errors import ConfigError, EcologyError, HostError, LockedError, RunError
from symbiont_ecology.events import EventLog, GenerationEnded
from symbiont_ecology.files import append_line, content_hash, read_lines, write_whole
from symbiont_ecology.process import release_memory
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.trackers.reporting import Reports

CONFIG_FILE, EVENTS_FILE, TIMINGS_FILE = "config.yaml", "events.jsonl", "timings.jsonl"
PROVENANCE_FILE, LOCK_FILE = "provenance.json", "lock"
EXTENDABLE = (*(f"run.{name}" for name in LoopConfig.model_fields), "host.engine.url")
"""What may change when a run is resumed: when it ends, how often it is saved, what reports it, what
it is asked at the end, and where the server is."""
LEAST_GENERATIONS = 10
"""Generations that a budget should pay for, at least."""

GenerationCallback = Callable[[EcologyState, GenerationEnded, float], None]
"""Called after every generation with its wall-clock seconds; for showing, never for deciding."""


@dataclass(frozen=True)
class Finished:
    """Why a run returned, and its state. ``is_complete`` is False after an interruption."""

    state: EcologyState
    is_complete: bool


@dataclass(frozen=True)
class Generation:
    """The state after one generation, its summary, and its wall-clock seconds."""

    state: EcologyState
    summary: GenerationEnded
    seconds: float


def start(
    config: RunConfig,
    folder: Path,
    *,
    watch: GenerationCallback | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
    may_learn_nothing: bool = False,
) -> Finished:
    """Founds a run in a new folder and lives it.

    Where founding spends the whole budget, the run has no generations. That is a mistake, unless
    ``may_learn_nothing``.

    Raises:
        ConfigError: the config does not fit together; no model was loaded.
        RunError: the folder holds a run already, the budget is too small for this host, or the disk
            is full.
    """
    check_start(config, folder)
    host = host or build_host(config)  # before the folder: a missing model leaves no half-made run
    lived = generations(config, folder, host, is_new=True, may_learn_nothing=may_learn_nothing)
    return _live(lived, config, folder, watch, should_stop)


def resume(
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    watch: GenerationCallback | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
) -> Finished:
    """Goes on from the last checkpoint; a run that died before its first one begins again.

    ``overrides`` may make the run longer or shorter (``EXTENDABLE``) and are kept in its config;
    nothing else can change. A run that had more generations added equals one that was meant to have
    them. One that had spent its budget does not: its last generation asked no more than that paid.

    Raises:
        ConfigError: an override of another key, or of the wrong type.
        RunError: no run in the folder, another writer is at work there, its files are damaged, or
            its data are not what they were.
        HostError: the host is not the one that the run was founded with.
    """
    config = extended(folder, overrides)
    check(config)
    check_data(config, folder)
    host = host or build_host(config)
    return _live(generations(config, folder, host), config, folder, watch, should_stop)


def check_start(config: RunConfig, folder: Path) -> None:
    """Whether a run with this config can begin in a folder; nothing is loaded.

    Raises:
        ConfigError: the config does not fit together.
        RunError: the folder holds a run already.
    """
    check(config)
    _check_free(folder)


def generations(
    config: RunConfig,
    folder: Path,
    host: Host,
    *,
    is_new: bool = False,
    may_learn_nothing: bool = False,
    tell: Callable[[str], None] = lambda news: None,
) -> Generator[Generation, None, None]:
    """Lives a run, generation by generation, from its last checkpoint or from its founding, whose
    longer parts are told.

    Whoever stops iterating leaves a checkpoint behind. One process at a time: the folder is locked
    until the iterator is closed. Every generation is reported to ``run.report_to``.
    """
    with locked(folder), _without_remains(folder), Reports(config, folder) as reports:
        if is_new:
            _check_free(folder)  # again: another process may have founded a run while this loaded
        write_whole(folder / CONFIG_FILE, dump_config(config))
        runtime, log = build_runtime(config, host, folder), EventLog(folder / EVENTS_FILE)
        laps, every = Laps(), config.run.checkpoint_every
        runtime = replace(runtime, tell=tell, passed=laps.end)
        run = _OpenRun(config, folder, runtime, log)
        state = run.restored() or run.founded(may_learn_nothing)
        runtime = replace(runtime, milestones=milestones(config, state.mean_rollout_flops))
        elapsed = lived_seconds(folder)
        while not is_complete(config, state, elapsed):
            began = laps.begin()
            summary = run_generation(state, runtime, log)
            runtime.store.forget(state.reachable())
            elapsed += time.perf_counter() - began
            is_due = runtime.reward.asks_people or state.generation % every == 0
            is_saved = is_due or is_complete(config, state, elapsed)
            if is_saved:
                run.save(state)
            laps.end("save")
            seconds = time.perf_counter() - began
            timing = {
                "generation": summary.generation,
                "seconds": round(seconds, 4),
                "phases": {name: round(took, 4) for name, took in laps.seconds.items()},
            }
            append_line(folder / TIMINGS_FILE, timing)
            reports.report(state, summary, seconds)
            try:
                yield Generation(state, summary, seconds)
            except GeneratorExit:
                if not is_saved:
                    run.save(state)
                raise


def _live(
    lived: Generator[Generation, None, None],
    config: RunConfig,
    folder: Path,
    watch: GenerationCallback | None,
    should_stop: Callable[[], bool],
) -> Finished:
    with closing(lived):
        for generation in lived:
            if watch is not None:
                watch(generation.state, generation.summary, generation.seconds)
            if should_stop():
                break
    state = checkpoint.load_state(folder)
    return Finished(state, is_complete(config, state, lived_seconds(folder)))


def read_config(
    folder: Path, overrides: Sequence[str] = (), *, runs_plugins: bool = True
) -> RunConfig:
    """The resolved config of a run; its plug-ins are run, unless the run is only looked at.

    Raises:
        RunError: the folder holds no run.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise RunError(f"no run in {folder}: expected a {CONFIG_FILE} there")
    return load_config(path, overrides, runs_plugins=runs_plugins)


def extended(folder: Path, overrides: Sequence[str]) -> RunConfig:
    """The config of a run with another end.

    Raises:
        ConfigError: an override of a key that is not in ``EXTENDABLE``.
    """
    for override in overrides:
        if override.partition("=")[0].strip() not in EXTENDABLE:
            raise ConfigError(
                f"override {override!r}: a run that exists can only change "
                f"{', '.join(EXTENDABLE)}; start a new run for anything else"
            )
    config = read_config(folder, overrides)
    if overrides and (folder / checkpoint.STATE_FILE).exists():
        lived = checkpoint.load_state(folder).generation
        if config.run.generations < lived:
            raise ConfigError(
                f"run.generations: expected at least {lived}, which were lived, got "
                f"{config.run.generations}"
            )
    return config


def lived_seconds(folder: Path) -> float:
    """Wall-clock seconds of all generations of a run so far."""
    return sum(float(str(line["seconds"])) for _, line in read_lines(folder / TIMINGS_FILE))


def is_complete(config: RunConfig, state: EcologyState, seconds: float = 0.0) -> bool:
    """Whether a run has had its generations or spent its budget, the time on the clock included."""
    loop, budgets = config.run, milestones(config, state.mean_rollout_flops)
    return (
        state.generation >= loop.generations
        or budget_phase(state, budgets)[0] >= budget_flops(config, state.mean_rollout_flops)
        or (loop.train_seconds is not None and seconds >= loop.train_seconds)
        or (loop.train_tokens is not None and state.spent.tokens >= loop.train_tokens)
    )


def check_host(folder: Path, host: Host) -> str:
    """The fingerprint of a host; refuses one that is not the one that a run was founded with.

    Raises:
        HostError: the base weights differ.
        RunError: the run does not say what its host was.
    """
    founded, fingerprint = _founded_with(folder, "host"), host.fingerprint()
    if founded != fingerprint:
        raise HostError(
            f"the run in {folder} was founded on host {founded}, this one is {fingerprint}: "
            "bring back the model it was founded with"
        )
    return fingerprint


def check_data(config: RunConfig, folder: Path) -> None:
    """Refuses data files that are not what a run was founded with; nothing is loaded but the data.

    Raises:
        RunError: lines changed, came or went.
    """
    data = data_tasks(config)
    if not data or not (folder / PROVENANCE_FILE).exists():
        return
    digests = _founded_with(folder, "data")
    for task in data:
        if not isinstance(digests, dict) or digests.get(task.name) != task.digest:
            raise RunError(
                f"{task.source} is not what the run in {folder} was founded with: bring the old "
                "lines back, or start a new run"
            )


def _founded_with(folder: Path, what: str) -> object:
    """The host or the data of a run, as its provenance names them."""
    path = folder / PROVENANCE_FILE
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))[what]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} does not say which {what} the run was founded with") from error


def _check_free(folder: Path) -> None:
    if (folder / checkpoint.STATE_FILE).exists():
        raise RunError(
            f"{folder} holds a run already: resume it (symbiont resume {folder}) or choose another "
            "--out"
        )


@dataclass(frozen=True)
class _OpenRun:
    """A run whose folder this process has locked, with its parts and its event log."""

    config: RunConfig
    folder: Path
    runtime: Runtime
    log: EventLog

    def restored(self) -> EcologyState | None:
        """The state of the last checkpoint, if there is one."""
        if not (self.folder / checkpoint.STATE_FILE).exists():
            return None
        check_host(self.folder, self.runtime.host)
        state = checkpoint.load_state(self.folder)
        self.log.rewind(state.next_seq)
        self.runtime.transcripts.rewind(state.generation)
        self._collect(state)  # what a crash left behind
        return state

    def founded(self, may_learn_nothing: bool) -> EcologyState:
        """A new run. Until its first checkpoint the folder holds no run, whatever happens."""
        self._write_provenance()
        state = EcologyState(self.config.seed)
        self.log.rewind(0)
        self.runtime.transcripts.rewind(0)
        self.runtime.store.collect(())
        found_population(state, self.runtime, self.log)
        is_spent = is_complete(self.config, state)
        if self.config.run.generations and is_spent and not may_learn_nothing:
            raise self._too_small(state)
        self.save(state)
        return state

    def save(self, state: EcologyState) -> None:
        """Makes a checkpoint."""
        self.log.sync()
        self.runtime.store.flush(state.reachable())
        checkpoint.save_state(state, self.folder)
        self._collect(state)
        release_memory()

    def _collect(self, state: EcologyState) -> None:
        """Deletes every blob that neither the run, nor an evaluation of it, can be asked for."""
        with checkpoint.exclusive(self.folder):  # an evaluation may be reading, a fork be copying
            kept = checkpoint.kept_states(self.folder)
            needed = state.reachable().union(*(evaluated.reachable() for evaluated in kept))
            self.runtime.store.collect(needed)

    def _too_small(self, state: EcologyState) -> RunError:
        """What is wrong with a budget that founding spends, and one that is enough."""
        keys = " and ".join(f"run.{key}" for key in self.config.train_budgets)
        strategy, cells = self.runtime.strategy, self.runtime.tasks.cells
        rollouts = LEAST_GENERATIONS * len(cells) * strategy.questions * max(strategy.samples, 1)
        return RunError(
            f"{keys}: the budget is spent before anybody learned. Founding took "
            f"{state.spent.flops:.3g} FLOPs, and a rollout of this host takes "
            f"{state.mean_rollout_flops:.3g}: set run.train_flops=null "
            f"run.train_rollouts={math.ceil(rollouts * ROLLOUT_WITH_LESSON)} or more"
        )

    def _write_provenance(self) -> None:
        """Writes where the run comes from."""
        config = self.config
        facts = {
            "host": self.runtime.host.fingerprint(),
            "model": config.host.model,
            "seed": config.seed,
            "data": {task.name: task.digest for task in data_tasks(config)},
            "plugins": {plugin: content_hash(Path(plugin)) for plugin in config.plugins},
            "python": platform.python_version(),
            "machine": platform.machine(),
            "packages": versions(),
        }
        write_whole(self.folder / PROVENANCE_FILE, json.dumps(facts, indent=1) + "\n")


def data_tasks(config: RunConfig) -> tuple[DataTask, ...]:
    """The tasks of a config that are data of one's own."""
    return tuple(task for task in mixture(config).tasks if isinstance(task, DataTask))


def versions() -> dict[str, str]:
    """What results may depend on, beside the config; ``source`` is a hash of this package's own
    code."""
    packages = ("symbiont-ecology", "torch", "transformers", "numpy")
    return {name: _version(name) for name in packages} | {"source": source()}


@cache
def source() -> str:
    """Hash of every Python and C file of the package, names and contents."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(path for kind in ("*.py", "*.c") for path in root.rglob(kind)):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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

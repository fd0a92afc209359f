"""The folder of a run, and a run that this process has opened: founded, or restored from its last
checkpoint.

    config.yaml           resolved config, written first
    provenance.json       host, data, plug-ins, versions, config
    events.jsonl          what happened
    timings.jsonl         how long each generation took (not state)
    transcripts.jsonl     what was asked and replied, until it is full (not state)
    state.json            the last checkpoint
    state.previous.json   the one before it
    blobs/                weights and optimizer states
    lock                  held by the process that writes
    service.jsonl         what a run in service answered, and what was said of it
    evaluations.jsonl     results of evaluations (not state)
    trackers.json         what trackers were told (not state)

Other commands write more there: docs/running.md has all files.

What a checkpoint is: ``run.checkpoints``. A run that is killed anywhere and resumed ends with
the same ``state.json`` and ``events.jsonl``, byte for byte, as one that never stopped (same machine
and build). What damages a folder between two sittings is found when it is resumed.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.base.errors import LockedError, RunError
from symbiont_ecology.base.event_log import EventLog
from symbiont_ecology.base.fence import blamed
from symbiont_ecology.base.files import append_line, lock, make_folder, open_own, read_lines
from symbiont_ecology.base.process import release_memory
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.state import PREVIOUS_FILE, STATE_FILE
from symbiont_ecology.run.budget import is_complete
from symbiont_ecology.run.build import build_runtime
from symbiont_ecology.run.checkpoints import Checkpoints
from symbiont_ecology.run.config import RunConfig, load_config
from symbiont_ecology.run.generation import found_population, run_generation
from symbiont_ecology.run.provenance import (
    check_host,
    check_not_edited,
    check_versions,
    write_config,
    write_provenance,
)
from symbiont_ecology.run.runtime import Host, Runtime
from symbiont_ecology.run.trackers import Followers
from symbiont_ecology.run.trackers import Generation as Generation

CONFIG_FILE, EVENTS_FILE, TIMINGS_FILE = "config.yaml", "events.jsonl", "timings.jsonl"
TRACES = PREVIOUS_FILE, TIMINGS_FILE
"""What a run has that lived a generation, beside its last checkpoint."""
LOCK_FILE = "lock"
JOURNAL_FILE = "service.jsonl"
"""Answers of a run in service, and verdicts on them."""


@dataclass(eq=False, repr=False)
class OpenRun:
    """A run whose folder this process has locked, between two generations."""

    config: RunConfig
    folder: Path
    runtime: Runtime
    state: EcologyState
    log: EventLog
    checkpoints: Checkpoints
    followers: Followers
    elapsed: float
    """Wall-clock seconds of all generations so far, as ``lived_seconds`` reads them."""
    is_endless: bool = False
    is_saved: bool = True

    @property
    def is_complete(self) -> bool:
        """True once it has had its generations, or spent its budget; in service it never has."""
        return not self.is_endless and is_complete(self.config, self.state, self.elapsed)

    def step(self) -> Generation:
        """Live one generation, and make a checkpoint if one is due or the run ends."""
        start = time.perf_counter()
        summary = run_generation(self.state, self.runtime, self.log)
        self.runtime.store.forget(self.state.reachable())
        seconds = round(time.perf_counter() - start, 4)
        # As it is written, and before the checkpoint: who resumes must find the same end.
        self.elapsed += seconds
        timing = {"generation": summary.generation, "seconds": seconds}
        append_line(self.folder / TIMINGS_FILE, timing)
        self.is_saved = False
        if self.is_complete or self.state.generation % self.config.run.checkpoint_every == 0:
            self.save()
        generation = Generation(self.state, summary, seconds)
        self.followers.tell(generation)
        return generation

    def save(self) -> None:
        """Make a checkpoint, unless nothing happened since the last one."""
        if self.is_saved:
            return
        self.log.sync()
        self.checkpoints.save(self.state)
        release_memory()
        self.is_saved = True


@contextmanager
def opened(
    config: RunConfig, folder: Path, host: Host, *, is_new: bool = False, is_endless: bool = False
) -> Iterator[OpenRun]:
    """Open a run as it was at its last checkpoint, or found it. Its folder is locked meanwhile. An
    endless one ends with its process.

    Raises:
        RunError: see ``Run.start`` and ``Run.open``; another process is writing to the folder.
        HostError: the host is not the one that the run was founded with.
    """
    with locked(folder), blamed(RunError), closing(Followers(config, folder)) as followers:
        is_founded = (folder / STATE_FILE).exists()
        if is_new or not is_founded:
            check_free(folder)  # again: another process may have founded a run while this loaded
        path = folder / EVENTS_FILE
        runtime = build_runtime(config, host, folder)
        checkpoints = Checkpoints(folder, runtime.store, path, config.run.checkpoint_every)
        if is_founded:
            check_host(folder, host)
            check_versions(config, folder)
            try:
                state = checkpoints.restore()
                runtime.transcripts.rewind(state.generation)
            except RunError as error:
                advice = f"symbiont verify {folder} says what can be repaired"
                raise RunError(f"{error}; {advice}") from error
            write_config(config, folder / CONFIG_FILE)
        else:  # until its first checkpoint the folder holds no run, whatever happens
            write_config(config, folder / CONFIG_FILE)
            write_provenance(config, folder, host)
            state = EcologyState(config.seed)
            EventLog(path).rewind(0)
            runtime.transcripts.rewind(0)
            runtime.store.collect(())
        elapsed = lived_seconds(folder, state.generation)
        parts = (config, folder, runtime, state, EventLog(path), checkpoints, followers)
        run = OpenRun(*parts, elapsed, is_endless, is_saved=is_founded)
        if not is_founded:
            found_population(state, runtime, run.log)
            run.save()
        yield run


def lived_seconds(folder: Path, generations: float = math.inf) -> float:
    """Return the wall-clock seconds of the first generations of a run, or of all. A generation that
    was lived again counts as it was lived last. Checkpoints do not count.

    Raises:
        RunError: the file of them is damaged.
    """
    path, seconds, total = folder / TIMINGS_FILE, dict[int, float](), 0.0
    for number, line in read_lines(path):
        try:
            seconds[int(str(line["generation"]))] = float(str(line["seconds"]))
        except (KeyError, ValueError) as error:
            raise RunError(
                f"{path} line {number}: expected generation and seconds: remove the line"
            ) from error
    for generation, spent in seconds.items():  # as a run adds them: sum() rounds differently
        total += spent if generation < generations else 0.0
    return total


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder. The lock goes with its process, however that ends."""
    try:
        make_folder(folder)
        file = open_own(folder / LOCK_FILE, "ab")
    except OSError as error:
        raise RunError(f"cannot use {folder}: {error.strerror}") from error
    with file:
        if not lock(file.fileno(), waits=False):
            raise LockedError(
                f"another process is writing to {folder}: wait for it or stop it first"
            )
        yield


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, or one that lost its last checkpoint: founding would delete
    what is left of it.

    Raises:
        RunError: it does.
    """
    if os.path.exists(folder / STATE_FILE):  # no error where a name is too long
        raise RunError(
            f"{folder} holds a run already: Run.open({str(folder)!r}) goes on with it; or choose "
            "another folder"
        )
    if any(os.path.exists(folder / name) for name in TRACES):
        raise RunError(
            f"{folder / STATE_FILE} is missing, and generations were lived there: symbiont verify "
            f"{folder} --repair goes back to the checkpoint before it; or choose another folder"
        )


def no_run(folder: Path) -> RunError:
    """Return the error of a folder that holds no run, and perhaps several, as a comparison's."""
    is_there = os.path.isdir(folder)  # which a name that is too long is not
    inner = sorted(path.parent for path in folder.glob(f"*/{CONFIG_FILE}")) if is_there else []
    if not inner:
        return RunError(f"no run in {folder}: expected a {CONFIG_FILE} there")
    named = ", ".join(map(str, inner[:3]))
    return RunError(f"no run in {folder} itself: name one within it, such as {named}")


def read_config(
    folder: Path, overrides: Sequence[str] = (), *, runs_plugins: bool = True
) -> RunConfig:
    """Return the resolved config of a run; its plug-ins are run, unless the run is only looked at.

    Raises:
        RunError: the folder holds no run, or somebody edited its config by hand, and it is not only
            looked at.
    """
    path = folder / CONFIG_FILE
    if not os.path.isfile(path):  # which a name that is too long for a file is not
        raise no_run(folder)
    config = load_config(path, overrides, runs_plugins=runs_plugins)
    if runs_plugins and (folder / STATE_FILE).exists():
        check_not_edited(path, {override.partition("=")[0].strip() for override in overrides})
    return config

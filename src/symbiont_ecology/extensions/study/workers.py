"""Workers for the jobs of a suite: processes of this machine, or a cluster by Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import ConfigError, EcologyError, LockedError, RunError
from symbiont_ecology.extensions.study.jobs import Job
from symbiont_ecology.run import open_run as living
from symbiont_ecology.run import start as runs
from symbiont_ecology.run.config import load_config
from symbiont_ecology.run.executors import LocalExecutor, executors

RAY = "symbiont_ecology.extensions.ray.executor"
"""Imported where a cluster is asked for: Ray is an extra."""
LOCK_SECONDS_LEFT = 30.0
"""Seconds to wait for a run that a dying suite still holds."""
AUTO = ("auto", None)
"""Workers and address of a cluster that is this machine."""
STOP_FILE = "stop"
"""In a suite's folder while workers are to come to an end; it reaches other machines, too."""

JobCallback = Callable[[Job], None]
"""Called with every job that was finished."""
Submit = Callable[[Job, str], Future[None]]
"""Has a job of a protocol (as JSON) done."""


def _nobody_watches(stage: str, jobs: int, done: int) -> JobCallback:
    return lambda job: None


@dataclass(frozen=True)
class Workers:
    """Workers for jobs: so many at a time. ``watch(stage, jobs, done)`` gives the callback of a
    stage, some of whose jobs were done before."""

    count: int
    watch: Callable[[str, int, int], JobCallback] = _nobody_watches
    executor: Any = field(default_factory=LocalExecutor)

    def __post_init__(self) -> None:
        if (name := executors.name_of(self.executor)) not in ("local", "ray"):
            raise ConfigError(
                f"--executor: expected local or ray, got {name!r}, which does no jobs"
            )

    def at_a_time(self) -> Workers:
        """Return them with one for every core of the cluster that does the jobs, if one does.

        Raises:
            RunError: the cluster is out of reach.
        """
        executor = self.executor
        if isinstance(executor, LocalExecutor) or (executor.workers, executor.address) == AUTO:
            return self
        if executor.workers != "auto":
            return replace(self, count=executor.workers)
        machines = import_module(RAY).connect(executor.address, executor.seconds)
        return replace(
            self, count=max(int(sum(machine.get("CPU", 0.0) for machine in machines)), 1)
        )


@contextmanager
def job_pool(workers: Workers, folder: Path) -> Iterator[Submit]:
    """Offer those who do the jobs of a suite in a folder, for as long as the context lasts. They
    stop after the generation in flight once there is a ``STOP_FILE``."""
    executor, stop_file = workers.executor, folder / STOP_FILE
    stop_file.unlink(missing_ok=True)
    try:
        if isinstance(executor, LocalExecutor):
            with worker_processes(workers.count) as pool:
                yield lambda job, text: pool.submit(_work, job, text, folder)
        else:
            with _cluster(executor, workers.count, folder.resolve()) as submit:
                yield submit
    finally:
        stop_file.unlink(missing_ok=True)


@contextmanager
def worker_processes(count: int, niceness: int = 0) -> Iterator[ProcessPoolExecutor]:
    """Offer processes that leave Ctrl-C to this one, and do not outlive it."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that ran torch can hang
    with ProcessPoolExecutor(count, context, _begin, (niceness,)) as pool:
        yield pool


@contextmanager
def _cluster(executor: Any, count: int, folder: Path) -> Iterator[Submit]:
    """Each job is a task of Ray, and a thread here waits for it."""
    import ray

    import_module(RAY).connect(executor.address, executor.seconds, count)
    # On this machine, who asks for more jobs at a time than there are cores has them.
    work = ray.remote(_work_there).options(num_cpus=1 if executor.address else 0)

    def wait(job: Job, text: str) -> None:
        try:
            ray.get(work.remote(job, text, folder, Path.cwd()))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise RunError(f"{job.name}: its worker was lost: run the suite again") from error

    with ThreadPoolExecutor(count) as pool:
        yield lambda job, text: pool.submit(wait, job, text)


def _work_there(job: Job, protocol: str, folder: Path, home: Path) -> None:
    """Do a job on any machine of a cluster. ``home`` is where the suite was called: files that its
    configs name are looked for there."""
    if not folder.is_dir():
        raise RunError(
            f"{job.name}: expected the folder {folder} on {socket.gethostname()} too, found none: "
            "choose one on a file system that all machines share"
        )
    if home.is_dir():
        os.chdir(home)
    _work(job, protocol, folder)


_busy = threading.Lock()
"""In a worker: held by the job that it does."""


def _begin(niceness: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this process after its parent did: it would wait for work for ever. A job checkpoints
    before."""
    parent.join()
    with _busy:
        os._exit(1)


def should_stop_for(folder: Path) -> Callable[[], bool]:
    """Return what tells a worker to end: a ``STOP_FILE`` in a folder, or the end of its parent."""
    stop_file, parent = folder / STOP_FILE, multiprocessing.parent_process()
    return lambda: stop_file.exists() or (parent is not None and not parent.is_alive())


def _work(job: Job, protocol: str, folder: Path) -> None:
    should_stop = should_stop_for(folder)
    try:
        patiently(lambda: job.work(protocol, folder, should_stop))
    except EcologyError as error:
        raise RunError(f"{job.name}: {error}") from None


def patiently(work: Callable[[], object]) -> None:
    """Do some work in a worker. What a command that was killed a moment ago still holds is waited
    for: its generation comes to an end."""
    start = time.monotonic()
    while True:
        try:
            with _busy:
                work()
            return
        except LockedError:
            if time.monotonic() - start > LOCK_SECONDS_LEFT:
                raise
            time.sleep(1)


def live_beside(folder: Path, name: str, preset: str, changes: Sequence[str]) -> None:
    """Live a run of a preset in a worker, or what is left of it, in a folder of its name; what it
    says is in a log beside it."""
    place, should_stop = folder / name, should_stop_for(folder)

    def live() -> None:
        if (place / living.CONFIG_FILE).exists():
            runs.resume(place, should_stop=should_stop)
        else:
            runs.start(load_config(preset, changes), place, should_stop=should_stop)

    log = (folder / f"{name}.log").open("w", encoding="utf-8")
    with log, redirect_stdout(log), redirect_stderr(log):
        patiently(live)

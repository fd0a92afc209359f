"""Who does the jobs of a suite: processes of this machine, or a cluster by Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from symbiont_ecology.engine.executors import Executor, LocalExecutor, executors
from symbiont_ecology.errors import ConfigError, EcologyError, LockedError, RunError
from symbiont_ecology.experiments.jobs import Job
from symbiont_ecology.experiments.world_jobs import WorldJob

RAY = "symbiont_ecology.extensions.ray.executor"
LOCK_SECONDS_LEFT = 30.0
"""Seconds to wait for a run that a dying suite still holds."""
STOP_FILE = "stop"
"""In a suite's folder while workers on other machines are to come to an end."""

AnyJob = Job | WorldJob
JobCallback = Callable[[AnyJob, float], None]
"""Called with every finished job and its seconds."""
Submit = Callable[[AnyJob, str], Future[float]]
"""Has a job of a protocol (as JSON) done; the seconds that it took."""


@dataclass(frozen=True)
class Workers:
    """How jobs are done: so many at a time. ``watch(stage, jobs)`` gives the callback of a stage.

    Setting ``stop`` ends the work after the generations in flight.
    """

    count: int
    watch: Callable[[str, int], JobCallback]
    stop: Event
    executor: Executor = field(default_factory=LocalExecutor)


def jobs_at_a_time(executor: Any, usual: int) -> int:
    """How many jobs an executor does side by side, if nobody says it; ``usual`` is the number on
    this machine.

    Raises:
        RunError: its cluster is out of reach.
    """
    if executors.name_of(executor) != "ray":
        return usual
    if executor.workers != "auto":
        return int(executor.workers)
    if executor.address is None:
        return usual
    machines = import_module(RAY).connect(executor.address, executor.seconds)
    return max(int(sum(machine.cores for machine in machines)), 1)


@contextmanager
def job_pool(workers: Workers, folder: Path) -> Iterator[Submit]:
    """Those who do the jobs of a suite in a folder, for as long as the context lasts.

    Raises:
        ConfigError: the executor does no jobs.
    """
    match workers.executor:
        case LocalExecutor():
            pool = _processes(workers, folder)
        case other if executors.name_of(other) == "ray":
            pool = _cluster(other, workers, folder)
        case _:
            name = executors.name_of(workers.executor)
            raise ConfigError(f"--executor: {name!r} does no jobs, choose local or ray")
    with pool as submit:
        yield submit


@contextmanager
def _processes(workers: Workers, folder: Path) -> Iterator[Submit]:
    context = multiprocessing.get_context("spawn")  # a fork of a process that ran torch can hang
    arguments = (workers.stop,)
    with ProcessPoolExecutor(workers.count, context, _begin, arguments) as pool:
        yield lambda job, text: pool.submit(_work_here, job, text, folder)


@contextmanager
def _cluster(executor: Any, workers: Workers, folder: Path) -> Iterator[Submit]:
    """Each job is a task of Ray, and a thread here waits for it."""
    import ray

    import_module(RAY).connect(executor.address, executor.seconds, workers.count)
    place, stop_file, is_over = folder.resolve(), folder.resolve() / STOP_FILE, threading.Event()
    stop_file.unlink(missing_ok=True)
    # On this machine, who asks for more jobs at a time than there are cores has them.
    work = ray.remote(_work_there).options(num_cpus=1 if executor.address else 0)

    def wait(job: AnyJob, text: str) -> float:
        """Until a job is done."""
        try:
            return float(ray.get(work.remote(job, text, place, Path.cwd())))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise RunError(f"{job.name}: its worker was lost: run the suite again") from error

    def pass_on() -> None:
        """Tells workers to stop, when this process is told to."""
        while not is_over.wait(0.5):
            if workers.stop.is_set():
                stop_file.touch()

    watcher = threading.Thread(target=pass_on, daemon=True)
    watcher.start()
    try:
        with ThreadPoolExecutor(workers.count) as pool:
            yield lambda job, text: pool.submit(wait, job, text)
    finally:
        is_over.set()
        watcher.join()
        stop_file.unlink(missing_ok=True)


def _work_there(job: AnyJob, protocol: str, folder: Path, home: Path) -> float:
    """A job on any machine of a cluster; seconds it took. ``home`` is where the suite was called:
    files that its configs name are looked for there."""
    if not folder.is_dir():
        raise RunError(
            f"{job.name}: expected the folder {folder} on {socket.gethostname()} too, found none: "
            "choose one on a file system that all machines share"
        )
    if home.is_dir():
        os.chdir(home)
    return _work(job, protocol, folder, (folder / STOP_FILE).exists)


_stop: list[Callable[[], bool]] = []
"""In a worker: what says that it should end."""
_busy = threading.Lock()
"""In a worker: held by the job that it does."""


def _begin(stop: Event) -> None:
    """A worker leaves Ctrl-C to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    _stop[:] = [lambda: stop.is_set() or not parent.is_alive()]
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """Ends this process after its parent did: it would wait for work for ever. A job checkpoints
    before."""
    parent.join()
    with _busy:
        os._exit(1)


def _work_here(job: AnyJob, protocol: str, folder: Path) -> float:
    """A job in a process of this machine; seconds it took."""
    (should_stop,) = _stop
    return _work(job, protocol, folder, should_stop)


def _work(job: AnyJob, protocol: str, folder: Path, should_stop: Callable[[], bool]) -> float:
    """Does a job; seconds it took."""
    start = time.monotonic()
    while True:
        try:
            with _busy:
                job.work(protocol, folder, should_stop)
            return time.monotonic() - start
        except LockedError as error:
            # A suite that was killed a moment ago may still be finishing its generation there.
            if time.monotonic() - start > LOCK_SECONDS_LEFT:
                raise RunError(f"{job.name}: {error}") from None
            time.sleep(1)
        except EcologyError as error:
            raise RunError(f"{job.name}: {error}") from None

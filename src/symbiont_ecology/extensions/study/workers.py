"""Workers for the jobs of a suite: processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

from symbiont_ecology.base.errors import EcologyError, LockedError, RunError
from symbiont_ecology.extensions.study.jobs import Job, JobContext, run_job
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.run import open_run as living
from symbiont_ecology.run.run import Run

LOCK_SECONDS_LEFT = 30.0
"""Seconds to wait for a run that a dying suite still holds."""
STOP_FILE = "stop"
"""In a suite's folder while workers are to come to an end."""


def worker_processes(count: int) -> ProcessPoolExecutor:
    """Return processes that leave Ctrl-C to this one, and do not outlive it."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that ran torch can hang
    return ProcessPoolExecutor(count, context, _begin)


_busy = threading.Lock()
"""In a worker: held by the job that it does."""


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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


def work(job: Job, protocol: Protocol, folder: Path) -> None:
    """Do a job of a suite in a worker, or what is left of it."""
    context = JobContext(job, protocol, folder, should_stop_for(folder))
    try:
        patiently(lambda: run_job(context))
    except EcologyError as error:
        raise RunError(f"{job.name}: {error}") from None


def patiently(do: Callable[[], object]) -> None:
    """Do some work in a worker. What a command that was killed a moment ago still holds is waited
    for: its generation comes to an end."""
    start = time.monotonic()
    while True:
        try:
            with _busy:
                do()
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
            Run.open(place).finish(should_stop)
        else:
            Run.start(preset, *changes, folder=place).finish(should_stop)

    log = folder / f"{name}.log"
    with log.open("w", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            patiently(live)
        except EcologyError as error:
            raise RunError(f"the run of {name!r} failed: {error} (see {log})") from None

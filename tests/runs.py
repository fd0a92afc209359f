"""Runs of a config that is built already, lived to their end, or until they are to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from symbiont_ecology import Run
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import Host

Watch = Callable[[EcologyState, GenerationEnded, float], object]
"""Called with the state after each generation, its summary and its seconds."""


def start(
    config: RunConfig,
    folder: Path,
    *,
    watch: Watch = lambda *_: None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
) -> Run:
    """Found a run and live it."""
    return _lived(Run.start(config, folder=folder, host=host), watch, should_stop)


def resume(
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    watch: Watch = lambda *_: None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
) -> Run:
    """Go on with a run."""
    return _lived(Run.open(folder, *overrides, host=host), watch, should_stop)


def _lived(run: Run, watch: Watch, should_stop: Callable[[], bool]) -> Run:
    with closing(iter(run)) as generations:
        for generation in generations:
            watch(generation.state, generation.summary, generation.seconds)
            if should_stop():
                break
    return run

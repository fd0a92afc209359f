"""A run: a folder that holds everything, founded once, continued any number of times, always the
same.

    config.yaml           resolved config, written first
    provenance.json       versions, host, seed
    events.jsonl          what happened
    timings.jsonl         how long it took (not state)
    transcripts.jsonl     what was asked and replied, until it is full (not state)
    state.json            the last checkpoint
    state.previous.json   the one before it
    service.jsonl         what a run in service answered, and what was said of it
    blobs/                weights and optimizer states
    trackers.json         what trackers were told (not state)

What a checkpoint is: ``run.checkpoints``. A run that is killed anywhere and resumed ends with
the same ``state.json`` and ``events.jsonl``, byte for byte, as one that never stopped (same machine
and build). What damages a folder between two sittings is found when it is resumed.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.run.budget import is_complete
from symbiont_ecology.run.build import build_host, check
from symbiont_ecology.run.config import LoopConfig, RunConfig, load_config
from symbiont_ecology.run.executors import NOT_DECIDING
from symbiont_ecology.run.open_run import (
    CONFIG_FILE,
    JOURNAL_FILE,
    Generation,
    check_free,
    lived_seconds,
    opened,
)
from symbiont_ecology.run.provenance import check_data, check_not_edited
from symbiont_ecology.run.runtime import Host

EXTENDABLE = (
    *(f"run.{name}" for name in LoopConfig.model_fields),
    "host.engine.url",
    *NOT_DECIDING,
)
"""Keys that may change when a run is resumed: when it ends, how often it is saved, what reports it,
what it is asked at the end, who does its work and where."""

GenerationCallback = Callable[[EcologyState, GenerationEnded, float], object]
"""Called after every generation with its wall-clock seconds; for showing, never for deciding."""


@dataclass(frozen=True)
class Finished:
    """State of a run that returned. ``is_complete`` is False after an interruption."""

    state: EcologyState
    is_complete: bool


def start(
    config: RunConfig,
    folder: Path,
    *,
    watch: GenerationCallback = lambda *_: None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
) -> Finished:
    """Found a run in a new folder and live it.

    Raises:
        ConfigError: the config does not fit together; no model was loaded.
        AdapterError: an adapter that it founds with cannot be used.
        RunError: the folder holds a run already, or the disk is full.
    """
    check_start(config, folder)
    return _live(config, folder, host, watch, should_stop, is_new=True)


def resume(
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    watch: GenerationCallback = lambda *_: None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Host | None = None,
) -> Finished:
    """Go on from the last checkpoint; a run that died before its first one begins again.

    ``overrides`` may make the run longer or shorter (``EXTENDABLE``) and are kept in its config;
    nothing else can change. A run that had more generations added equals one that was meant to have
    them. One that had spent its budget does not: its last generation asked no more than that paid.

    Raises:
        ConfigError: an override of another key, or of the wrong type.
        RunError: no run in the folder, another writer is at work there, its files are damaged, or
            its data are not what they were.
        HostError: the host is not the one that the run was founded with.
    """
    return _live(check_resume(folder, overrides), folder, host, watch, should_stop)


def check_start(config: RunConfig, folder: Path) -> None:
    """Check that a run with this config can begin in a folder; nothing is loaded.

    Raises:
        ConfigError: the config does not fit together.
        AdapterError: an adapter that it founds with cannot be used.
        RunError: the folder holds a run already.
    """
    check(config)
    check_free(folder)


def check_resume(folder: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the config with which a run can go on, with another end if overrides say so; nothing
    is loaded but its data.

    Raises:
        ConfigError: an override of a key that is not in ``EXTENDABLE``.
        RunError: there is no run that can go on.
    """
    for override in overrides:
        if override.partition("=")[0].strip() not in EXTENDABLE:
            raise ConfigError(
                f"override {override!r}: a run that exists can only change "
                f"{', '.join(EXTENDABLE)}; start a new run for anything else"
            )
    config = read_config(folder, overrides)
    if not (folder / STATE_FILE).exists():
        check_free(folder)
    check(config)
    check_data(config, folder)
    return config


def generations(
    config: RunConfig,
    folder: Path,
    host: Host,
    *,
    is_new: bool = False,
    on_progress: Callable[[str], None] = lambda message: None,
) -> Generator[Generation, None, None]:
    """Live a run and yield its generations, from its last checkpoint or from its founding.

    Whoever stops iterating leaves a checkpoint behind. One process at a time: the folder is locked
    until the iterator is closed. Every generation is reported to ``run.report_to``.
    """
    if os.path.exists(folder / JOURNAL_FILE):
        raise RunError(f"{folder} lives by what its users say: go on with symbiont serve {folder}")
    with opened(config, folder, host, is_new=is_new, on_progress=on_progress) as run:
        while not run.is_complete:
            generation = run.step()
            try:
                yield generation
            except GeneratorExit:
                run.save()
                raise


def _live(
    config: RunConfig,
    folder: Path,
    host: Host | None,
    watch: GenerationCallback,
    should_stop: Callable[[], bool],
    *,
    is_new: bool = False,
) -> Finished:
    host = host or build_host(config)  # before the folder: a missing model leaves no half-made run
    with closing(generations(config, folder, host, is_new=is_new)) as life:
        for generation in life:
            watch(generation.state, generation.summary, generation.seconds)
            if should_stop():
                break
    state = load_state(folder)
    return Finished(state, is_complete(config, state, lived_seconds(folder, state.generation)))


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
        raise RunError(f"no run in {folder}: expected a {CONFIG_FILE} there")
    config = load_config(path, overrides, runs_plugins=runs_plugins)
    if runs_plugins and (folder / STATE_FILE).exists():
        check_not_edited(path, {override.partition("=")[0].strip() for override in overrides})
    return config

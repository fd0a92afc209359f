"""What if: a run that begins where another one stands, with something changed, and goes on by
itself."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import Decision, EcologyState, Judge
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.checkpoint_header import GrowingLog
from symbiont_ecology.engine.build import build_runtime, check
from symbiont_ecology.engine.generation import execute
from symbiont_ecology.engine.living import CONFIG_FILE, EVENTS_FILE
from symbiont_ecology.engine.provenance import PROVENANCE_FILE, write_config
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.engine.runtime import GenerationContext, Host, Runtime
from symbiont_ecology.errors import RunError
from symbiont_ecology.event_log import EventLog
from symbiont_ecology.events import Event
from symbiont_ecology.rng import Draw
from symbiont_ecology.weights import AdapterWeights


def fork(
    folder: Path,
    to: Path,
    config: RunConfig,
    host: Host,
    decisions: Sequence[Decision] = (),
    weights: Sequence[AdapterWeights] = (),
) -> None:
    """Copies a run as of its last checkpoint, carries out some decisions, and leaves it to be
    resumed.

    ``weights`` are adapters from elsewhere, for decisions that found organelles with them. The
    config may differ from the run's in all that its state does not depend on: prices, climate,
    length, learning rule, an ecology's knobs. Another seed makes another future. Another strategy
    has to know the traits of those who live, and lets go of whoever is on probation. The log keeps
    the common past. The run may be going on meanwhile. A fork that fails leaves nothing behind.

    Raises:
        ConfigError: the config does not fit together.
        RunError: no run in the folder, ``to`` is taken or cannot be written, or a decision is about
            an organelle that is not there.
    """
    check(config)
    if to.exists():
        raise RunError(f"cannot fork to {to}: it exists already, choose another folder")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{to.name}.", suffix=".new", dir=to.parent) as around:
            half_made = Path(around) / to.name
            state = _copied(folder, half_made)
            write_config(config, half_made / CONFIG_FILE)
            runtime, log = build_runtime(config, host, half_made), EventLog(half_made / EVENTS_FILE)
            state.seed = config.seed
            for adapter in weights:
                runtime.store.put_weights(adapter)
            if config.strategy != read_config(folder).strategy:  # others may judge, or nobody
                leaving = [Judge(challenger, "reject") for challenger in state.challengers.values()]
                decisions = [*leaving, *decisions]
            events = _carried_out(decisions, state, runtime)
            log.rewind(state.next_seq)
            state.next_seq = log.emit(state.next_seq, *events)
            log.sync()
            runtime.store.flush(state.reachable())
            mark = GrowingLog(log.path).mark(state.next_seq)
            checkpoint.save_state(state, half_made, log=mark)
            half_made.replace(to)
    except OSError as error:
        raise RunError(f"cannot fork {folder} to {to}: {error}") from error


def _copied(folder: Path, to: Path) -> EcologyState:
    """The last checkpoint of a run, with all that it needs; another process may be writing
    there."""
    with checkpoint.exclusive(folder):  # until it is copied, nothing that it names is deleted
        state = checkpoint.load_state(folder)
        shutil.copytree(folder / "blobs", to / "blobs", ignore=shutil.ignore_patterns("*.tmp"))
        for name in (PROVENANCE_FILE, EVENTS_FILE):
            shutil.copyfile(folder / name, to / name)
    return state


def _carried_out(
    decisions: Sequence[Decision], state: EcologyState, runtime: Runtime
) -> list[Event]:
    try:
        draw = Draw(state.seed, state.generation)
        return execute(decisions, GenerationContext(**vars(runtime), state=state, draw=draw))
    except KeyError as error:
        raise RunError(
            f"cannot carry out the decisions: expected an organelle that is there, got {error}: "
            f"name one of {', '.join(state.population) or 'nobody'}, who live at that moment"
        ) from error

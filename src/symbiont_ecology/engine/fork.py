"""What if: a run that begins where another one stands, with something changed, and goes on by itself."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from symbiont_ecology.config import RunConfig, dump_config
from symbiont_ecology.ecology import Decision
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.population import execute
from symbiont_ecology.engine.build import build_world, check
from symbiont_ecology.engine.run import CONFIG_FILE, EVENTS_FILE
from symbiont_ecology.engine.world import Host
from symbiont_ecology.errors import RunError
from symbiont_ecology.events import EventLog
from symbiont_ecology.files import write_whole
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
    """Copies a run as of its last checkpoint, carries out some decisions, and leaves it to be resumed.

    ``weights`` are adapters from elsewhere, for decisions that found organelles with them. The config
    may differ from the run's in all that its state does not depend on: prices, climate, plasticity, strategy,
    length; another seed makes another future. The log keeps the common past.

    Raises:
        ConfigError: the config does not fit together.
        RunError: no run in the folder, or ``to`` is taken.
    """
    check(config)
    if to.exists():
        raise RunError(f"cannot fork to {to}: it exists already, choose another folder")
    state = checkpoint.load(folder)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock", checkpoint.MOMENTS))
    write_whole(to / CONFIG_FILE, dump_config(config))
    world, log = build_world(config, host, to), EventLog(to / EVENTS_FILE)
    state.seed = config.seed
    for one in weights:
        world.store.put_weights(one)
    draw = Draw(state.seed, state.generation)
    done = [execute(one, state, world.store, host.layout, config.economy, draw) for one in decisions]
    log.rewind(state.next_seq)
    state.next_seq = log.emit(state.next_seq, *(event for events in done for event in events))
    log.sync()
    world.store.flush(state.reachable())
    checkpoint.save(state, to)

"""Small worlds in which one mechanism at a time can be watched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runs import start
from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Event
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import Elite, Genome, Organelle
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.success import SuccessPosterior
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.generation import run_generation
from symbiont_ecology.run.runtime import Runtime
from symbiont_ecology.tasks.config import Flip
from toy import LAYOUT, ToyHost, toy_config, toy_prices, toy_runtime

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
FLIPPED = {"math.add/short", "string.sort/short"}
SUM = {"kind": "concatenation", "decay": 0.0}
PLENTY = toy_prices(dowry=12_000, grace=3, cap=40_000, lowest=1200, rent=2000)


def ecology(questions: int = 2, **mechanisms: Any) -> dict[str, Any]:
    """One founder, owners of cells, and only the mechanisms that are named."""
    off = dict.fromkeys(("upheaval", "breeding"), False)
    return {
        "kind": "ecology",
        "founders": 1,
        "capacity": 7,
        "questions": questions,
        "samples": 2,
        "learning_rate": 0.1,
        "ranks": 28,
        "mechanisms": {**off, **mechanisms},
    }


def config(
    count: int, seed: int = 0, families: Sequence[str] = FAMILIES, **mechanisms: Any
) -> RunConfig:
    rule = mechanisms.pop("learning_rule", "expert_iteration")
    parts = {
        "strategy": ecology(**mechanisms),
        "learning_rule": rule,
        "allocator": "epsilon_greedy",
    }
    return toy_config(seed, count, families, PLENTY, checkpoint_every=50, **parts)


def lived(folder: Path, plan: RunConfig) -> tuple[EcologyState, list[Event]]:
    state = start(plan, folder, host=ToyHost()).state
    return state, list(read_events(folder / "events.jsonl"))


def flipping(tmp_path: Path, generations: int, seed: int = 0, **mechanisms: Any) -> RunConfig:
    """Half of the families change after half of the run, and back after three quarters."""
    plan = config(generations, seed, **mechanisms)
    calm, _ = lived(tmp_path / "calm", plan)
    spent = calm.spent.flops
    flip = Flip(families=FAMILIES[:2], at_flops=spent / 2, back_flops=0.75 * spent)
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})


def founded(
    folder: Path, adapters: list[AdapterWeights], homes: Sequence[str] = (), **mechanisms: Any
) -> tuple[EcologyState, Runtime]:
    """Organelles o1, o2, … with these adapters, rich; each at home in a family, when homes are
    named."""
    plan = config(1, families=homes or FAMILIES, **mechanisms)
    world, state = (
        toy_runtime(folder, plan),
        EcologyState(0, mean_rollout_flops=100_000),
    )  # compute is cheap
    for number, weights in enumerate(adapters):
        organelle_id, ref = state.new_id(), world.store.put_weights(weights)
        genome = Genome(ref, weights.rank, {"learning_rate": 0.1})
        optimizer_state = world.store.put_optimizer_state(OptimizerState(step=3))
        state.population[organelle_id] = Organelle(
            organelle_id, genome, optimizer_state, (), "founder", 0, inborn=ref
        )
        state.ledger.open(organelle_id)
        state.ledger.mint(organelle_id, 300_000)
        for family in homes[number : number + 1]:
            cell = f"{family}/short"
            state.success[cell] = 0.9
            state.posteriors[organelle_id] = {cell: SuccessPosterior(18.0, 2.0)}
            state.archive.elites[cell] = Elite(organelle_id, ref, weights.rank, 0.9, 0)
    return state, world


def adapter(seed: int, rank: int = 4, b_std: float = 0.5) -> AdapterWeights:
    return AdapterWeights.random(LAYOUT, rank, 1.0, np.random.default_rng(seed), b_std)


def apply(decision: Any, state: EcologyState, world: Runtime, **more: Any) -> list[Event]:
    draw = Draw(0, state.generation)
    context = ApplyContext(state, world.store, LAYOUT, world.prices, draw, rank=world.rank, **more)
    return list(decision.apply(context))


def specialist(folder: Path, family: str) -> AdapterWeights:
    """What learns one family alone."""
    strategy = {"kind": "single", "questions": 4, "samples": 4, "learning_rate": 0.1}
    plan = toy_config(0, 60, (family,), PLENTY, learning_rule="expert_iteration", strategy=strategy)
    state, _ = lived(folder, plan)
    (graduate,) = state.population.values()
    return toy_runtime(folder, plan).store.weights(graduate.genome.weights)


def generations(count: int, state: EcologyState, world: Runtime, path: Path) -> list[Event]:
    log = EventLog(path)
    log.rewind(0)
    for _ in range(count):
        run_generation(state, world, log)
    return list(read_events(path))

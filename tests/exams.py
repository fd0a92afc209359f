"""Small worlds of organelles that sit exams, for tests of strategies that select by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lives import adapter
from symbiont_ecology.config import Flip, RunConfig
from symbiont_ecology.ecology import Birth, Decision, Genome, Organelle, Retire
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.engine.run import start
from symbiont_ecology.engine.runtime import GenerationContext, Runtime
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Event
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from toy import ToyHost, toy_config, toy_runtime

FAMILIES = ("math.add", "string.sort")
EXPERTS = ("cycleqd", "m2n2", "mixing", "swarm")
EXAMS = (*EXPERTS, "randopt")


def plan(count: int = 10, seed: int = 0, rule: str = "none", **strategy: Any) -> RunConfig:
    """Founders are no experts where nothing is learned."""
    if rule == "none" and strategy["kind"] in EXPERTS:
        strategy = {"schooling": 0, **strategy}
    return toy_config(seed, count, FAMILIES, strategy=strategy, learning_rule=rule)


def lived(folder: Path, config: RunConfig, host: ToyHost | None = None) -> list[Event]:
    start(config, folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


def flipping(folder: Path, config: RunConfig) -> RunConfig:
    """The first family changes after half of the FLOPs of that run."""
    middle = start(config, folder / "calm", host=ToyHost()).state.spent.flops / 2
    flip = Flip(families=FAMILIES[:1], at_flops=middle)
    return config.model_copy(update={"tasks": config.tasks.model_copy(update={"flip": flip})})


def variants_in_exams(state: EcologyState) -> list[set[str]]:
    """The conventions of the first family in the exam that each of those with a score sat."""
    exams = [one.marks for one in state.population.values() if one.score is not None]
    return [
        {item.split("/")[2] for item in marks if item.startswith(FAMILIES[0])} for marks in exams
    ]


def world_of(
    folder: Path, config: RunConfig, adapters: Sequence[AdapterWeights], generation: int = 5
) -> tuple[EcologyState, Runtime]:
    """Organelles o1, o2, … with these adapters, which are the particles 0, 1, …"""
    world, state = toy_runtime(folder, config), EcologyState(0, generation, mean_rollout_flops=1000)
    state.success = dict.fromkeys((f"{name}/short" for name in FAMILIES), 0.5)
    for number, weights in enumerate(adapters):
        who, ref = state.new_id(), world.store.put_weights(weights)
        genome = Genome(ref, weights.rank, {"learning_rate": 0.1, NICHE: float(number)})
        memory = world.store.put_optimizer_state(OptimizerState())
        state.population[who] = Organelle(who, genome, memory, (), "founder", 0, inborn=ref)
        state.ledger.open(who)
    return state, world


def turn_of(state: EcologyState, world: Runtime) -> GenerationContext:
    return GenerationContext(**vars(world), state=state, draw=Draw(state.seed, state.generation))


def mark(state: EcologyState, world: Runtime, marks: Sequence[Mapping[str, float]]) -> None:
    """What o1, o2, … earned in the exam; whatever is not named is 0."""
    strategy: Any = world.strategy
    items = strategy.exam(turn_of(state, world).strategy_context)
    for who, own in zip(list(state.population), marks, strict=True):
        known = {item.id: float(own.get(item.id, own.get(item.family, 0.0))) for item in items}
        score = float(np.mean(list(known.values())))
        state.population[who] = replace(state.population[who], score=score, marks=known)


def told(state: EcologyState, world: Runtime) -> list[Decision]:
    return list(world.strategy.tell(turn_of(state, world).strategy_context))


def retired(decisions: Sequence[Decision]) -> set[str]:
    return {one.organelle_id for one in decisions if isinstance(one, Retire)}


def parents(decisions: Sequence[Decision]) -> list[tuple[str, ...]]:
    return [one.parents for one in decisions if isinstance(one, Birth)]


def delta(state: EcologyState, world: Runtime, who: str) -> np.ndarray:
    return world.store.weights(state.population[who].genome.weights).delta("policy")


OF_FULL_RANK = [adapter(seed, rank=4) for seed in range(3)]

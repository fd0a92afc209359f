"""Nothing depends on what an organelle is called, nor on how busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.ecology import Found, Genome
from symbiont_ecology.ecology.population import execute
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.engine.generation import run_generation
from symbiont_ecology.engine.run import start
from symbiont_ecology.events import Born, EventLog, read_events
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import LearningBatch, LearningStatistics, Rollouts, Row
from symbiont_ecology.weights import AdapterWeights, Memory
from toy import LAYOUT, ToyHost, toy_config, toy_ecology, toy_prices, toy_world

PAIRS, GENERATIONS = 100, 25
FAMILIES = ("math.add", "string.sort", "logic.bool")


def lines(folder: Path, seed: int, founders: Sequence[AdapterWeights]) -> list[tuple[int, int]]:
    """What the line of each founder owns in the end, in mATP, and how many of it live."""
    config = toy_config(seed, 1, FAMILIES, toy_prices(dowry=12_000, cap=40_000), strategy=toy_ecology())
    world, state = toy_world(folder, config), EcologyState(seed, mean_rollout_flops=100_000)
    state.success = {f"{family}/short": 0.5 for family in FAMILIES}
    events, log = [], EventLog(folder / "events.jsonl")
    for weights in founders:
        traits = {"learning_rate": 0.1}
        genome = Genome(world.store.put_weights(weights), weights.rank, traits)
        found = Found(traits, weights.rank, genome)
        events += execute(found, state, world.store, LAYOUT, world.scene.prices, Draw(seed))
    state.next_seq = log.emit(0, *events)
    for _ in range(GENERATIONS):
        run_generation(state, world, log)
    line = {f"o{number + 1}": number for number in range(len(founders))}
    owned, alive = [0] * len(founders), [0] * len(founders)
    for event in read_events(folder / "events.jsonl"):
        if isinstance(event, Born) and event.parents and event.parents[0] in line:
            line[event.id] = line[event.parents[0]]
    for who in state.population:
        if who in line:  # others were refounded from the archive
            owned[line[who]] += state.ledger.balance(who)
            alive[line[who]] += 1
    return list(zip(owned, alive, strict=True))


def test_two_founders_that_swap_their_names_fare_as_before(tmp_path: Path) -> None:
    """200 runs: each pair of founders is founded in both orders, so that each has both ids."""
    advantages = []
    for seed in range(PAIRS):
        one, other = (
            AdapterWeights.random(LAYOUT, 4, 1.0, np.random.default_rng(2 * seed + k), 0.3) for k in range(2)
        )
        as_first, _ = lines(tmp_path / f"{seed}-one", seed, (one, other))
        _, as_second = lines(tmp_path / f"{seed}-other", seed, (other, one))
        advantages.append(np.subtract(as_first, as_second))
    gaps = np.array(advantages, dtype=float)  # (pairs, energy and number alive)
    assert gaps.std(axis=0).min() > 0  # names move draws, so single runs differ
    errors = gaps.std(axis=0, ddof=1) / np.sqrt(PAIRS)
    assert (np.abs(gaps.mean(axis=0)) < 2.6 * errors).all()  # at the 1 % level each


@dataclass
class BusyHost(ToyHost):
    """Takes its time, as a host does on a machine with other work."""

    def rollout(self, rows: Sequence[Row], draws: Any, decoding: Any) -> Rollouts:
        """Late."""
        time.sleep(0.002)
        return super().rollout(rows, draws, decoding)

    def learn(
        self, batch: LearningBatch, weights: Any, memory: Any
    ) -> tuple[dict[int, AdapterWeights], dict[int, Memory], LearningStatistics]:
        """Later."""
        time.sleep(0.003)
        return super().learn(batch, weights, memory)


def test_a_busy_machine_changes_no_event(tmp_path: Path) -> None:
    config = toy_config(3, 30, FAMILIES, strategy=toy_ecology())
    for name, host in (("idle", ToyHost()), ("busy", BusyHost())):
        start(config, tmp_path / name, host=host)
    idle, busy = ((tmp_path / name / "events.jsonl").read_bytes() for name in ("idle", "busy"))
    assert idle == busy

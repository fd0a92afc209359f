"""Nothing depends on what an organelle is called, nor on how busy the machine is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Acted, Born
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import Found
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.run.generation import run_generation
from toy import LAYOUT, toy_config, toy_ecology, toy_prices, toy_runtime

PAIRS, GENERATIONS = 50, 10
FAMILIES = ("math.add", "string.sort", "logic.bool")
ALLOCATORS = ("epsilon_greedy", "thompson")


def lines(
    folder: Path, seed: int, founders: Sequence[AdapterWeights], allocator: str
) -> list[tuple[float, float, float]]:
    """Of the line of each founder: questions it was asked, answers that were right, how many
    live."""
    mechanisms = {"breeding": {"at": 30_000}}
    strategy = toy_ecology(questions=4, samples=1, mechanisms=mechanisms)
    prices = toy_prices(dowry=40_000, cap=60_000, rent=2_000)
    parts = {"strategy": strategy, "allocator": allocator, "learning_rule": "expert_iteration"}
    world = toy_runtime(folder, toy_config(seed, 1, FAMILIES, prices, **parts))
    state, log = EcologyState(seed, mean_rollout_flops=100_000), EventLog(folder / "events.jsonl")
    state.success = {f"{family}/short": 0.5 for family in FAMILIES}
    context = ApplyContext(state, world.store, LAYOUT, world.prices, Draw(seed))
    refs = [world.store.put_weights(weights) for weights in founders]
    found = [Found({"learning_rate": 0.1}, 4, ref) for ref in refs]
    state.next_seq = log.emit(0, *(event for one in found for event in one.apply(context)))
    for _ in range(GENERATIONS):
        run_generation(state, world, log)
    line = {f"o{number + 1}": number for number in range(len(founders))}
    fared = np.zeros((len(founders), 3))
    for event in read_events(folder / "events.jsonl"):
        if isinstance(event, Born) and event.parents and event.parents[0] in line:
            line[event.id] = line[event.parents[0]]
        if isinstance(event, Acted) and event.purpose == "practice" and event.id in line:
            fared[line[event.id], :2] += len(event.verdicts), sum(event.verdicts)
    for organelle_id in state.population.keys() & line.keys():  # others were refounded
        fared[line[organelle_id], 2] += 1
    return [(asked, right, alive) for asked, right, alive in fared.tolist()]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_two_founders_that_swap_their_names_fare_as_before(allocator: str, tmp_path: Path) -> None:
    """100 runs: each pair of founders is founded in both orders, so that each has both ids."""
    fared = []
    for seed in range(PAIRS):
        one, other = (
            AdapterWeights.random(LAYOUT, 4, 1.0, np.random.default_rng(2 * seed + k), 0.3)
            for k in range(2)
        )
        orders = enumerate([(one, other), (other, one)])
        fared.append([lines(tmp_path / f"{seed}-{k}", seed, to, allocator) for k, to in orders])
    by_name = np.array(fared).sum(axis=1)  # (pairs, first or second, asked and right and alive)
    assert (by_name[:, :, 2] > 0).mean() > 0.9  # most live: there is something to tell apart
    gaps = by_name[:, 0] - by_name[:, 1]
    for gap in gaps.T:
        assert np.count_nonzero(gap) > PAIRS / 2  # names move draws, so single runs differ
        assert stats.wilcoxon(gap).pvalue > 0.01  # but by chance alone, to either side alike

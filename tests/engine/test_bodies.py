"""What morphogenesis really does to bodies, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lives import adapter, apply, flipping, founded
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Resized
from symbiont_ecology.ecology import Resize
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.run.budget import is_complete
from symbiont_ecology.run.generation import found_population, run_generation
from toy import ToyHost, toy_runtime


def test_growing_changes_nothing_that_is_done_and_shrinking_hardly_anything(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2)])
    before = world.store.weights(state.population["o1"].genome.weights).delta("policy")
    (grown,) = apply(Resize("o1", 3, share=0.0), state, world)
    assert isinstance(grown, Resized)
    assert world.store.optimizer_state(state.population["o1"].optimizer_state).step == 3
    after = world.store.weights(state.population["o1"].genome.weights)
    assert (after.rank, state.population["o1"].genome.rank, grown.kept) == (3, 3, 1.0)
    np.testing.assert_allclose(after.delta("policy"), before, atol=1e-6)
    (shrunk,) = apply(Resize("o1", 2, share=0.1), state, world)
    assert isinstance(shrunk, Resized)
    assert shrunk.kept == pytest.approx(1.0)
    assert world.store.optimizer_state(state.population["o1"].optimizer_state).step == 3
    back = world.store.weights(state.population["o1"].genome.weights)
    np.testing.assert_allclose(back.delta("policy"), before, atol=1e-5)


def test_a_body_that_uses_what_it_has_does_not_shrink_nor_one_that_does_not_grow(
    tmp_path: Path,
) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2), adapter(2, rank=2, b_std=0.0)])
    assert apply(Resize("o1", 1, share=0.01), state, world) == []
    assert apply(Resize("o2", 3, share=0.3), state, world) == []
    # It never learned: nothing is known.
    assert apply(Resize("o2", 1, share=1.0), state, world) == []


def test_the_budget_of_ranks_and_places_binds_whatever_happens(tmp_path: Path) -> None:
    mechanisms: dict[str, Any] = {
        "upheaval": {"level": 3.0},
        "breeding": {"at": 14_000, "mutation": "svd_noise"},
        "merging": {"every": 2, "at": 4_000, "questions": 4, "gate": {"level": 0.5, "most": 16}},
        "morphogenesis": {"every": 2, "rich": 14_000, "poor": 6_000, "full": 0.01},
    }
    most, fullest, seen = 13, 0, set[str]()
    for seed in (4, 5):
        plan = flipping(tmp_path / str(seed), 80, seed, questions=4, **mechanisms)
        plan = plan.model_copy(update={"strategy": {**plan.strategy, "ranks": most, "capacity": 4}})  # type: ignore[dict-item]
        host, log = ToyHost(), EventLog(tmp_path / f"{seed}.jsonl")
        world, state = toy_runtime(tmp_path / f"{seed}-run", plan, host), EcologyState(seed)
        found_population(state, world, log)
        while not is_complete(plan, state):
            run_generation(state, world, log)
            ranks = [organelle.genome.rank for organelle in state.population.values()]
            assert len(ranks) <= 4
            assert sum(ranks) <= most
            fullest = max(fullest, sum(ranks))
        events = read_events(tmp_path / f"{seed}.jsonl")
        seen |= {getattr(event, "operator", type(event).__name__) for event in events}
    assert fullest == most
    assert {"pioneer", "svd_noise", "svd", "Resized", "Upheaved"} <= seen

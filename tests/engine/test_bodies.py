"""What thrift and morphogenesis really do to bodies, and what comes of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lives import (
    FAMILIES,
    adapter,
    apply,
    config,
    flipping,
    founded,
    generations,
    lived,
    specialist,
)
from symbiont_ecology.ecology import Resize
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.engine.budget import is_complete, milestones
from symbiont_ecology.engine.generation import found_population, run_generation
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.event_log import EventLog, read_events
from symbiont_ecology.events import (
    Acted,
    Born,
    Event,
    Gated,
    GenerationEnded,
    Proposed,
    Resized,
    Settled,
)
from symbiont_ecology.strategies.mechanisms import thrift
from symbiont_ecology.types import Decoding, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from toy import LAYOUT, ToyHost, toy_runtime

# Thrift.


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> AdapterWeights:
    """What has learned math.add for long, and would do with a tenth of its ΔW."""
    return specialist(tmp_path_factory.mktemp("expert") / "run", "math.add")


def scaled(weights: AdapterWeights, share: float) -> AdapterWeights:
    return AdapterWeights(weights.layout, weights.rank, share * weights.scaling, weights.vector)


def skill(weights: AdapterWeights, world: Runtime) -> float:
    """Share of 300 new questions that are right, answered greedily."""
    host = ToyHost()
    items = world.tasks.draw(("math.add", "short"), 300, np.random.default_rng(5))
    host.place(0, weights)
    said = host.rollout([Request(item.prompt, 0, 20) for item in items], None, Decoding())
    return float(
        np.mean([item.verifier(text) for item, text in zip(items, said.texts, strict=True)])
    )


def thrifty(
    folder: Path, weights: AdapterWeights, count: int, **knobs: Any
) -> tuple[EcologyState, Runtime, list[Event]]:
    """An organelle that is at home in math.add, learns no more and is thrifty."""
    state, world = founded(
        folder,
        [weights],
        FAMILIES[:1],
        thrift={"first": 2, "questions": 1, **knobs},
        learning_rule="none",
    )
    return state, world, generations(count, state, world, folder / "events.jsonl")


def test_what_is_larger_than_it_needs_to_be_becomes_leaner_and_answers_as_well(
    expert: AdapterWeights, tmp_path: Path
) -> None:
    state, world, events = thrifty(tmp_path, expert, 100)
    (gated,) = (event for event in events if isinstance(event, Gated))
    (resized,) = (event for event in events if isinstance(event, Resized))
    assert (gated.verdict, resized.id, resized.generation) == ("admit", "o1", gated.generation)
    leaner = world.store.weights(state.population["o1"].genome.weights)
    assert leaner.scaling == pytest.approx(0.7 * expert.scaling)
    assert resized.kept == pytest.approx(0.7**2)
    np.testing.assert_array_equal(leaner.vector, expert.vector)  # A and B
    assert world.store.optimizer_state(state.population["o1"].optimizer_state) == OptimizerState(
        step=3
    )
    assert skill(leaner, world) == skill(expert, world) == 1.0
    assert {elite.organelle_id: elite.weights for elite in state.archive.elites.values()} == {
        "o1": resized.weights
    }
    assert sum(isinstance(event, Born) for event in events) == 0


def test_what_needs_all_that_it_is_stays_as_it_is(expert: AdapterWeights, tmp_path: Path) -> None:
    scant = scaled(expert, 0.05)
    state, world, events = thrifty(tmp_path, scant, 200)
    assert skill(scaled(scant, 0.7), world) < skill(scant, world) - 0.05
    assert {event.verdict for event in events if isinstance(event, Gated)} == {"reject"}
    (organelle,) = state.population.values()
    assert organelle.genome.weights == organelle.inborn


def test_nobody_tries_before_its_time_and_each_time_at_twice_the_age(
    expert: AdapterWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "MOST_QUESTIONS", 1)
    _, _, events = thrifty(tmp_path, expert, 50, first=3)
    tries = [event.generation for event in events if isinstance(event, Proposed)]
    assert tries == [3, 6, 12, 24, 48]


def test_nobody_tries_without_skill(
    expert: AdapterWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "MOST_QUESTIONS", 1)
    unable, homes = adapter(1, b_std=0.0), ("math.add", "string.sort")
    state, world = founded(
        tmp_path, [expert, unable], homes, thrift={"first": 20}, learning_rule="none"
    )
    events = generations(45, state, world, tmp_path / "events.jsonl")
    assert state.archive.elites["string.sort/short"].score < 0.5
    assert [event.parents for event in events if isinstance(event, Proposed)] == [("o1",)] * 2


def test_every_look_of_the_gate_sees_the_same_mix_of_cells(
    expert: AdapterWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "ABLE", 0.0)
    state, world = founded(tmp_path, [expert], FAMILIES, thrift={"first": 2, "questions": 0.5})
    state.success = dict.fromkeys((f"{family}/short" for family in FAMILIES), 0.9)
    for family in FAMILIES[1:]:
        state.archive.elites[f"{family}/short"] = state.archive.elites[f"{FAMILIES[0]}/short"]
    events = generations(12, state, world, tmp_path / "events.jsonl")
    asked: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        if isinstance(event, Acted) and event.purpose == "probation":
            asked[event.generation][event.cell] += len(event.items)
    assert len(asked) >= 3
    assert len({frozenset(cells.items()) for cells in asked.values()}) == 1


def test_a_run_stopped_in_the_middle_of_a_probation_goes_on_exactly(tmp_path: Path) -> None:
    plan = config(40, thrift={"first": 8, "questions": 1})
    state, events = lived(tmp_path / "whole", plan)
    assert any(isinstance(event, Resized) for event in events)
    proposed = next(event for event in events if isinstance(event, Proposed))
    left = iter(range(proposed.generation + 3, 0, -1))
    stopped = start(
        plan, tmp_path / "run", host=ToyHost(), should_stop=lambda: next(left) == 1
    ).state
    assert stopped.challengers[proposed.id].counts
    assert resume(tmp_path / "run", host=ToyHost()).state == state
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == events


def test_who_tries_to_be_leaner_pays_for_both_of_its_selves(
    expert: AdapterWeights, tmp_path: Path
) -> None:
    state, world, events = thrifty(tmp_path, expert, 20)
    (proposed,) = (event for event in events if isinstance(event, Proposed))
    flops, exams = Counter[int](), Counter[str]()
    for event in events:
        if isinstance(event, Acted):
            flops[event.generation] += event.flops
            exams[event.id] += event.purpose == "probation"
    assert exams == {"o1": 17, proposed.id: 17}  # all generations after the one of the proposal
    for event in events:
        if isinstance(event, Settled):
            cost = world.prices.cost(flops[event.generation], state.mean_rollout_flops)
            assert (event.id, event.cost) == ("o1", cost)
    assert set(state.ledger.balances) == {"o1"}
    assert state.ledger.total == 0


# Bodies.


def test_growing_changes_nothing_that_is_done_and_shrinking_hardly_anything(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2)])
    before = world.store.weights(state.population["o1"].genome.weights).delta("policy")
    (grown,) = apply(Resize("o1", 3, share=0.0), state, world)
    assert isinstance(grown, Resized)
    after = world.store.weights(state.population["o1"].genome.weights)
    assert (after.rank, state.population["o1"].genome.rank, grown.kept) == (3, 3, 1.0)
    np.testing.assert_allclose(after.delta("policy"), before, atol=1e-6)
    (shrunk,) = apply(Resize("o1", 2, share=0.1), state, world)
    assert isinstance(shrunk, Resized)
    assert shrunk.kept == pytest.approx(1.0)
    back = world.store.weights(state.population["o1"].genome.weights)
    np.testing.assert_allclose(back.delta("policy"), before, atol=1e-5)


def test_what_the_optimiser_knows_grows_with_a_body_and_age_outlives_shrinking(
    tmp_path: Path,
) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2)])
    first, second = adapter(2, rank=2).vector, adapter(3, rank=2).vector ** 2
    young = state.population["o1"]
    optimizer_state = world.store.put_optimizer_state(
        OptimizerState(step=9, first=first, second=second)
    )
    state.population["o1"] = replace(young, optimizer_state=optimizer_state)
    apply(Resize("o1", 3, share=0.0), state, world)
    grown = world.store.optimizer_state(state.population["o1"].optimizer_state)
    assert grown.step == 9
    for before, after in ((first, grown.first), (second, grown.second)):
        assert after is not None
        old, new = AdapterWeights(LAYOUT, 2, 1.0, before), AdapterWeights(LAYOUT, 3, 1.0, after)
        for (_, a, b), (_, wider_a, wider_b) in zip(old.factors(), new.factors(), strict=True):
            np.testing.assert_array_equal(wider_a, np.vstack([a, np.zeros_like(a[:1])]))
            np.testing.assert_array_equal(wider_b, np.hstack([b, np.zeros_like(b[:, :1])]))
    apply(Resize("o1", 2, share=1.0), state, world)
    assert world.store.optimizer_state(state.population["o1"].optimizer_state) == OptimizerState(
        step=9
    )


def test_a_body_that_uses_what_it_has_does_not_shrink_nor_one_that_does_not_grow(
    tmp_path: Path,
) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2), adapter(2, rank=2, b_std=0.0)])
    assert apply(Resize("o1", 1, share=0.01), state, world) == []
    assert apply(Resize("o2", 3, share=0.3), state, world) == []
    assert (
        apply(Resize("o2", 1, share=1.0), state, world) == []
    )  # it never learned: nothing is known


def test_the_budget_of_ranks_and_places_binds_whatever_happens(tmp_path: Path) -> None:
    mechanisms: dict[str, Any] = {
        "upheaval": {"level": 3.0},
        "breeding": {"at": 14_000, "mutation": "svd_noise"},
        "merging": {"every": 2, "at": 4_000, "questions": 4, "gate": {"level": 0.5, "most": 16}},
        "morphogenesis": {"every": 2, "rich": 14_000, "poor": 6_000, "full": 0.01},
    }
    most, fullest, seen = 13, 0, set[str]()
    for seed in range(6):
        plan = flipping(tmp_path / str(seed), 80, seed, questions=4, **mechanisms)
        plan = plan.model_copy(update={"strategy": {**plan.strategy, "ranks": most, "capacity": 4}})  # type: ignore[dict-item]
        host, log = ToyHost(), EventLog(tmp_path / f"{seed}.jsonl")
        world, state = toy_runtime(tmp_path / f"{seed}-run", plan, host), EcologyState(seed)
        found_population(state, world, log)
        world = replace(world, milestones=milestones(plan, state.mean_rollout_flops))
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


def test_where_ranks_bind_leaner_bodies_make_room_for_more(tmp_path: Path) -> None:
    most = dict[bool, int]()
    for is_on in (False, True):
        bodies = {"morphogenesis": {"every": 2, "rich": 39_000, "poor": 30_000}} if is_on else {}
        plan = config(40, 1, breeding={"at": 14_000}, **bodies)
        plan = plan.model_copy(update={"strategy": {**plan.strategy, "ranks": 12, "capacity": 12}})  # type: ignore[dict-item]
        _, events = lived(tmp_path / str(is_on), plan)
        most[is_on] = max(
            event.population for event in events if isinstance(event, GenerationEnded)
        )
    assert most[False] == 3
    assert most[True] > 3

"""What each mechanism of an ecology really does: to weights, beliefs and energy, and to what comes of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symbiont_ecology.config import Flip, RunConfig
from symbiont_ecology.ecology import HOST, Birth, Elite, Genome, Organelle, Propose, Resize
from symbiont_ecology.ecology.archive import Archive
from symbiont_ecology.ecology.belief import Belief
from symbiont_ecology.ecology.population import execute
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.engine.build import check
from symbiont_ecology.engine.generation import found, run_generation
from symbiont_ecology.engine.run import is_complete, resume, start
from symbiont_ecology.engine.world import World
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.events import (
    Acted,
    Born,
    Event,
    EventLog,
    Gated,
    GenerationEnded,
    Proposed,
    Resized,
    Settled,
    Upheaved,
    read_events,
)
from symbiont_ecology.operators import operators
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies.mechanisms import thrift
from symbiont_ecology.types import Decoding, Row
from symbiont_ecology.weights import AdapterWeights, Memory
from toy import LAYOUT, ToyHost, toy_config, toy_prices, toy_world

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
FLIPPED = {"math.add/short", "string.sort/short"}
SUM = {"kind": "concatenation", "decay": 0.0}
PLENTY = toy_prices(dowry=12_000, grace=3, cap=40_000, lowest=1200, rent=2000)


def ecology(questions: int = 2, **mechanisms: Any) -> dict[str, Any]:
    """One founder, owners of cells, and only the mechanisms that are named."""
    off = dict.fromkeys(("upheaval", "thrift", "breeding"), False)
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


def config(count: int, seed: int = 0, families: Sequence[str] = FAMILIES, **mechanisms: Any) -> RunConfig:
    plasticity = mechanisms.pop("plasticity", "expert_iteration")
    parts = {"strategy": ecology(**mechanisms), "plasticity": plasticity, "allocator": "epsilon_greedy"}
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


# Upheavals.


def test_an_upheaval_opens_what_fell_to_pioneers_and_brings_back_what_had_held_it(tmp_path: Path) -> None:
    opened = brought_back = 0
    for seed in range(6):
        plan = flipping(tmp_path / str(seed), 120, seed, questions=4, upheaval=True)
        state, events = lived(tmp_path / str(seed) / "run", plan)
        flip = plan.tasks.flip
        assert flip is not None
        assert flip.back_flops is not None
        ended = [event for event in events if isinstance(event, GenerationEnded)]
        there, back = (
            next(event.generation for event in ended if event.train_flops >= 0.98 * flops)  # it comes by then
            for flops in (flip.at_flops, flip.back_flops)
        )
        fallen: dict[bool, set[str]] = {False: set(), True: set()}  # by whether the world had changed back
        came = Counter[tuple[str, bool]]()
        for event in (event for event in events if event.generation > there):
            if isinstance(event, Upheaved):
                fallen[event.generation > back] |= set(event.cells)
            elif isinstance(event, Born):
                came[event.operator, event.generation > back] += 1
        opened += fallen[False] >= FLIPPED and came["pioneer", False] == 1 and not came["revived", False]
        brought_back += fallen[True] >= FLIPPED and came["revived", True] > 0
        kept = {state.archive.elites[f"{family}/short"].who for family in FAMILIES[2:]}
        assert all(state.population[who].born < there for who in kept)
    assert min(opened, brought_back) >= 4  # one world in three may be slow to notice, or alarmed by chance


def test_a_population_that_notices_changes_outdoes_one_that_does_not(tmp_path: Path) -> None:
    plan = flipping(tmp_path, 120, upheaval=True)
    blind = plan.model_copy(update={"strategy": ecology()})

    def late(folder: Path, plan: RunConfig) -> float:
        """Mean success from the flip on."""
        _, events = lived(folder, plan)
        found = [event.accuracy for event in events if isinstance(event, GenerationEnded)]
        return float(np.mean(found[60:]))

    assert late(tmp_path / "open", plan) > late(tmp_path / "blind", blind) + 0.1


def test_no_upheaval_without_a_change(tmp_path: Path) -> None:
    for seed in range(3):
        _, events = lived(tmp_path / str(seed), config(100, seed, upheaval=True))
        assert not any(isinstance(event, Upheaved) for event in events)


# Breeding.


def founded(
    folder: Path, adapters: list[AdapterWeights], homes: Sequence[str] = (), **mechanisms: Any
) -> tuple[EcologyState, World]:
    """Organelles o1, o2, … with these adapters, rich; each at home in a family, when homes are named."""
    plan = config(1, families=homes or FAMILIES, **mechanisms)
    world, state = toy_world(folder, plan), EcologyState(0, mean_rollout_flops=100_000)  # compute is cheap
    for number, weights in enumerate(adapters):
        who, ref = state.new_id(), world.store.put_weights(weights)
        genome = Genome(ref, weights.rank, {"learning_rate": 0.1})
        memory = world.store.put_memory(Memory(step=3))
        state.population[who] = Organelle(who, genome, memory, (), "founder", 0, inborn=ref)
        state.ledger.open(who)
        state.ledger.mint(who, 300_000)
        for family in homes[number : number + 1]:
            cell = f"{family}/short"
            state.success[cell] = 0.9
            state.beliefs[who] = {cell: Belief(18.0, 2.0)}
            state.archive.elites[cell] = Elite(who, ref, weights.rank, 0.9, 0)
    return state, world


def adapter(seed: int, rank: int = 4, b_std: float = 0.5) -> AdapterWeights:
    return AdapterWeights.random(LAYOUT, rank, 1.0, np.random.default_rng(seed), b_std)


def carry_out(decision: Any, state: EcologyState, world: World) -> list[Event]:
    return execute(decision, state, world.store, LAYOUT, world.scene.prices, Draw(0, state.generation))


@pytest.mark.parametrize("inheritance", ["lamarckian", "darwinian"])
def test_what_parents_learned_is_handed_down_or_not(inheritance: Any, tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1)])
    learned = world.store.put_weights(adapter(2))
    parent = state.population["o1"]
    genome = Genome(learned, 4, dict(parent.genome.traits))
    state.population["o1"] = Organelle("o1", genome, parent.memory, (), "founder", 0, inborn=parent.inborn)
    exact = operators.build({"kind": "gaussian", "sigma": 0.0})
    (born,) = carry_out(Birth(("o1",), exact, "gaussian", {}, inheritance=inheritance), state, world)
    assert isinstance(born, Born)
    is_lamarckian = inheritance == "lamarckian"
    assert born.weights == (learned if is_lamarckian else parent.inborn)
    steps = world.store.memory(state.population[born.id].memory).step
    assert steps == (3 if is_lamarckian else 0)


# Merging.


def specialist(folder: Path, family: str) -> AdapterWeights:
    """What learns one family alone."""
    strategy = {"kind": "single", "questions": 4, "samples": 4, "learning_rate": 0.1}
    plan = toy_config(0, 60, (family,), PLENTY, plasticity="expert_iteration", strategy=strategy)
    state, _ = lived(folder, plan)
    (graduate,) = state.population.values()
    return toy_world(folder, plan).store.weights(graduate.genome.weights)


def generations(count: int, state: EcologyState, world: World, path: Path) -> list[Event]:
    log = EventLog(path)
    log.rewind(0)
    for _ in range(count):
        run_generation(state, world, log)
    return list(read_events(path))


def test_a_child_that_does_what_both_parents_do_is_admitted_lives_and_takes_over(tmp_path: Path) -> None:
    homes = ("math.add", "logic.bool")
    parents = [specialist(tmp_path / home, home) for home in homes]
    merging = {"every": 1, "at": 40_000, "questions": 4, "operator": SUM, "gate": {"gain": 0.3}}
    state, world = founded(tmp_path / "run", parents, homes, merging=merging)
    events = generations(20, state, world, tmp_path / "events.jsonl")
    proposed = next(event for event in events if isinstance(event, Proposed))
    gated = next(event for event in events if isinstance(event, Gated))
    born = next(event for event in events if isinstance(event, Born))
    assert proposed.id == gated.id == born.id
    assert gated.verdict == "admit"
    assert gated.wins > gated.losses
    assert set(born.parents) == {"o1", "o2"}
    assert born.weights == proposed.weights  # nothing overwrote what was judged
    assert set(state.population) == {"o1", "o2", born.id}
    assert {elite.who for elite in state.archive.elites.values()} == {born.id}
    assert state.ledger.total == 0


def test_a_child_that_is_no_better_is_rejected_and_leaves_nothing(tmp_path: Path) -> None:
    merging = {"every": 1, "at": 40_000, "questions": 8, "gate": {"most": 60}}
    state, world = founded(tmp_path / "run", [adapter(1), adapter(2)], FAMILIES[:2], merging=merging)
    events = generations(12, state, world, tmp_path / "events.jsonl")
    gated = [event for event in events if isinstance(event, Gated)]
    assert gated
    assert {event.verdict for event in gated} == {"reject"}
    assert not {event.id for event in gated} & set(state.population)
    assert not {event.id for event in gated} & set(state.ledger.balances)


def test_elites_follow_who_grew_in_rank_too_where_it_is_not_asked(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2)], FAMILIES[:1])
    elsewhere = Elite("o1", state.population["o1"].genome.weights, 2, 0.9, 0)
    state.archive.elites["word.count/short"] = elsewhere
    carry_out(Resize("o1", 3, share=0.0), state, world)
    generations(1, state, world, tmp_path / "events.jsonl")
    elite = state.archive.elites["word.count/short"]
    assert world.store.weights(elite.weights).rank == elite.rank == 3


# Thrift.


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> AdapterWeights:
    """What has learned math.add for long, and would do with a tenth of its ΔW."""
    return specialist(tmp_path_factory.mktemp("expert") / "run", "math.add")


def scaled(weights: AdapterWeights, share: float) -> AdapterWeights:
    return AdapterWeights(weights.layout, weights.rank, share * weights.scaling, weights.vector)


def skill(weights: AdapterWeights, world: World) -> float:
    """Share of 300 new questions that are right, answered greedily."""
    host, tasks = ToyHost(), world.scene.tasks
    items = tasks.draw(("math.add", "short"), 300, np.random.default_rng(5))
    host.place(0, weights)
    said = host.rollout([Row(tasks.prompt(item), 0, 20) for item in items], None, Decoding())
    return float(np.mean([tasks.verify(item, text) for item, text in zip(items, said.texts, strict=True)]))


def thrifty(
    folder: Path, weights: AdapterWeights, count: int, **knobs: Any
) -> tuple[EcologyState, World, list[Event]]:
    """An organelle that is at home in math.add, learns no more and is thrifty."""
    state, world = founded(
        folder, [weights], FAMILIES[:1], thrift={"first": 2, "questions": 1, **knobs}, plasticity="none"
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
    assert world.store.memory(state.population["o1"].memory) == Memory(step=3)
    assert skill(leaner, world) == skill(expert, world) == 1.0
    assert {elite.who: elite.weights for elite in state.archive.elites.values()} == {"o1": resized.weights}
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
    monkeypatch.setattr(thrift, "MOST", 1)
    _, _, events = thrifty(tmp_path, expert, 50, first=3)
    tries = [event.generation for event in events if isinstance(event, Proposed)]
    assert tries == [3, 6, 12, 24, 48]


def test_nobody_tries_without_skill(
    expert: AdapterWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thrift, "MOST", 1)
    unable, homes = adapter(1, b_std=0.0), ("math.add", "string.sort")
    state, world = founded(tmp_path, [expert, unable], homes, thrift={"first": 20}, plasticity="none")
    events = generations(45, state, world, tmp_path / "events.jsonl")
    assert state.archive.elites["string.sort/short"].score < 0.5
    assert [event.parents for event in events if isinstance(event, Proposed)] == [("o1",)] * 2


def test_a_run_stopped_in_the_middle_of_a_probation_goes_on_exactly(tmp_path: Path) -> None:
    plan = config(40, thrift={"first": 8, "questions": 1})
    state, events = lived(tmp_path / "whole", plan)
    assert any(isinstance(event, Resized) for event in events)
    proposed = next(event for event in events if isinstance(event, Proposed))
    left = iter(range(proposed.generation + 3, 0, -1))
    stopped = start(plan, tmp_path / "run", host=ToyHost(), should_stop=lambda: next(left) == 1).state
    assert stopped.nursery[proposed.id].tallies
    assert resume(tmp_path / "run", host=ToyHost()).state == state
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == events


def test_who_tries_to_be_leaner_pays_for_both_of_its_selves(expert: AdapterWeights, tmp_path: Path) -> None:
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
            cost = world.scene.prices.cost(flops[event.generation], state.mean_rollout_flops)
            assert (event.id, event.cost) == ("o1", cost)
    assert set(state.ledger.balances) == {"o1"}
    assert state.ledger.total == 0


# Bodies.


def test_growing_changes_nothing_that_is_done_and_shrinking_hardly_anything(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2)])
    before = world.store.weights(state.population["o1"].genome.weights).delta("policy")
    (grown,) = carry_out(Resize("o1", 3, share=0.0), state, world)
    assert isinstance(grown, Resized)
    after = world.store.weights(state.population["o1"].genome.weights)
    assert (after.rank, state.population["o1"].genome.rank, grown.kept) == (3, 3, 1.0)
    np.testing.assert_allclose(after.delta("policy"), before, atol=1e-6)
    (shrunk,) = carry_out(Resize("o1", 2, share=0.1), state, world)
    assert isinstance(shrunk, Resized)
    assert shrunk.kept == pytest.approx(1.0)
    back = world.store.weights(state.population["o1"].genome.weights)
    np.testing.assert_allclose(back.delta("policy"), before, atol=1e-5)


def test_a_body_that_uses_what_it_has_does_not_shrink_nor_one_that_does_not_grow(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1, rank=2), adapter(2, rank=2, b_std=0.0)])
    assert carry_out(Resize("o1", 1, share=0.01), state, world) == []
    assert carry_out(Resize("o2", 3, share=0.3), state, world) == []


def test_the_budget_of_ranks_and_places_binds_whatever_happens(tmp_path: Path) -> None:
    mechanisms: dict[str, Any] = {
        "upheaval": {"pioneers": 2, "level": 3.0},
        "breeding": {"at": 14_000},
        "merging": {"every": 2, "at": 4_000, "questions": 4, "gate": {"level": 0.5, "most": 16}},
        "morphogenesis": {"every": 2, "rich": 14_000, "poor": 6_000, "full": 0.01},
    }
    most, fullest, seen = 13, 0, set[str]()
    for seed in range(3):
        plan = flipping(tmp_path / str(seed), 80, seed, questions=4, **mechanisms)
        plan = plan.model_copy(update={"strategy": {**plan.strategy, "ranks": most, "capacity": 4}})  # type: ignore[dict-item]
        host, log = ToyHost(), EventLog(tmp_path / f"{seed}.jsonl")
        world, state = toy_world(tmp_path / f"{seed}-run", plan, host), EcologyState(seed)
        found(state, world, log)
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


# What is refused, and where everything ends.


@pytest.mark.parametrize(
    ("mechanisms", "said"),
    [
        ({"merging": {"operator": "gaussian"}}, "expected an operator of 2 parents"),
        ({"breeding": {"mutation": "svd"}}, "expected an operator of 1 parent ("),
        ({"thirft": False}, "did you mean 'thrift'"),
        ({"thirft": True}, "did you mean 'thrift'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(mechanisms: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check(config(3, **mechanisms))


@pytest.mark.parametrize("operator", ["linear", SUM, "svd"])
def test_a_merged_child_is_no_larger_than_a_slot(operator: Any, tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1), adapter(2)])
    cells = {"o1": ("math.add/short",), "o2": ("string.sort/short",)}
    carry_out(Propose(cells, operators.build(operator), "merged", {}, 4), state, world)
    (child,) = state.nursery.values()
    assert child.genome.rank == world.store.weights(child.genome.weights).rank == 4


def test_a_world_in_which_nobody_lives_comes_to_its_end(tmp_path: Path) -> None:
    plan = config(500, refounding=False)
    plan = plan.model_copy(
        update={
            "economy": toy_prices(dowry=0, grace=0, rent=10**7),
            "run": plan.run.model_copy(update={"train_flops": 3e7}),
        }
    )
    state, events = lived(tmp_path / "run", plan)
    assert not state.population
    assert state.generation < 500
    assert {event.id for event in events if isinstance(event, Acted) and event.generation > 2} == {HOST}


def test_who_died_lucky_gives_way_to_who_is_able() -> None:
    archive, cell = Archive(), ("math.add", "short")
    assert archive.add(cell, Elite("o1", "lucky", 4, 0.9, 0))
    assert not archive.add(cell, Elite("o2", "able", 4, 0.8, 1))
    archive.follow("o1", "lucky", 4, 20)  # as long as it is asked, it is believed
    assert not archive.add(cell, Elite("o2", "able", 4, 0.8, 21))
    assert archive.add(cell, Elite("o2", "able", 4, 0.8, 40))
    assert archive.elites["math.add/short"].who == "o2"

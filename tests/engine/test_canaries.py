"""Canaries: who loses what it had mastered becomes what it was; who is well is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symbiont_ecology.config import Flip, RunConfig
from symbiont_ecology.ecology import EcologyState, Judge, ProposeVariant, Upheaval
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.changes import FALLEN
from symbiont_ecology.ecology.organelle import skill
from symbiont_ecology.ecology.population import ApplyContext, apply
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.generation import found_population, run_generation
from symbiont_ecology.engine.run import start
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.event_log import EventLog, read_events
from symbiont_ecology.events import (
    Event,
    Gated,
    GenerationEnded,
    Learned,
    Proposed,
    Resized,
    Restored,
)
from symbiont_ecology.operators.mutations import Shrink
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.strategies.mechanisms.canaries import PROOF
from symbiont_ecology.weights import AdapterWeights
from toy import LAYOUT, ToyHost, toy_config, toy_runtime

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
PLENTY = Prices(dowry=12_000, grace=30, cap=40_000, lowest=1200, rent=2000)


def config(seed: int = 0, generations: int = 1, **mechanisms: Any) -> RunConfig:
    """One organelle that learns; no other mechanisms than those named."""
    off = dict.fromkeys(("upheaval", "breeding", "thrift"), False)
    strategy = {
        "kind": "ecology",
        "founders": 1,
        "questions": 2,
        "samples": 2,
        "learning_rate": 0.1,
    }
    strategy["mechanisms"] = {**off, "canaries": True, **mechanisms}
    parts = {
        "strategy": strategy,
        "learning_rule": "expert_iteration",
        "allocator": "epsilon_greedy",
    }
    return toy_config(seed, generations, FAMILIES, PLENTY, **parts)


class Life:
    """A run that can be looked at, and meddled with, between two generations."""

    def __init__(self, folder: Path, plan: RunConfig) -> None:
        self.world, self.state = toy_runtime(folder, plan), EcologyState(plan.seed)
        self.path = folder / "events.jsonl"
        self.log = EventLog(self.path)
        found_population(self.state, self.world, self.log)

    def go_on(self, generations: int) -> list[Event]:
        before = self.state.next_seq
        for _ in range(generations):
            run_generation(self.state, self.world, self.log)
        return list(read_events(self.path))[before:]

    def go_on_until(self, kind: type[Event], most: int = 20) -> None:
        """To the end of the first generation in which that happens."""
        assert any(any(isinstance(event, kind) for event in self.go_on(1)) for _ in range(most))

    @property
    def materials(self) -> ApplyContext:
        """What decisions need to be carried out."""
        draw = Draw(0, self.state.generation)
        return ApplyContext(self.state, self.world.store, LAYOUT, PLENTY, draw)

    def damage(self) -> None:
        """Replaces the weights of the only organelle by noise."""
        ((organelle_id, organelle),) = self.state.population.items()
        noise = AdapterWeights.random(
            LAYOUT, organelle.genome.rank, 1.0, np.random.default_rng(1), 1.0
        )
        genome = replace(organelle.genome, weights=self.world.store.put_weights(noise))
        self.state.population[organelle_id] = replace(organelle, genome=genome)


def restored(events: Sequence[Event]) -> list[Restored]:
    return [event for event in events if isinstance(event, Restored)]


def accuracy(events: Sequence[Event], last: int = 5) -> float:
    return float(
        np.mean([event.accuracy for event in events if isinstance(event, GenerationEnded)][-last:])
    )


@pytest.mark.parametrize("seed", range(4))
def test_an_organelle_whose_weights_are_damaged_becomes_what_it_was(
    seed: int, tmp_path: Path
) -> None:
    regained = {}
    for is_watched in (True, False):
        life = Life(tmp_path / str(is_watched), config(seed, canaries=is_watched))
        before = life.go_on(40)
        life.damage()
        after = life.go_on(12)
        regained[is_watched] = accuracy(after) / accuracy(before)
        learned = {event.weights for event in before if isinstance(event, Learned)}
        assert [event.weights in learned for event in restored(after)] == [True] * is_watched
        assert life.state.ledger.total == 0
    assert regained[True] > max(regained[False], 0.9)


def test_who_comes_back_has_its_memory_and_its_cells_again(tmp_path: Path) -> None:
    life = Life(tmp_path, config(merging=True))  # which must leave a former self on probation alone
    life.go_on(40)
    (organelle,) = life.state.population.values()
    former = organelle.former
    assert former is not None
    believed = skill(former.posteriors)
    life.damage()
    life.go_on_until(Restored)
    (organelle,) = life.state.population.values()
    assert organelle.genome.weights == former.weights
    assert organelle.optimizer_state == former.optimizer_state
    assert skill(life.state.posteriors[organelle.id]) == pytest.approx(believed)
    assert {elite.weights for elite in life.state.archive.elites.values()} == {former.weights}


def test_the_healthy_are_left_alone(tmp_path: Path) -> None:
    for seed in range(5):
        start(config(seed, 60), tmp_path / str(seed), host=ToyHost(seed=seed))
        assert not restored(list(read_events(tmp_path / str(seed) / "events.jsonl")))


def test_nobody_is_sent_back_to_what_is_no_longer_right(tmp_path: Path) -> None:
    calm = start(config(generations=60), tmp_path / "calm", host=ToyHost()).state
    flip = Flip(families=FAMILIES[:2], at_flops=calm.spent.flops / 2)
    plan = config(generations=60)
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})
    start(plan, tmp_path / "flip", host=ToyHost())
    events = list(read_events(tmp_path / "flip" / "events.jsonl"))
    suspected = [event for event in events if isinstance(event, Proposed)]
    judged = [event for event in events if isinstance(event, Gated)]
    assert suspected
    assert {event.verdict for event in judged} == {"reject"}
    assert not restored(events)


def test_a_former_self_survives_a_checkpoint_even_on_probation(tmp_path: Path) -> None:
    life = Life(tmp_path, config())
    life.go_on(40)
    life.damage()
    life.go_on_until(Proposed)
    checkpoint.save_state(life.state, tmp_path)
    assert checkpoint.load_state(tmp_path) == life.state
    (child,) = life.state.challengers.values()
    assert child.former is not None
    assert {child.former.weights, child.former.optimizer_state} <= life.state.reachable()


def test_an_upheaval_makes_nobody_suspect(tmp_path: Path) -> None:
    life = Life(tmp_path, config(seed=1))
    life.go_on(40)
    (organelle_id,) = life.state.population
    former = life.state.population[organelle_id].former
    assert former is not None
    assert skill(former.posteriors) > 2  # it has something to lose
    cells = tuple(former.posteriors)[:2]
    apply([Upheaval(cells)], life.materials)
    voided = life.state.population[organelle_id].former
    assert voided is not None
    assert all(
        voided.posteriors[cell] == life.state.posteriors[organelle_id][cell] for cell in cells
    )
    assert not any(isinstance(event, Proposed) for event in life.go_on(3))


def test_who_comes_back_as_the_world_changes_is_not_believed_where_it_changed(
    tmp_path: Path,
) -> None:
    """Both were decided in one generation."""
    life = Life(tmp_path, config())
    life.go_on(40)
    life.damage()
    life.go_on_until(Proposed)
    (child,) = life.state.challengers.values()
    assert child.former is not None
    cells = tuple(child.former.posteriors)[:2]
    (organelle_id,) = life.state.population
    apply([Upheaval(cells), Judge(child, "admit")], life.materials)
    assert {life.state.posteriors[organelle_id][cell] for cell in cells} == {FALLEN}


def test_who_becomes_leaner_does_not_come_back_in_the_same_generation(tmp_path: Path) -> None:
    """Two mechanisms decided it, and neither knew of the other."""
    life = Life(tmp_path, config())
    life.go_on(40)
    life.damage()
    life.go_on_until(Proposed)
    (child,) = life.state.challengers.values()
    (organelle_id,) = life.state.population
    cells, half = child.cells[organelle_id], Shrink(0.5)
    apply([ProposeVariant(organelle_id, cells, half, "shrink", by="thrift")], life.materials)
    variant = life.state.challengers[list(life.state.challengers)[-1]]
    both = [Judge(variant, "admit"), Judge(child, "admit")]
    admitted, resized, rejected = apply(both, life.materials)
    assert isinstance(resized, Resized)
    assert life.state.genome(organelle_id).weights == resized.weights
    verdicts = [event.verdict for event in (admitted, rejected) if isinstance(event, Gated)]
    assert verdicts == ["admit", "reject"]
    assert isinstance(rejected, Gated)
    assert rejected.reason == "its organelle has changed in this generation"
    assert not life.state.challengers


def test_the_proof_of_a_former_self_is_strict_and_no_knob() -> None:
    assert (PROOF.level, PROOF.most) == (0.01, 256)
    with pytest.raises(ConfigError, match="unknown key 'gate'; known keys: none"):
        mechanisms.build({"kind": "canaries", "gate": {"most": 100}})

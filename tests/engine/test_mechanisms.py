"""What upheavals, breeding and merging really do: to weights, beliefs and energy, and to what comes
of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lives import (
    FAMILIES,
    FLIPPED,
    SUM,
    adapter,
    apply,
    config,
    ecology,
    flipping,
    founded,
    generations,
    lived,
    specialist,
)
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.events import (
    Acted,
    Born,
    Gated,
    GenerationEnded,
    Learned,
    Proposed,
    Settled,
    Upheaved,
)
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, cell_name
from symbiont_ecology.ecology import (
    HOST,
    Assignment,
    Birth,
    Gate,
    Genome,
    Merge,
    Organelle,
    Outcome,
    PairedCounts,
    Rollout,
    SuccessPosterior,
    Trial,
)
from symbiont_ecology.run.build import check
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.run.settle import update_posteriors
from symbiont_ecology.run.trial import hold_trial
from toy import toy_prices


def judged(item: Item, organelle_id: str, verdict: float) -> Rollout:
    """A rollout of which only the verdict matters."""
    return Rollout(item, organelle_id, (), np.zeros(0), "", verdict, verdict, Cost())


# Upheavals.


def test_an_upheaval_opens_what_fell_to_pioneers_there_and_back(tmp_path: Path) -> None:
    opened = opened_again = 0
    for seed in range(6):
        plan = flipping(tmp_path / str(seed), 120, seed, questions=4, upheaval=True)
        state, events = lived(tmp_path / str(seed) / "run", plan)
        flip = plan.tasks.flip
        assert flip is not None
        assert flip.back_flops is not None
        ended = [event for event in events if isinstance(event, GenerationEnded)]
        there, back = (
            next(
                event.generation for event in ended if event.train_flops >= 0.98 * flops
            )  # it comes by then
            for flops in (flip.at_flops, flip.back_flops)
        )
        fallen: dict[bool, set[str]] = {
            False: set(),
            True: set(),
        }  # by whether the world had changed back
        came = Counter[tuple[str, bool]]()
        for event in (event for event in events if event.generation > there):
            if isinstance(event, Upheaved):
                fallen[event.generation > back] |= set(event.cells)
            elif isinstance(event, Born):
                came[event.operator, event.generation > back] += 1
        opened += fallen[False] >= FLIPPED and came["pioneer", False] == 1
        opened_again += fallen[True] >= FLIPPED and came["pioneer", True] > 0
        kept = {state.archive.elites[f"{family}/short"].organelle_id for family in FAMILIES[2:]}
        assert all(state.population[organelle_id].born < there for organelle_id in kept)
    assert (
        min(opened, opened_again) >= 4
    )  # one world in three may be slow to notice, or alarmed by chance


def test_no_upheaval_without_a_change(tmp_path: Path) -> None:
    for seed in range(3):
        _, events = lived(tmp_path / str(seed), config(100, seed, upheaval=True))
        assert not any(isinstance(event, Upheaved) for event in events)


# Breeding.


@pytest.mark.parametrize("inheritance", ["lamarckian", "darwinian"])
def test_what_parents_learned_is_handed_down_or_not(inheritance: Any, tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1)])
    learned = world.store.put_weights(adapter(2))
    parent = state.population["o1"]
    genome = Genome(learned, 4, dict(parent.genome.traits))
    state.population["o1"] = Organelle(
        "o1", genome, parent.optimizer_state, (), "founder", 0, inborn=parent.inborn
    )
    exact = operators.build({"kind": "gaussian", "sigma": 0.0})
    (born,) = apply(Birth(("o1",), exact, "gaussian", {}, inheritance=inheritance), state, world)
    assert isinstance(born, Born)
    is_lamarckian = inheritance == "lamarckian"
    assert born.weights == (learned if is_lamarckian else parent.inborn)
    steps = world.store.optimizer_state(state.population[born.id].optimizer_state).step
    assert steps == (3 if is_lamarckian else 0)


@pytest.mark.parametrize("mutation", ["clone", "svd_noise"])
def test_children_differ_from_their_parents_in_learning_rate_and_in_weights_if_told(
    mutation: str, tmp_path: Path
) -> None:
    breeding = {"at": 20_000, "mutation": mutation}
    state, world = founded(
        tmp_path, [adapter(1)], FAMILIES[:1], breeding=breeding, learning_rule="none"
    )
    events = generations(1, state, world, tmp_path / "events.jsonl")
    (born,) = (event for event in events if isinstance(event, Born))
    parent, child = state.population["o1"].genome, state.population[born.id].genome
    old, new = (world.store.weights(one.weights).delta("policy") for one in (parent, child))
    assert (np.linalg.norm(new - old) > 0.01 * np.linalg.norm(old)) == (mutation == "svd_noise")
    assert child.traits["learning_rate"] != parent.traits["learning_rate"]


# Merging.


def test_a_child_that_does_what_both_parents_do_is_admitted_lives_and_takes_over(
    tmp_path: Path,
) -> None:
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
    assert {elite.organelle_id for elite in state.archive.elites.values()} == {born.id}
    assert state.ledger.total == 0


def test_a_child_that_is_no_better_is_rejected_and_leaves_nothing(tmp_path: Path) -> None:
    merging = {"every": 3, "at": 40_000, "questions": 8, "gate": {"most": 60}}
    state, world = founded(
        tmp_path / "run", [adapter(1), adapter(2)], FAMILIES[:2], merging=merging
    )
    events = generations(6, state, world, tmp_path / "events.jsonl")
    gated = [event for event in events if isinstance(event, Gated)]
    assert gated
    assert {event.verdict for event in gated} == {"reject"}
    assert not {event.id for event in gated} & set(state.population)
    assert not {event.id for event in gated} & set(state.ledger.balances)


HOMES: dict[str, tuple[str, ...]] = {"o1": ("math.add/short",), "o2": ("string.sort/short",)}


def merge(operator: Any = "svd") -> Merge:
    return Merge(HOMES, operators.build(operator), "svd", {}, Gate(), 4)


def test_parents_pay_for_a_child_that_is_admitted_and_get_back_what_a_rejected_one_had(
    tmp_path: Path,
) -> None:
    state, world = founded(tmp_path, [adapter(1), adapter(2)])
    dowry, before = world.prices.dowry, dict(state.ledger.balances)
    state.posteriors = {name: {home: SuccessPosterior(8, 2)} for name, (home,) in HOMES.items()}

    def rejected(child: str, merge: Merge) -> Trial:
        assert child in state.population  # so it can be asked
        assert state.ledger.balance(child) == dowry
        return Trial("reject", PairedCounts(1, 2, 3))

    events = apply(merge(), state, world, hold_trial=rejected)
    assert [type(event) for event in events] == [Proposed, Gated]
    assert events[1] == Gated(0, "o3", "reject", 1, 2, 3)
    assert state.ledger.balances == before
    assert set(state.population) == set(HOMES)

    _, _, born = apply(merge(), state, world, hold_trial=lambda *_: Trial("admit"))
    assert isinstance(born, Born)
    paid = {name: before[name] - state.ledger.balances[name] for name in HOMES}
    assert paid == dict.fromkeys(HOMES, dowry // 2)
    assert state.ledger.balance(born.id) == dowry
    own = {home: SuccessPosterior(8, 2) for (home,) in HOMES.values()}
    assert state.posteriors[born.id] == own


def test_every_look_of_the_gate_sees_the_same_mix_of_cells_and_the_world_pays(
    tmp_path: Path,
) -> None:
    merging = {"every": 5, "at": 40_000, "questions": 2}
    state, world = founded(tmp_path, [adapter(1), adapter(2)], FAMILIES[:2], merging=merging)
    events = generations(5, state, world, tmp_path / "events.jsonl")
    flops, asked = Counter[str](), list[Acted]()
    for event in (one for one in events if one.generation == 4):
        if isinstance(event, Acted) and event.purpose == "probation":
            asked.append(event)
        elif isinstance(event, Acted | Learned):
            flops[event.id] += event.flops
        elif isinstance(event, Settled):
            assert event.cost == world.prices.cost(flops[event.id], state.mean_rollout_flops)
    rounds = [asked[start : start + 6] for start in range(0, len(asked), 6)]
    assert len(rounds) >= 3
    mixes = {tuple((one.cell, len(one.items)) for one in look) for look in rounds}
    assert mixes == {tuple((f"{family}/short", 2) for family in FAMILIES[:2] for _ in range(3))}
    assert len({one.items for one in asked}) == 2 * len(rounds)  # each question is new
    spent = [event for event in events if isinstance(event, GenerationEnded)]
    assert spent[-1].train_flops - spent[-2].train_flops >= sum(one.flops for one in asked)


def test_a_trial_ends_where_the_budget_does(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1), adapter(2)], FAMILIES[:2], merging={})
    spent, context = state.spent.flops, world.at(state, 0.0, 400_000.0)
    context.state.population["o3"] = replace(state.population["o1"], id="o3")
    trial = hold_trial("o3", merge(), context)
    assert trial.decision == "reject"
    assert spent <= state.spent.flops <= 400_000


# What is refused, and where everything ends.


@pytest.mark.parametrize(
    ("mechanisms", "said"),
    [
        ({"merging": {"operator": "gaussian"}}, "expected an operator of 2 parents"),
        ({"breeding": {"mutation": "svd"}}, "expected an operator of 1 parent ("),
        ({"mergign": False}, "did you mean 'merging'"),
        ({"thrift": True}, "mechanism 'thrift' is gone"),
        ({"founders": 8}, "founders: expected at most capacity (7), got 8"),
        (
            {"founders": 7, "ranks": 27},
            "strategy.ranks: expected at least 28, host.rank (4) for each of 7",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_runs(
    mechanisms: dict[str, Any], said: str
) -> None:
    plan = config(3)
    knobs = {name: mechanisms.pop(name) for name in ("founders", "ranks") if name in mechanisms}
    strategy = {**ecology(**mechanisms), **knobs}
    with pytest.raises(ConfigError, match=re.escape(said)):
        check(plan.model_copy(update={"strategy": strategy}))


@pytest.mark.parametrize("operator", ["concatenation", SUM, "svd"])
def test_a_merged_child_is_no_larger_than_a_slot(operator: Any, tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1), adapter(2)])
    for name, (home,) in HOMES.items():
        state.posteriors[name] = {home: SuccessPosterior()}
    apply(merge(operator), state, world)
    child = state.population["o3"]
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
    assert {event.id for event in events if isinstance(event, Acted) and event.generation > 2} == {
        HOST
    }


def test_one_lucky_answer_takes_no_cell_from_who_is_known(tmp_path: Path) -> None:
    state, world = founded(tmp_path, [adapter(1), adapter(2)], FAMILIES[:1])
    (cell,) = world.tasks.cells
    items = world.tasks.draw(cell, 1, np.random.default_rng(0))

    def answered(organelle_id: str, right: int, wrong: int) -> None:
        verdicts = (1.0,) * right + (0.0,) * wrong
        rollouts = tuple(judged(items[0], organelle_id, verdict) for verdict in verdicts)
        assignment = Assignment(organelle_id, items, len(verdicts))
        turn = GenerationContext(**vars(world), state=state, draw=Draw(0))
        update_posteriors([Outcome(assignment, rollouts)], [], turn)

    state.posteriors.clear()
    state.archive.elites.clear()
    answered("o1", 18, 12)
    answered("o2", 1, 0)
    assert (
        state.posteriors["o2"][cell_name(cell)].mean > state.posteriors["o1"][cell_name(cell)].mean
    )
    assert state.archive.elites[cell_name(cell)].organelle_id == "o1"
    answered("o2", 18, 2)
    assert state.archive.elites[cell_name(cell)].organelle_id == "o2"

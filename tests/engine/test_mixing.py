"""SepCMA over mixes of experts: candidates are mixes, and weights go where scores are better."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exams import FAMILIES, OF_FULL_RANK, delta, lived, mark, parents, plan, told, turn_of, world_of
from symbiont_ecology.ecology import Organelle
from symbiont_ecology.ecology.state import EcologyState, load_state
from symbiont_ecology.engine.build import check
from symbiont_ecology.engine.generation import execute
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.errors import MissingExtraError
from symbiont_ecology.events import Born, Scored
from symbiont_ecology.operators import Parent
from symbiont_ecology.operators.means import GroupedCombination
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.weights import AdapterLayout, AdapterWeights

MIXING = {"kind": "mixing", "population": 3, "offspring": 6}


def weights_of(one: Born | Organelle) -> list[float]:
    """Those of a mix, by expert; none for an expert."""
    traits = one.traits if isinstance(one, Born) else one.genome.traits
    return [value for name, value in traits.items() if re.fullmatch(r"w\d+", name)]


def searched(
    folder: Path, target: Sequence[float], rounds: int, **knobs: Any
) -> tuple[EcologyState, Runtime, list[Born]]:
    """Mixes that score the better the nearer their weights are to the target; who was born."""
    state, world = world_of(folder, plan(**{**MIXING, **knobs}), OF_FULL_RANK)
    born = list[Born]()
    for _ in range(rounds):
        everyone = state.population.values()
        mixes = [own for one in everyone if (own := weights_of(one))]
        scores = [0.0] * 3 + [1 - float(np.square(np.subtract(own, target)).sum()) for own in mixes]
        mark(state, world, [dict.fromkeys(FAMILIES, score) for score in scores])
        turn = turn_of(state, world)
        events = execute(world.strategy.tell(turn.strategy_context), turn)
        born += [event for event in events if isinstance(event, Born)]
        state.generation += 1
    return state, world, born


def test_a_mix_is_the_sum_of_the_experts_with_its_weights(tmp_path: Path) -> None:
    state, world, born = searched(tmp_path, (0.5, 0.5, 0.5), 1)
    experts = [delta(state, world, name) for name in ("o1", "o2", "o3")]
    assert [event.parents for event in born] == [("o1", "o2", "o3")] * 6
    assert len({tuple(weights_of(event)) for event in born}) == 6
    for event in born:
        expected = np.tensordot(weights_of(event), experts, axes=1)
        np.testing.assert_allclose(delta(state, world, event.id), expected, atol=1e-5)


def test_weights_go_where_scores_are_better(tmp_path: Path) -> None:
    target = (1.4, -0.3, 0.1)
    _, _, born = searched(tmp_path, target, 40)
    first, last = (
        np.mean([weights_of(one) for one in born[at][:6]], axis=0)
        for at in (slice(0, 6), slice(-6, None))
    )
    assert np.linalg.norm(first - target) > 0.8
    np.testing.assert_allclose(last, target, atol=0.05)


def test_the_experts_and_the_best_mix_of_all_stay(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", plan(12, **MIXING))
    mixes = {event.id for event in events if isinstance(event, Born) and event.parents}
    scores = {e.id: e.score for e in events if isinstance(e, Scored) and e.id in mixes}
    assert len(scores) == 6 * 11
    living = load_state(tmp_path / "run").population
    assert set(living) > {"o1", "o2", "o3"}
    (best,) = [one for one in living.values() if one.id in mixes and one.score is not None]
    assert best.score == max(scores.values())
    assert len(living) == 3 + 1 + 6


def test_a_lost_expert_is_founded_anew_and_lost_mixes_count_as_bad(tmp_path: Path) -> None:
    state, world, born = searched(tmp_path, (0.5, 0.5, 0.5), 3)
    for name in ("o2", born[-1].id):
        del state.population[name]
    mark(state, world, [{FAMILIES[0]: 1.0}] * len(state.population))
    turn = turn_of(state, world)
    (expert,) = [one.id for one in execute(told(state, world), turn) if isinstance(one, Born)]
    assert state.population[expert].genome.traits[NICHE] == 1.0
    state.generation += 1
    mark(state, world, [{FAMILIES[0]: 1.0}] * len(state.population))
    assert parents(told(state, world)) == [("o1", expert, "o3")] * 6


def test_groups_of_layers_have_weights_of_their_own() -> None:
    names = [f"model.layers.{layer}.{part}" for layer in range(4) for part in ("up", "down")]
    layout = AdapterLayout(tuple((name, 3, 3) for name in names))
    one, other = (
        AdapterWeights.random(layout, 3, 1.0, np.random.default_rng(seed), b_std=0.5)
        for seed in (1, 2)
    )
    shares = ((2.0, 0.0), (0.5, -1.0))
    twins = [Parent(**vars(adapter)) for adapter in (one, other)]
    mix = GroupedCombination(shares)(twins, np.random.default_rng(0))
    for place, name in enumerate(names):
        mine, others = shares[place // 4]
        expected = mine * one.delta(name) + others * other.delta(name)
        np.testing.assert_allclose(mix.delta(name), expected, atol=1e-5)


def test_mixing_without_its_package_is_refused_before_a_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(MissingExtraError, match=r"cmaes: pip install 'symbiont-ecology\[tuning"):
        check(plan(**MIXING))

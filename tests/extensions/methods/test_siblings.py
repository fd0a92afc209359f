"""The presets of the sibling methods: what was published, and what is corrected."""

from __future__ import annotations

from typing import Any

import pytest

from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.extensions.methods.genetic import Genetic
from symbiont_ecology.extensions.methods.hyper import LARGE, LARGE_WORTH, Hyper
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import load_config

NAMES = ["loralab", "ga-gpt2", "es-countdown", "es-conciseness"]


def strategy_of(preset: str) -> Any:
    config = load_config(preset)
    check(config)
    return strategies.build(config.strategy)


@pytest.mark.parametrize("name", NAMES)
def test_both_presets_are_of_one_strategy_and_differ(name: str) -> None:
    corrected, faithful = strategy_of(name), strategy_of(f"faithful/{name}")
    assert type(corrected) is type(faithful)
    assert corrected != faithful


def test_the_published_numbers_of_hyper() -> None:
    one = strategy_of("faithful/loralab")
    assert isinstance(one, Hyper)
    assert (one.population, one.elite, one.mutation, one.crossover) == (6, 2, 0.3, 0.2)
    assert one.ranks == (16, 32, 64, 128, 256)
    assert one.alphas == (1, 2, 3)
    assert one.dropouts == (0.05, 0.1, 0.15)
    assert (min(one.learning_rates), max(one.learning_rates)) == (1e-5, 2e-4)
    assert (LARGE, LARGE_WORTH) == (128, 0.95)
    lives = load_config("faithful/loralab").run.generations / (one.steps + 1)
    assert lives == 10


def test_the_published_numbers_of_the_genetic_algorithm() -> None:
    one = strategy_of("faithful/ga-gpt2")
    assert isinstance(one, Genetic)
    assert (one.population, one.elite, one.crossover, one.b_std) == (6, 2, "elementwise", 0.01)
    assert one.mutation == {"kind": "gaussian", "sigma": 0.02, "is_absolute": True}
    assert load_config("faithful/ga-gpt2").run.generations == 5
    assert load_config("faithful/ga-gpt2").host.rank == 8


@pytest.mark.parametrize("name", ["faithful/es-countdown", "faithful/es-conciseness"])
def test_the_published_numbers_of_evolution_strategies(name: str) -> None:
    one = strategy_of(name)
    assert (one.population, one.step, one.shaping) == (30, 0.5, "z_score")
    assert not one.is_mirrored
    assert one.aging == 0


def test_rewards_are_those_of_the_papers() -> None:
    assert load_config("es-countdown").reward == "countdown"
    assert load_config("es-conciseness").reward == "conciseness"
    assert strategy_of("faithful/es-conciseness").questions == 2

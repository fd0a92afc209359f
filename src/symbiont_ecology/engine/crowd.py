"""How many live and how much they are asked, as far as a config says it."""

from __future__ import annotations

from symbiont_ecology.config import RunConfig
from symbiont_ecology.strategies import Strategy, strategies
from symbiont_ecology.tasks.mixture import TaskMixture

CROWDS = ("capacity", "population", "organelles", "founders")
"""Knobs of strategies that say how many live at most, the first that there is."""


def most_living(strategy: Strategy, tasks: TaskMixture) -> int:
    """Organelles that live at most; one for each habitat, where a strategy without such a knob can
    do nothing but serve habitats."""
    known = [getattr(strategy, name) for name in CROWDS if hasattr(strategy, name)]
    if not known and strategy.needs_habitats and tasks.habitats is not None:
        return len(tasks.habitats.names)
    return int(known[0]) if known else 1


def questions_asked(config: RunConfig, tasks: TaskMixture) -> float:
    """Questions of a generation, at most. Who compares rewards asks everyone the same, except in a
    world of habitats."""
    world, strategy = config.tasks.habitats, strategies.build(config.strategy)
    if world is not None:
        return world.questions
    askers = most_living(strategy, tasks) if strategy.compares_rewards else 1
    return strategy.questions * len(tasks.cells) * askers

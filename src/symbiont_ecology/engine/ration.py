"""The end of a run that may spend so many FLOPs: its last generations ask no more than what is left pays for.

Arms whose generations differ in size then stop within a percent of one budget, and can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import EcologyState, Trial
from symbiont_ecology.engine.world import World
from symbiont_ecology.rng import Draw

LESSON = 3
"""Rollouts of the bare host that a lesson costs about as much as."""
ENOUGH = 0.99
"""Part of a budget that counts as all of it: what is left would pay for a few answers."""


def is_spent(amount: int, budget: float | None) -> bool:
    """Whether a run has had its FLOPs, or its tokens."""
    return budget is not None and amount >= ENOUGH * budget


def within_budget(trials: Sequence[Trial], state: EcologyState, world: World, draw: Draw) -> Sequence[Trial]:
    """All trials while there is plenty; else as many questions as can be paid for, by draw, at least one."""
    if world.train_flops is None:
        return trials
    widest = max((organelle.genome.rank for organelle in state.population.values()), default=0)
    added = world.lora_parameters(widest) / (world.host.shape.layers * world.host.shape.linear_parameters)
    one = state.mean_rollout_flops * (1 + LESSON) * (1 + added)
    left = (world.train_flops - state.budget.train.flops) / one
    if sum(len(trial.items) * max(trial.samples, 1) for trial in trials) <= left:
        return trials
    questions = [(place, index) for place, trial in enumerate(trials) for index in range(len(trial.items))]
    kept: dict[int, list[int]] = defaultdict(list)
    samples = [trial.samples for trial in trials]
    for number in draw("ration").permutation(len(questions)):
        place, index = questions[number]
        if not kept:  # there is always one question, though it may be asked less often
            samples[place] = min(samples[place], max(int(left), 1))
        left -= max(samples[place], 1)
        if kept and left < 0:
            break
        kept[place].append(index)
    return [
        replace(
            trial, items=tuple(trial.items[index] for index in sorted(kept[place])), samples=samples[place]
        )
        for place, trial in enumerate(trials)
        if place in kept
    ]

"""Where a run ends, or the world changes: a generation asks no more than what is left until then pays for.

Arms whose generations differ in size then stop at one budget, and meet a change of the world at one moment,
to within a rollout and its lesson. What a question takes is known from the run itself (``state.effort``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import EcologyState, Trial, cell_name
from symbiont_ecology.economics import ROLLOUT_WITH_LESSON
from symbiont_ecology.engine.world import World
from symbiont_ecology.rng import Draw


def slack(state: EcologyState) -> float:
    """FLOPs that pay for no question any more: what is left of a budget when it counts as spent."""
    return min(state.effort.values(), default=ROLLOUT_WITH_LESSON * state.mean_rollout_flops)


def within_budget(trials: Sequence[Trial], state: EcologyState, world: World, draw: Draw) -> Sequence[Trial]:
    """All trials while there is plenty; else the questions that can be paid for, by draw, at least one."""
    spent = state.budget.train.flops
    left = world.next_moment(spent + slack(state)) - spent
    usual = ROLLOUT_WITH_LESSON * state.mean_rollout_flops
    efforts = [state.effort.get(cell_name(trial.cell), usual) for trial in trials]
    costs = [effort * max(trial.samples, 1) for effort, trial in zip(efforts, trials, strict=True)]
    if sum(cost * len(trial.items) for cost, trial in zip(costs, trials, strict=True)) <= left:
        return trials
    kept: dict[int, list[int]] = defaultdict(list)
    questions = [(place, index) for place, trial in enumerate(trials) for index in range(len(trial.items))]
    for number in draw("ration").permutation(len(questions)):
        place, index = questions[number]
        if costs[place] <= left:
            left -= costs[place]
            kept[place].append(index)
    samples = [trial.samples for trial in trials]
    if not kept:  # the cheapest, asked as often as it can be paid for
        place = min(range(len(trials)), key=lambda place: efforts[place])
        samples[place] = min(samples[place], max(int(left // efforts[place]), 1))
        kept[place].append(0)
    return [
        replace(
            trial, items=tuple(trial.items[index] for index in sorted(kept[place])), samples=samples[place]
        )
        for place, trial in enumerate(trials)
        if place in kept
    ]

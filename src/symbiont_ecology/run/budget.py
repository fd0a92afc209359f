"""Ends of a run and changes of its world: a generation asks and learns no more than what is left
pays for.

Arms whose generations differ in size then stop at one budget, and meet a change of the world at one
moment. What a question will take is estimated, from the run itself (``state.effort``). What a
lesson takes is known before it is learned. So the questions that seem too many are left out, and
then the lessons that are.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

from symbiont_ecology.base.fence import as_list
from symbiont_ecology.base.flops import ROLLOUT_WITH_LESSON
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, cell_name
from symbiont_ecology.ecology import HOST, Assignment, EcologyState
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import GenerationContext

NEAR = 0.01
"""Part of the way to a milestone that may stay unspent: a generation of two questions would teach
noise."""


def milestones(config: RunConfig) -> tuple[float, ...]:
    """Return training FLOPs at which the world changes or the run ends, rising."""
    flip, moments = config.tasks.flip, [config.run.train_flops, *config.tasks.arrivals]
    if flip:
        moments += [flip.at_flops, flip.back_flops]
    return tuple(sorted({moment for moment in moments if moment and moment < math.inf}))


def budget_phase(state: EcologyState, milestones: Sequence[float]) -> tuple[float, float]:
    """Return the last milestone that counts as reached (0 at first), and the next one (infinite
    beyond the last).

    A milestone is reached when what is left pays for no question any more, or is next to nothing.
    """
    spent, reached = state.spent.flops, 0.0
    least = min(state.effort.values(), default=ROLLOUT_WITH_LESSON * state.mean_rollout_flops)
    for milestone in milestones:
        if spent + max(least, NEAR * (milestone - reached)) < milestone:
            return reached, milestone
        reached = milestone
    return reached, math.inf


def is_complete(config: RunConfig, state: EcologyState, seconds: float = 0.0) -> bool:
    """Return True if a run has had its generations or spent its budget, the time on the clock
    included."""
    loop, (reached, _) = config.run, budget_phase(state, milestones(config))
    return (
        state.generation >= loop.generations
        or (loop.train_flops is not None and reached >= loop.train_flops)
        or (loop.train_seconds is not None and seconds >= loop.train_seconds)
        or (loop.train_tokens is not None and state.spent.tokens >= loop.train_tokens)
    )


def affordable_assignments(
    assignments: Iterable[Assignment], context: GenerationContext
) -> Sequence[Assignment]:
    """Return all assignments while there is plenty; else as many questions as can be paid for, by
    draw.

    At least one question is left.

    Raises:
        RunError: the strategy asked for something else.
    """
    assignments = as_list(strategies.called(context.strategy), assignments, Assignment)
    left = context.until - context.state.spent.flops
    efforts = [_effort(assignment, context) for assignment in assignments]
    questions = [(place, item) for place, a in enumerate(assignments) for item in a.items]
    costs = [efforts[place] * max(assignments[place].samples, 1) for place, _ in questions]
    chosen = affordable(costs, left, context.draw, "ration")
    if len(chosen) == len(questions):
        return assignments
    if not chosen:  # the cheapest, asked as often as it can be paid for
        effort, cheapest = min(zip(efforts, assignments, strict=True), key=itemgetter(0))
        samples = min(cheapest.samples, max(int(left // effort), 1))
        return [replace(cheapest, items=cheapest.items[:1], samples=samples)]
    items_of: dict[int, list[Item]] = defaultdict(list)
    for place, item in (questions[number] for number in chosen):
        items_of[place].append(item)
    return [replace(assignments[place], items=tuple(items)) for place, items in items_of.items()]


def affordable(costs: Sequence[float], left: float, draw: Draw, name: str) -> list[int]:
    """Return the places of those things that what is left pays for: all of them, or a draw of that
    name, in their own order."""
    if sum(costs) <= left:
        return list(range(len(costs)))
    chosen = []
    for number in draw(name).permutation(len(costs)):
        if costs[number] <= left:
            left -= costs[number]
            chosen.append(int(number))
    return sorted(chosen)


def _effort(assignment: Assignment, context: GenerationContext) -> float:
    """Return the FLOPs of a rollout with its lesson: what they were in the cell, or what is usual
    at the rank of who is asked."""
    state, host = context.state, context.host
    if (effort := state.effort.get(cell_name(assignment.cell))) is not None:
        return effort
    name = assignment.organelle_id
    parameters = 0 if name == HOST else host.layout.size(state.genome(name).rank)
    usual = ROLLOUT_WITH_LESSON * state.mean_rollout_flops
    return usual * (1 + parameters / (host.shape.layers * host.shape.linear_parameters))

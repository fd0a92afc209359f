"""CoRP: what rewarded perturbations have in common becomes one change, if held-out questions agree.

Zhang et al. 2026 (arXiv:2605.31494): noise is put on the adapter many times, and what the best
members earned weighs their noise in one candidate, a child of it. Both answer training questions
that no member was ever asked. Only a candidate that wins a paired test takes the adapter's place.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Ascend, Assignment, Decision, Found, Retire
from symbiont_ecology.ecology.gate import OpenShare
from symbiont_ecology.statistics import evidence
from symbiont_ecology.strategies import StrategyContext, assignments, strategies
from symbiont_ecology.strategies.evolution_strategies import EvolutionStrategies
from symbiont_ecology.strategies.exams import rewards_of_exam
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Item

GATE_PART = 4
"""One question of so many is for the gate alone; its hash decides."""


@strategies.register("corp")
@dataclass(frozen=True)
class Corp(EvolutionStrategies):
    """Rewarded perturbations with a gate. A generation of noise and one at the gate take turns.

    Unlike in the paper, noise is not weighed by how compatible it is with the common direction, for
    noise of different seeds is nearly at right angles. ``best: 1`` tries the best member as it is.
    """

    population: PositiveInt = 32  # members of a generation
    noise: PositiveFloat = 0.4  # ‖noise on ΔW‖ ÷ ‖W‖ of every module
    step: PositiveFloat = 1.5  # step of a candidate, in units of the noise
    questions: PositiveFloat = 16  # per cell and generation of noise, on average
    best: PositiveInt = 4  # members whose noise makes a candidate
    gate: PositiveInt = 48  # held-out questions per cell
    level: OpenShare = 0.4  # chance that a candidate without merit is accepted, at most
    fits_habitats: ClassVar[bool] = False  # its gate asks two the same

    def max_rows(self, tasks: TaskMixture) -> int:
        """The questions of all members, or those of the gate to two."""
        return max(super().max_rows(tasks), 2 * self.gate * len(tasks.cells))

    def items(self, context: StrategyContext) -> tuple[Item, ...]:
        """Questions for members: none of the gate."""
        return tuple(item for item in super().items(context) if not is_for_gate(item))

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """All questions to every member; or those of the gate to the adapter and its candidate."""
        living, draw, tasks = context.state.population, context.draw, context.tasks
        if len(living) < 2:
            return super().ask(context)
        count = GATE_PART * self.gate
        pools = [tasks.draw(cell, count, draw("gate", *cell)) for cell in tasks.cells]
        unique = [{item.id: item for item in items if is_for_gate(item)} for items in pools]
        questions = [item for items in unique for item in list(items.values())[: self.gate]]
        takers = [(name, item) for name in living for item in questions]
        return [replace(assignment, is_exam=True) for assignment in assignments(takers, 1)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """A candidate; or the one of two that goes on."""
        decisions, living = super().tell(context), list(context.state.population)
        if len(living) > 1:
            (adapter, candidate), earned = living[:2], rewards_of_exam(context)
            old, new = earned.get(adapter, {}), earned.get(candidate, {})
            signs = Counter(np.sign(new[item] - old[item]) for item in old if item in new)
            is_better = evidence(signs[1], signs[0], signs[-1]) >= 1 / self.level
            return [Retire(adapter, "replaced") if is_better else Retire(candidate, "refused")]
        steps = [decision for decision in decisions if isinstance(decision, Ascend)]
        return self._candidate(steps[0], context) if steps else decisions

    def _candidate(self, step: Ascend, context: StrategyContext) -> list[Decision]:
        """A child that goes along the noise of the best; nobody where all earned the same."""
        ranked = sorted((pair for pair in step.worth if pair[1] > 0), key=lambda pair: -pair[1])
        if not (best := ranked[: self.best]):
            return []
        mean, ids = fmean(worth for _, worth in best), (step.organelle_id,)
        weighed = [(noise, worth / mean) for noise, worth in best]
        genome = context.state.population[step.organelle_id].genome
        child = Found(genome.traits, genome.rank, genome.weights, operator="candidate", parents=ids)
        return [child, replace(step, organelle_id=context.state.coming_id, worth=weighed)]


def is_for_gate(item: Item) -> bool:
    """Whether a training question is for the gate."""
    return zlib.crc32(f"{item.family}{item.question}".encode()) % GATE_PART == 0

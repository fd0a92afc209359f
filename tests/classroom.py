"""Three organelles that may learn, a host that writes down what it is to learn, and a rule that
tells what it saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lives import adapter, founded
from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item, LearningBatch, LearningStatistics
from symbiont_ecology.ecology import Assignment, Outcome, Rollout
from symbiont_ecology.ecology.learning import Experience, LearningRule, Targets, WeightedTarget
from symbiont_ecology.run.learn import Update
from symbiont_ecology.run.runtime import GenerationContext
from toy import LAYOUT, ToyHost

States = Mapping[int, OptimizerState]


@dataclass
class Scribe(ToyHost):
    """A toy that writes down what it is to learn. ``broken`` says of a slot which number of its
    own is not finite: its loss, its norm, or its weights; ``sick`` slots it notices itself."""

    slots: int = 2
    batches: list[LearningBatch] = field(default_factory=list)
    given: list[tuple[Mapping[int, AdapterWeights], States]] = field(default_factory=list)
    broken: Mapping[int, str] = field(default_factory=dict)
    sick: tuple[int, ...] = ()

    def learn(
        self, batch: LearningBatch, weights: Mapping[int, AdapterWeights], optimizer_state: States
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        """Weights become half of what they were, and everybody is a step older."""
        self.batches.append(batch)
        self.given.append((dict(weights), dict(optimizer_state)))
        new = {slot: replace(one, vector=0.5 * one.vector) for slot, one in weights.items()}
        states = {slot: replace(one, step=one.step + 1) for slot, one in optimizer_state.items()}
        told = {name: {slot: 0.5 + slot for slot in weights} for name in ("loss", "norm")}
        for slot, what in self.broken.items():
            if what == "weights":
                vector = new[slot].vector.copy()
                vector[-1] = np.inf
                new[slot] = replace(new[slot], vector=vector)
            else:
                told[what][slot] = math.nan
        tokens = {slot: 100 + slot for slot in weights}
        return new, states, LearningStatistics(told["loss"], told["norm"], tokens, self.sick)


@dataclass(frozen=True)
class Told(LearningRule):
    """Imitates every rollout with weights by its verdict, keeps a note, and remembers what it
    saw."""

    estimator: Any = None
    replay: float = 0.0
    is_absent: bool = False
    seen: list[Experience] = field(default_factory=list)

    def targets(self, experience: Experience) -> Targets:
        """Everything."""
        self.seen.append(experience)
        if self.is_absent:
            raise ValueError("not today")
        rollouts = [one for outcome in experience.outcomes for one in outcome.rollouts]
        targets = [WeightedTarget.of(rollout, 2 * rollout.verdict - 1) for rollout in rollouts]
        targets += [WeightedTarget(one.item, one.token_ids, 3.0) for one in experience.remembered]
        return targets, {**experience.notes, "met": float(len(rollouts))}


@dataclass(frozen=True)
class Golden(Told):
    """The same, and sees gold."""

    sees_gold: ClassVar[bool] = True


@dataclass(frozen=True)
class Comparing(Told):
    """The same, and compares with the host."""

    needs_host_log_probabilities: ClassVar[bool] = True


@dataclass
class Class:
    """A turn in which three organelles, of ranks 2, 3 and 4, may learn."""

    turn: GenerationContext
    host: Scribe
    rule: Told

    @property
    def weights(self) -> dict[str, AdapterWeights]:
        living, store = self.turn.state.population.items(), self.turn.store
        return {name: store.weights(one.genome.weights) for name, one in living}

    def items(self, count: int, cell: int = 0) -> tuple[Item, ...]:
        return self.turn.tasks.draw(self.turn.tasks.cells[cell], count, np.random.default_rng(3))

    def outcome(self, who: str, verdicts: Sequence[float], cell: int = 0, **facts: Any) -> Outcome:
        """Each question is answered once, rightly said in two tokens."""
        items = self.items(len(verdicts), cell)
        answers = [answer(item, who, one) for item, one in zip(items, verdicts, strict=True)]
        return Outcome(Assignment(who, items, **facts), tuple(answers))

    def learner(self, name: str, **traits: float) -> None:
        """Gives an organelle other traits."""
        one = self.turn.state.population[name]
        genome = replace(one.genome, traits=traits)
        self.turn.state.population[name] = replace(one, genome=genome)

    def flops(self, name: str, rollout: Rollout) -> int:
        """Of a lesson, forward and backward."""
        lora = LAYOUT.size(self.weights[name].rank)
        read = len(rollout.item.prompt) + 1
        return self.host.shape.learning_flops(lora, read, len(rollout.token_ids))


def answer(item: Item, who: str, verdict: float) -> Rollout:
    tokens = (*map(ord, item.answer), 1)
    cost = Cost(len(item.prompt) + 1, len(tokens), rows=1, flops=9)
    return Rollout(item, who, tokens, np.zeros(len(tokens)), item.answer, verdict, verdict, cost)


def school(folder: Path, rule: Told | None = None, **host: Any) -> Class:
    adapters = [adapter(seed, rank) for seed, rank in ((1, 2), (2, 3), (3, 4))]
    state, world = founded(folder, adapters, ("math.add", "string.sort"))
    rule, scribe = rule or Told(), Scribe(**host)
    turn = replace(world, host=scribe, learning_rule=rule).at(state, 0.0, math.inf)
    return Class(turn, scribe, rule)


def by_name(updates: Sequence[Update]) -> dict[str, Update]:
    return {update.learned.id: update for update in updates}

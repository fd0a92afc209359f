"""Evolution of the hyper-parameters of LoRA trainings: a life is a training, and an exam its end.

A variant is a rank, an alpha, a dropout, a learning rate and the modules that are adapted. All
variants of a generation train side by side on the same examples, and then sit the same exam. The
best stay with what they learned and earned. The others make room for variants of them, which start
from the host again: what is inherited is how to learn (Baldwin 1896; truncation selection).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Share
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import BlobRef, Item, OrganelleId
from symbiont_ecology.ecology import DROPOUT, Assignment, Decision, Found, Organelle, Retire
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.learning import LearningRule
from symbiont_ecology.ecology.strategies import Strategy, StrategyContext, assignments, strategies
from symbiont_ecology.extensions.methods.exams import Score, rewards_of_exam, scores_with
from symbiont_ecology.tasks.mixture import TaskMixture

Genes = dict[str, float]
RANK, ALPHA, RATE, TARGETS = "rank", "alpha", "learning_rate", "targets"
"""Genes beside dropout. Alpha is in ranks; targets is a place among ``MODULES``."""
MODULES: dict[str, tuple[str, ...] | None] = {
    "all": None,
    "q and v": ("q_proj", "v_proj"),
    "attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
"""Which modules may be adapted, by the ends of their names: all, two or four of attention, or the
feed-forward ones."""
FACTORS = (0.5, 0.8, 1.25, 2.0)
"""By what a mutation multiplies the learning rate."""
TRIES = 50
"""Children that are drawn until one is unlike all others."""
LARGE, LARGE_WORTH = 128, 0.95
"""The rank above which a variant is worth less, and how much."""


@dataclass(frozen=True)
class FoundVariant(Found):
    """An adapter to be trained. ``alpha`` is LoRA's: ΔW is B·A times alpha ÷ rank. Modules whose
    names end with none of ``targets`` stay as the host has them; None adapts all."""

    alpha: float = 1.0
    targets: tuple[str, ...] | None = None

    def first_weights(
        self, organelle_id: OrganelleId, context: ApplyContext
    ) -> tuple[BlobRef, int]:
        generator, scaling = context.draw("found", organelle_id), self.alpha / self.rank
        weights = AdapterWeights.random(context.layout, self.rank, scaling, generator)
        if self.targets is not None:
            vector = weights.vector.copy()
            for name, a, b, _, _ in context.layout.blocks(self.rank):
                if not name.endswith(self.targets):
                    vector[a] = vector[b] = 0.0  # no gradient reaches it: it never learns
            weights = replace(weights, vector=vector)
        return context.store.put_weights(weights), self.rank


@strategies.register("hyper")
@dataclass(frozen=True)
class Hyper(Strategy):
    """Variants of a training. Pair it with ``learning_rule: supervised``.

    Fitness is .7 · accuracy + .3 ÷ (1 + perplexity of the reference answers). Where the world
    changes, whoever is through sits the exam again, with its new questions.
    """

    population: PositiveInt = 6  # variants alive
    elite: PositiveInt = 2  # how many of them stay
    mutation: Share = 0.3  # chance of each gene to change in a child of one parent
    crossover: Share = 0.2  # chance that a child has two parents
    train_size: PositiveInt = 64  # examples of a training, over all cells
    eval_size: PositiveInt = 32  # questions of the exam, over all cells
    batch: PositiveInt = 8  # examples of a step
    epochs: PositiveInt = 1  # passes over the examples
    ranks: tuple[PositiveInt, ...] = (1, 2, 4, 8)  # that a variant may have, rising
    alphas: tuple[PositiveFloat, ...] = (1.0, 2.0, 3.0)  # LoRA's alpha, in ranks
    dropouts: tuple[Share, ...] = (0.0, 0.05, 0.1)  # shares of inputs left out while learning
    learning_rates: tuple[PositiveFloat, ...] = (0.001, 0.002, 0.005, 0.01)  # Adam's, rising
    targets: tuple[NonNegativeInt, ...] = (0, 1, 2, 3)  # modules: all, q and v, attention, mlp

    samples = 0

    def __post_init__(self) -> None:
        if self.elite >= self.population:
            raise ConfigError(
                f"strategy.elite: expected less than strategy.population ({self.population}), "
                f"which leaves room for variants, got {self.elite}"
            )
        if unknown := [place for place in self.targets if place >= len(MODULES)]:
            raise ConfigError(
                f"strategy.targets: expected numbers below {len(MODULES)}, got {unknown[0]}"
            )

    def check(self, rank: int, rule: LearningRule) -> None:
        super().check(rank, rule)
        if max(self.ranks) > rank:
            raise ConfigError(
                f"strategy.ranks: expected at most host.rank ({rank}), got {max(self.ranks)}"
            )

    def max_rows(self, tasks: TaskMixture) -> int:
        return self.population * max(self.eval_size, self.batch)

    def found(self, context: StrategyContext) -> list[Decision]:
        draws = [context.draw("variant", number) for number in range(self.population)]
        return [self.variant(self._drawn(generator), "founder") for generator in draws]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        learners, takers, exam = dict[str, int](), list[str](), self._exam(context)
        for organelle in context.state.population.values():
            # Founders are there before the first generation, children come at the end of one.
            step = context.state.generation - organelle.born - (organelle.born > 0)
            if step < self.steps:
                learners[organelle.id] = step
            elif not Score.of(organelle).is_about(exam):
                takers.append(organelle.id)
        batches = {step: self._batch(step, context) for step in set(learners.values())}
        lessons = [(name, item) for name, step in learners.items() for item in batches[step]]
        exams = assignments([(name, item) for name in takers for item in exam], 1)
        readings = assignments([(name, item.to_read) for name in takers for item in exam], 1)
        return [
            *assignments(lessons, 0),
            *(replace(assignment, is_exam=True) for assignment in exams),
            *(replace(assignment, purpose="probe") for assignment in readings),
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        state = context.state
        if not state.population:
            return self.found(context)
        marks, exam = rewards_of_exam(context), self._exam(context)
        earned = {name: Score(name, one, marks[name]) for name, one in _fitness(context).items()}
        scores = {
            name: one.score
            for name, one in scores_with(earned, context).items()
            if one.score is not None and one.is_about(exam)
        }
        is_over = earned and len(scores) == len(state.population)
        return [*earned.values(), *(self.next_life(scores, context) if is_over else [])]

    def next_life(
        self, scores: Mapping[OrganelleId, float], context: StrategyContext
    ) -> list[Decision]:
        """Let the worst leave, and variants of the best come. ``scores`` are of everyone alive."""
        living = context.state.population
        order = sorted(scores, key=lambda name: -scores[name])
        decisions: list[Decision] = [Retire(name, "eliminated") for name in order[self.elite :]]
        parents = [living[name] for name in order[: self.elite]]
        taken = [o.genome.traits for o in living.values()]
        for number in range(self.population - len(parents)):
            child = self._new_child(parents, taken, context.draw("variant", number))
            taken.append(child.traits)
            decisions.append(child)
        return decisions

    @property
    def steps(self) -> int:
        """Number of steps of a training, which are generations of the engine."""
        return self.epochs * -(-self.train_size // self.batch)

    def _new_child(
        self, parents: Sequence[Organelle], taken: Sequence[Genes], generator: Generator
    ) -> Found:
        """Draw a child that nobody of its generation, or of the one before, is like, if one is
        found: an equal training would say nothing new."""
        child = self._child(parents, generator)
        for _ in range(TRIES):
            if child.traits not in taken:
                break
            child = self._child(parents, generator)
        return child

    def _child(self, parents: Sequence[Organelle], generator: Generator) -> Found:
        """Draw a variant of one parent, or a cross of two."""
        order = generator.permutation(len(parents))
        first, second = parents[order[0]], parents[order[-1]]
        if first is second or generator.random() >= self.crossover:
            genes = self._mutated(first.genome.traits, generator)
            return self.variant(genes, "mutation", (first.id,))
        mixed = {
            name: (first, second)[int(generator.integers(2))].genome.traits[name]
            for name in first.genome.traits
        }
        return self.variant(mixed, "crossover", (first.id, second.id))

    def variant(self, genes: Genes, operator: str, parents: tuple[str, ...] = ()) -> Found:
        """Return an adapter to be trained as the genes say."""
        rank = int(genes[RANK])
        return FoundVariant(
            genes,
            rank,
            operator=operator,
            alpha=genes[ALPHA] * rank,
            targets=list(MODULES.values())[int(genes[TARGETS])],
            parents=parents,
        )

    def _drawn(self, generator: Generator) -> Genes:
        return {name: _one_of(values, generator) for name, values in self.space.items()}

    def _mutated(self, genes: Genes, generator: Generator) -> Genes:
        """Change each gene with its chance: a rank to its neighbour, a learning rate by a factor,
        or all of them to anything."""
        changed = dict(genes)
        for name, values in self.space.items():
            if generator.random() >= self.mutation:
                continue
            changed[name] = _one_of(values, generator)
            is_near = generator.random() < 0.5
            if name == RANK and is_near:
                place = self.ranks.index(int(genes[RANK])) + (1 if generator.random() < 0.5 else -1)
                changed[name] = float(self.ranks[min(max(place, 0), len(self.ranks) - 1)])
            elif name == RATE and is_near:
                rate = genes[RATE] * _one_of(FACTORS, generator)
                changed[name] = float(np.clip(rate, min(values), max(values)))
        return changed

    @property
    def space(self) -> dict[str, Sequence[float]]:
        """Values that each gene may have."""
        return {
            RANK: self.ranks,
            ALPHA: self.alphas,
            DROPOUT: self.dropouts,
            RATE: self.learning_rates,
            TARGETS: self.targets,
        }

    def _exam(self, context: StrategyContext) -> list[Item]:
        """Return the questions of the exam; where the world changes, they are others."""
        return _drawn_of(context, self.eval_size, "exam")

    def _batch(self, step: int, context: StrategyContext) -> list[Item]:
        """Return the examples of a step: the same for everyone, in another order in every pass."""
        examples = _drawn_of(context, self.train_size, "train")
        steps = -(-self.train_size // self.batch)
        order = Draw(context.state.seed)("order", step // steps).permutation(len(examples))
        start = step % steps * self.batch
        return [examples[place] for place in order[start : start + self.batch]]


def _drawn_of(context: StrategyContext, count: int, name: str) -> list[Item]:
    """Draw so many questions, cell by cell in turn, the same in the whole run."""
    cells, draw = context.tasks.cells, Draw(context.state.seed)
    shares = [len(range(place, count, len(cells))) for place in range(len(cells))]
    return [
        item
        for cell, share in zip(cells, shares, strict=True)
        for item in context.tasks.draw(cell, share, draw(name, *cell))
    ]


def _fitness(context: StrategyContext) -> dict[str, float]:
    """Return the fitness of those who sat an exam."""
    verdicts: dict[str, list[float]] = defaultdict(list)
    losses: dict[str, list[float]] = defaultdict(list)
    for outcome in context.outcomes:
        name = outcome.assignment.organelle_id
        if outcome.assignment.is_exam:
            verdicts[name] += outcome.verdicts
        elif outcome.assignment.purpose == "probe":
            losses[name] += [-rollout.confidence for rollout in outcome.rollouts]
    return {
        name: float(0.7 * np.mean(values) + 0.3 / (1 + np.exp(np.mean(losses[name]))))
        * (LARGE_WORTH if context.state.population[name].genome.rank > LARGE else 1.0)
        for name, values in verdicts.items()
        if losses[name]
    }


def _one_of(values: Sequence[float], generator: Generator) -> float:
    return float(values[int(generator.integers(len(values)))])

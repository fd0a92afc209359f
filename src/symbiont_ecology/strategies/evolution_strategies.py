"""Evolution strategies over LoRA: noise on one adapter, and a step along what the noise earned.

In every generation the members of a population are the centre with noise on it, and all of them
answer the same questions. The centre then goes along the mean of their noise, weighted by what each
earned: an estimate of the gradient of the mean reward, without a backward pass (Salimans et al.
2017, arXiv:1703.03864; on language models, Qiu et al. 2025, arXiv:2509.24372).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import HOST, Ascend, Assignment, Decision, Found, Outcome
from symbiont_ecology.ecology.ascents import Optimizer
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.learning import LearningRule
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import (
    AskingStrategy,
    StrategyContext,
    assignments,
    dealt,
    strategies,
)
from symbiont_ecology.strategies.exams import rewards_by_question
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.weights.perturbations import Perturbation

Shaping = Literal["z_score", "ranks", "questions"]
"""What a member is worth: its mean reward less the population's, in standard deviations; its rank
among them, from −½ to ½ and then in standard deviations; or its z-score at each question, on
average, so that questions count alike however their rewards are spread."""


@strategies.register("es")
@dataclass(frozen=True)
class EvolutionStrategies(AskingStrategy):
    """One organelle, and a population of noise around it. Pair it with ``learning_rule: none``.

    ``step`` is in units of the noise, before it is divided by the size of the population: with
    z-scores, the centre moves by step ÷ √population of the noise per number. That is the step size
    of the literature, α, divided by σ.

    In a world of habitats nobody can ask everyone the same. Their questions are dealt out, and a
    member is worth what its own ones earned.
    """

    population: PositiveInt = 16  # members of a generation
    noise: PositiveFloat = 0.02  # ‖noise on ΔW‖ ÷ ‖W‖ of every module
    step: PositiveFloat = 1.0  # step of the centre, in units of the noise
    is_mirrored: bool = True  # whether members come in pairs of opposite noise
    shaping: Shaping = "ranks"  # what a member is worth
    optimizer: Optimizer = "sgd"  # how worth becomes a step
    fade: PositiveShare = 1.0  # what is kept of ΔW in a generation, in (0, 1]
    aging: NonNegativeFloat = 0.0  # generations after which steps fall with their root; 0: never
    directions: NonNegativeInt = 0  # rank of a member's noise on W; 0: noise on B, with A frozen
    looks: NonNegativeInt = 0  # generations from one look at the centre itself to the next; 0: none
    warm: NonNegativeInt = 0  # gold examples per cell that the centre has learned; 0: none
    warm_rate: PositiveFloat = 0.001  # learning rate of Adam for them, > 0
    fits_habitats: ClassVar[bool] = True
    service_fault: ClassVar[str] = "its members differ by noise, and a service answers without"
    compares_rewards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_mirrored and self.population % 2:
            raise ConfigError(
                f"strategy.population: expected pairs, so an even number, got {self.population}: "
                f"set {self.population + 1}, or strategy.is_mirrored=false"
            )
        if self.directions and self.optimizer == "adam":
            raise ConfigError(
                "strategy.optimizer: expected sgd where strategy.directions is set, since noise on "
                "W has no coordinates that stay; got adam"
            )
        if self.population < 2:
            raise ConfigError("strategy.population: expected 2 members or more, got 1")

    def max_rows(self, tasks: TaskMixture) -> int:
        """All questions to every member; those of habitats are dealt out."""
        return self.question_count(tasks) * (1 if tasks.habitats else self.population)

    def check(self, rank: int, rule: LearningRule) -> None:
        """Noise on W needs room beside the centre."""
        super().check(rank, rule)
        if self.directions >= rank:
            raise ConfigError(
                f"strategy.directions: expected less than host.rank ({rank}), which holds the "
                f"centre as well, got {self.directions}"
            )

    @property
    def habitat_faults(self) -> Sequence[str]:
        """What compares answers to equal questions."""
        reason, faults = "habitats ask every question once, so no two can be asked the same", []
        if self.shaping == "questions":
            faults.append(f"strategy.shaping: {reason}: expected ranks or z_score, got 'questions'")
        if self.looks:
            faults.append(f"strategy.looks: {reason}: expected 0, got {self.looks}")
        return faults

    def found(self, context: StrategyContext) -> list[Decision]:
        """The centre, which starts as the host itself (B = 0), or warm."""
        return [Found({}, context.rank - self.directions)]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """All questions to every member, or those of habitats each to one; now and then, others to
        the centre and to the bare host."""
        items, members, asked = self.items(context), self._members(context), list[Assignment]()
        if context.tasks.habitats:
            hands = dealt(items, members, context.draw("deal"))
        else:
            hands = dict.fromkeys(members, items)
        for centre in context.state.population:
            asked += [
                replace(assignment, is_exam=True, perturbation=noise)
                for noise, hand in hands.items()
                for assignment in assignments([(centre, item) for item in hand], 1)
            ]
            if self.looks and context.state.generation % self.looks == 0:
                asked += self._look(centre, context)
        return asked

    def tell(self, context: StrategyContext) -> list[Decision]:
        """A step of the centre. One that is gone (a catastrophe) is founded anew."""
        decisions = list[Decision]()
        for centre in context.state.population:
            members: dict[Perturbation, list[Outcome]] = defaultdict(list)
            for outcome in context.outcomes:
                if noise := outcome.assignment.perturbation:
                    members[noise].append(outcome)
            if len(members) > 1:
                decisions.append(self._step(centre, members, context))
        return decisions if context.state.population else self.found(context)

    def _step(
        self, centre: str, members: dict[Perturbation, list[Outcome]], context: StrategyContext
    ) -> Ascend:
        rewards = [rewards_by_question(outcomes) for outcomes in members.values()]
        worth = _worth(rewards, self.shaping)
        age = context.state.generation - context.state.population[centre].born
        step = self.step / np.sqrt(1 + age / self.aging if self.aging else 1)
        tokens, empty = _lengths([outcome for outcomes in members.values() for outcome in outcomes])
        return Ascend(
            centre,
            list(zip(members, worth, strict=True)),
            float(step),
            self.optimizer,
            self.fade,
            rewards=tuple(float(np.mean(list(marks.values()))) for marks in rewards),
            tokens=tokens,
            empty=empty,
            kl=_mean_log_ratio(context.outcomes),
        )

    def _members(self, context: StrategyContext) -> list[Perturbation]:
        """The noise of this generation."""
        count = self.population // 2 if self.is_mirrored else self.population
        seeds = [context.draw.key("member", number) for number in range(count)]
        signs = (1, -1) if self.is_mirrored else (1,)
        return [
            Perturbation(seed, sign * self.noise, self.directions)
            for seed in seeds
            for sign in signs
        ]

    def _look(self, centre: str, context: StrategyContext) -> list[Assignment]:
        """The same questions at every look."""
        draw, tasks = Draw(context.state.seed), context.tasks
        return [
            Assignment(
                name,
                tasks.draw(cell, LOOK_QUESTIONS, draw("look", *cell)),
                purpose="probe",
                is_compared=name == centre,
            )
            for cell in tasks.cells
            for name in (centre, HOST)
        ]


LOOK_QUESTIONS = 8
"""Questions per cell at a look."""


def _lengths(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Of all answers: mean number of tokens, and the share of those without text."""
    rollouts = [rollout for outcome in outcomes for rollout in outcome.rollouts]
    tokens = [len(rollout.token_ids) for rollout in rollouts]
    return float(np.mean(tokens)), float(np.mean([not r.text.strip() for r in rollouts]))


def _mean_log_ratio(outcomes: Sequence[Outcome]) -> float | None:
    """Over cells, where the bare host read what was answered."""
    values = [o.log_ratio for o in outcomes if o.log_ratio is not None]
    return float(np.mean(values)) if values else None


def _worth(rewards: Sequence[dict[str, float]], shaping: Shaping) -> list[float]:
    """What each member is worth; all nothing where they earned the same."""
    if shaping == "questions":
        names = sorted({name for marks in rewards for name in marks})
        # A question that was left out for want of compute says nothing.
        common = [name for name in names if all(name in marks for marks in rewards)]
        scores = [_z_scores(np.array([marks[name] for marks in rewards])) for name in common]
        return list(map(float, np.mean(scores, axis=0))) if scores else [0.0] * len(rewards)
    means = np.array([np.mean(list(marks.values())) for marks in rewards])
    if shaping == "ranks":
        means = _centred_ranks(means)
    return list(map(float, _z_scores(means)))


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from −½ to ½; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared = ends - (counts - 1) / 2 - 1
    ranks: np.ndarray = shared[place] / max(len(values) - 1, 1) - 0.5
    return ranks


def _z_scores(values: np.ndarray) -> np.ndarray:
    if not np.ptp(values):  # where the standard deviation may be rounding
        return np.zeros_like(values)
    scores: np.ndarray = (values - values.mean()) / values.std()
    return scores

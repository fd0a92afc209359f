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

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.events import Ascended, Event
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import HOST, Assignment, Decision, Found, Outcome
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.strategies import (
    CurriculumStrategy,
    StrategyContext,
    assignments,
    strategies,
)
from symbiont_ecology.extensions.methods.exams import rewards_by_question
from symbiont_ecology.extensions.methods.noise import Noise, along_b, mean_of_b
from symbiont_ecology.tasks.mixture import TaskMixture

Shaping = Literal["z_score", "ranks"]
"""Worth of a member: its mean reward less the population's, in standard deviations; or its rank
among them, from −½ to ½ and then in standard deviations."""
LOOK_QUESTIONS = 8
"""Questions per cell at a look."""


@strategies.register("es")
@dataclass(frozen=True)
class EvolutionStrategies(CurriculumStrategy):
    """One organelle, and a population of noise around it. Pair it with ``learning_rule: none``.

    ``step`` is in units of the noise, before it is divided by the size of the population: with
    z-scores, the centre moves by step ÷ √population of the noise per number. That is the step size
    of the literature, α, divided by σ.
    """

    population: PositiveInt = 16  # members of a generation
    noise: PositiveFloat = 0.02  # ‖noise on ΔW‖ ÷ ‖W‖ of every module
    step: PositiveFloat = 1.0  # step of the centre, in units of the noise
    is_mirrored: bool = True  # whether members come in pairs of opposite noise
    shaping: Shaping = "ranks"  # what a member is worth
    aging: NonNegativeFloat = 0.0  # generations after which steps fall with their root; 0: never
    looks: NonNegativeInt = 0  # generations from one look at the centre itself to the next; 0: none
    compares_rewards: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_mirrored and self.population % 2:
            raise ConfigError(
                f"strategy.population: expected pairs, so an even number, got {self.population}: "
                f"set {self.population + 1}, or strategy.is_mirrored=false"
            )
        if self.population < 2:
            raise ConfigError("strategy.population: expected 2 members or more, got 1")

    def max_rows(self, tasks: TaskMixture) -> int:
        return self.question_count(tasks) * self.population

    def found(self, context: StrategyContext) -> list[Decision]:
        return [Found({}, context.rank)]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        items, members, asked = self.items(context), self._members(context), list[Assignment]()
        for centre in context.state.population:
            asked += [
                replace(assignment, is_exam=True, perturbation=noise)
                for noise in members
                for assignment in assignments([(centre, item) for item in items], 1)
            ]
            if self.looks and context.state.generation % self.looks == 0:
                asked += self._look(centre, context)
        return asked

    def tell(self, context: StrategyContext) -> list[Decision]:
        decisions = list[Decision]()
        for centre in context.state.population:
            members: dict[Noise, list[Outcome]] = defaultdict(list)
            for outcome in context.outcomes:
                if isinstance(noise := outcome.assignment.perturbation, Noise):
                    members[noise].append(outcome)
            if len(members) > 1:
                decisions.append(self._step(centre, members, context))
        return decisions if context.state.population else self.found(context)

    def _step(
        self, centre: str, members: dict[Noise, list[Outcome]], context: StrategyContext
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
            rewards=tuple(float(np.mean(list(marks.values()))) for marks in rewards),
            tokens=tokens,
            empty=empty,
            kl=_mean_log_ratio(context.outcomes),
        )

    def _members(self, context: StrategyContext) -> list[Noise]:
        """Draw the noise of this generation."""
        count = self.population // 2 if self.is_mirrored else self.population
        seeds = [context.draw.key("member", number) for number in range(count)]
        signs = (1, -1) if self.is_mirrored else (1,)
        return [Noise(seed, sign * self.noise) for seed in seeds for sign in signs]

    def _look(self, centre: str, context: StrategyContext) -> list[Assignment]:
        """Ask the centre and the bare host the same questions at every look."""
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


def _lengths(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Return the mean number of tokens of all answers, and the share of those without text."""
    rollouts = [rollout for outcome in outcomes for rollout in outcome.rollouts]
    tokens = [len(rollout.token_ids) for rollout in rollouts]
    return float(np.mean(tokens)), float(np.mean([not r.text.strip() for r in rollouts]))


def _mean_log_ratio(outcomes: Sequence[Outcome]) -> float | None:
    """Return the mean log-ratio of answers to the bare host, in nats per token, where it read them:
    over the tokens of a cell, and over cells.

    It is about greedy answers, so it says how far the likeliest answer is from the host; it would
    estimate the KL divergence if answers were sampled.
    """
    values = []
    for outcome in outcomes:
        ratios = [
            rollout.log_probabilities - rollout.host_log_probabilities
            for rollout in outcome.rollouts
            if rollout.host_log_probabilities is not None
        ]
        if any(map(len, ratios)):
            values.append(float(np.concatenate(ratios).mean()))
    return float(np.mean(values)) if values else None


def _worth(rewards: Sequence[dict[str, float]], shaping: Shaping) -> list[float]:
    """Return the worth of each member; all 0 where they earned the same."""
    from scipy.stats import rankdata

    values = np.array([np.mean(list(marks.values())) for marks in rewards])
    if shaping == "ranks":  # from −½ to ½; equal values share the mean of theirs
        values = (rankdata(values) - 1) / (len(values) - 1) - 0.5
    if not np.ptp(values):  # where the standard deviation may be rounding
        return [0.0] * len(values)
    scores = (values - values.mean()) / values.std()
    return [float(score) for score in scores]


@dataclass(frozen=True)
class Ascend(Decision):
    """The centre of a population goes along the mean of its members' noise, weighted by what each
    of them is worth.

    ``step`` is in units of the noise. ``rewards``, ``tokens``, ``empty`` and ``kl`` are for the
    record (``events.Ascended``).
    """

    organelle_id: OrganelleId
    worth: Sequence[tuple[Noise, float]]
    step: float
    rewards: tuple[float, ...] = ()
    tokens: float = 0.0
    empty: float = 0.0
    kl: float | None = None

    def apply(self, context: ApplyContext) -> list[Event]:
        state, store = context.state, context.store
        organelle = state.population[self.organelle_id]
        centre = store.weights(organelle.genome.weights)
        before = store.optimizer_state(organelle.optimizer_state)
        size = abs(self.worth[0][0].size)
        direction = mean_of_b(self._shares, centre) / np.float32(len(self.worth))
        weights = along_b(centre, direction, self.step * size, context.norms)
        # Where the step would not be finite, the centre stays where it is.
        if np.isfinite(weights.vector).all():
            ref = store.put_weights(weights)
            state_ref = store.put_optimizer_state(replace(before, step=before.step + 1))
            genome = replace(organelle.genome, weights=ref)
            changed = replace(organelle, genome=genome, optimizer_state=state_ref)
            state.population[organelle.id] = changed
        of_b = np.concatenate([direction[b] for _, _, b, _, _ in centre.layout.blocks(centre.rank)])
        return [
            Ascended(
                state.generation,
                organelle.id,
                rewards=self.rewards,
                tokens=self.tokens,
                empty=self.empty,
                step=self.step * float(np.sqrt(np.mean(np.square(of_b)))),
                weights=state.population[organelle.id].genome.weights,
                kl=self.kl,
                noise=size,
            )
        ]

    @property
    def _shares(self) -> list[tuple[int, float]]:
        """Worth of the noise of each seed: a mirror image counts against it."""
        shares: dict[int, float] = defaultdict(float)
        for noise, worth in self.worth:
            shares[noise.seed] += worth if noise.size > 0 else -worth
        return list(shares.items())

"""The Hebbian rule: learning from forward passes alone, by three factors at every synapse of A.

While an answer is written, what A makes of its inputs is perturbed: ``h = A x + ξ``, ξ ~ N(0, σ²).
The eligibility trace of A is Σ ξ ⊗ x ÷ σ² over the answer's tokens, and reward times trace is, in
the mean, the gradient of the expected reward: node perturbation (Werfel, Xie & Seung 2005; Fiete &
Seung 2006). A reward that says no more than right or wrong is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import PositiveFloat

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.adapter import BETA_FIRST, BETA_SECOND, EPSILON
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import Share
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningStatistics,
    Request,
)
from symbiont_ecology.ecology.learning import Experience, Targets, WeightedTarget, learning_rules
from symbiont_ecology.ecology.learning.experience import LearnedSlots, Learner
from symbiont_ecology.ecology.learning.rules import PolicyGradient

if TYPE_CHECKING:
    from torch import Tensor

    from symbiont_ecology.model.backend.lowrank import Adapters, Factors, Tiling

B_SCALE = 4.0
"""How much what A says weighs at first: at this, the learning rates that suit a backward pass suit
traces too."""


@learning_rules.register("hebbian")
@dataclass(frozen=True)
class Hebbian(PolicyGradient):
    """Three factors: what a synapse read, how its output was perturbed, and the reward after it.

    The advantages are those of ``policy_gradient``. Advantage times the trace Σ noise ⊗ input of an
    answer is in the mean the policy gradient, from forward passes alone: node perturbation (Werfel,
    Xie & Seung 2005; Fiete & Seung 2006). A moves towards rewarded noise. Answers in practice are
    the best ones in the midst of noise: of other chance the traces know nothing.

    B stays as it is. A founder's B is 0, so its noise has no effect: its first generation only sets
    baselines, and then it gets a random B, and A = 0. Fewer modules (``host.targets``) mean less
    variance.
    """

    group: Share = 1.0  # part of the other samples of an item in its baseline, in [0, 1]
    perturbation: PositiveFloat = 1.25  # standard deviation of the noise on A x, > 0
    temperature: ClassVar[float] = 0.0  # type: ignore[misc]

    @property
    def estimator(self) -> NodePerturbation:  # type: ignore[override]
        """Noise of the rule's size."""
        return NodePerturbation(self.perturbation)

    def targets(self, experience: Experience) -> Targets:
        targets, notes = super().targets(experience)
        return [target for target in targets if target.extra is not None], notes


@dataclass(frozen=True)
class NodePerturbation:
    """The ``learning.Estimator`` of noise with standard deviation ``std``."""

    std: float

    def rollout(
        self,
        host: Any,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None],
        decoding: Decoding,
    ) -> tuple[Completions, Sequence[Trace | None]]:
        """Answer rows in the midst of noise; no trace where B lets nothing of it through."""
        limits = [row.max_new_tokens for row in rows]
        tracer = Tracer(host.layout, host.rank, limits, draws, self.std)
        completions = host.rollout(rows, draws, decoding, tracer)
        slots = {row.slot for row in rows} - {HOST_SLOT}
        heard = {slot for slot in slots if not has_zero_b(host.weights_of(slot))}
        traces = [Trace(tracer, n) if row.slot in heard else None for n, row in enumerate(rows)]
        return completions, traces

    def cost(self, host: Any, rank: int, target: WeightedTarget) -> Cost:
        """Return an outer product per token and module. Nothing is read or written again, and
        noise costs next to nothing."""
        numbers = rank * sum(d_in for _, d_in, _ in host.layout.modules)
        return Cost.computed(2 * len(target.token_ids) * numbers)

    def learn(self, learners: Sequence[Learner], draw: Draw) -> LearnedSlots:
        """Make an Adam step up the mean of weight · trace; wake those whose B is zero."""
        weights, states, norms, tokens = {}, {}, {}, {}
        for learner in learners:
            slot, before = learner.slot, learner.weights
            targets = [lesson.target for lesson in learner.lessons]
            if learner.rate and has_zero_b(before):
                weights[slot] = with_random_b(before, draw("wake", learner.organelle.id))
            elif targets:
                credit = mean_credit(targets, before.rank)
                direction, states[slot] = adam_direction(credit, learner.optimizer_state)
                vector = before.vector + learner.rate * direction
                weights[slot] = replace(before, vector=vector.astype(np.float32))
                norms[slot] = float(np.linalg.norm(credit))
                tokens[slot] = sum(len(target.token_ids) for target in targets)
        return weights, states, LearningStatistics({}, norms, tokens)


class Tracer:
    """An observer of a batch (``host.decoding.Observer``): puts noise between A and B of every
    module, and keeps it with what the module read.

    Each row with a generator in ``draws`` is perturbed by noise of standard deviation ``std``,
    drawn from it for as many tokens as the row's limit says.
    """

    def __init__(
        self,
        layout: AdapterLayout,
        rank: int,
        limits: Sequence[int],
        draws: Sequence[np.random.Generator | None],
        std: float,
    ) -> None:
        self._layout, self._rank, self._std = layout, rank, std
        self._size, width = (len(limits), max(limits, default=0)), rank * len(layout.modules)
        self._noise = np.zeros((*self._size, width), dtype=np.float32)
        for row, (draw, limit) in enumerate(zip(draws, limits, strict=True)):
            if draw is not None:
                noise = draw.standard_normal((limit, width), dtype=np.float32)
                self._noise[row, :limit] = noise * np.float32(std)
        self._inputs = dict[int, np.ndarray]()  # (rows, steps, d_in) by the number of the module

    def __call__(self, rows: np.ndarray, step: int, adapters: Adapters, tiling: Tiling) -> Adapters:
        """Return the terms of these rows with noise for their token number ``step``."""
        rows = rows if tiling.rows is None else rows[tiling.rows.cpu().numpy()]
        column = 0

        def noisy(term: Any) -> NoisyTerm:
            nonlocal column
            start, column = column, column + term.a.shape[1]
            return NoisyTerm(term, partial(self._perturbed, rows, step, start))

        return tuple(term and noisy(term) for term in adapters)

    def _perturbed(
        self, rows: np.ndarray, step: int, start: int, x: Tensor, inner: Tensor
    ) -> Tensor:
        """Keep what a site read, ``x (tiles, height, d_in)``, and return what its A made of it,
        ``(tiles, height, members · rank)``, with noise from column ``start`` on."""
        first, end = start // self._rank, start + inner.shape[-1]
        if first not in self._inputs:
            inputs = np.zeros((*self._size, x.shape[-1]), dtype=np.float32)
            self._inputs |= dict.fromkeys(range(first, end // self._rank), inputs)
        self._inputs[first][rows, step] = x.flatten(0, 1).float().cpu().numpy()
        return inner + inner.new_tensor(self._noise[rows, step, start:end]).view_as(inner)

    def credit(
        self, rows: Sequence[int], rewards: Sequence[float | np.ndarray], rank: int
    ) -> np.ndarray:
        """Return Σ reward · trace of rows for an adapter of that rank: ``(layout.size(rank),)``,
        zero for B.

        A reward is one number for all tokens of a row, or one for each of its first tokens.
        """
        vector = np.zeros(self._layout.size(rank), dtype=np.float32)
        scale = np.zeros((len(rows), self._size[1], 1), dtype=np.float32)
        for of_row, reward in zip(scale, rewards, strict=True):
            of_row[: np.size(reward) if np.ndim(reward) else None, 0] = reward
        scale /= np.float32(self._std**2)
        for number, (_, a, _, d_in, _) in enumerate(self._layout.blocks(rank)):
            low = number * self._rank
            noise = self._noise[..., low : low + self._rank][list(rows)]
            scaled = (noise[..., :rank] * scale).reshape(-1, rank)
            inputs = self._inputs[number][list(rows)].reshape(-1, d_in)
            vector[a] = (scaled.T @ inputs).reshape(-1)
        return vector


@dataclass(frozen=True)
class NoisyTerm:
    """The low-rank term of a site whose A is ``perturbed``: a function of inputs and outputs."""

    factors: Factors
    perturbed: Callable[[Tensor, Tensor], Tensor]

    def add_to(self, y: Tensor, x: Tensor, shares: Any) -> Tensor:
        """Add the term to ``y`` in place; ``shares`` are tiles."""
        tiles = shares.laid(x)
        inner = self.perturbed(tiles, tiles @ self.factors.a.transpose(1, 2))
        for columns, share, b in self.factors.members():
            shares.add(y[:, columns], inner[..., share], b)
        return y


@dataclass(frozen=True)
class Trace:
    """One row of a batch that was traced."""

    tracer: Tracer
    row: int


def mean_credit(targets: Sequence[WeightedTarget], rank: int) -> np.ndarray:
    """Return the mean of weight · trace of targets, all of one batch of answers."""
    traces = [target.extra for target in targets if isinstance(target.extra, Trace)]
    shares = [np.asarray(target.weight) / len(targets) for target in targets]
    return traces[0].tracer.credit([trace.row for trace in traces], shares, rank)


def adam_direction(
    gradient: np.ndarray, before: OptimizerState
) -> tuple[np.ndarray, OptimizerState]:
    """Return the direction of a step up the gradient ``(parameters,)``, to be multiplied by a
    learning rate, and the state after it (Kingma & Ba 2014, arXiv:1412.6980)."""
    step = before.step + 1
    first, second = (
        np.zeros_like(gradient) if m is None else m for m in (before.first, before.second)
    )
    first = BETA_FIRST * first + (1 - BETA_FIRST) * gradient
    second = BETA_SECOND * second + (1 - BETA_SECOND) * gradient**2
    spread = np.sqrt(second / (1 - BETA_SECOND**step)) + EPSILON
    direction = first / (1 - BETA_FIRST**step) / spread
    return direction, OptimizerState(step, first, second, before.notes)


def has_zero_b(weights: AdapterWeights) -> bool:
    """Return True if a column of B is zero, as all are at first: what its row of A says then goes
    unheard."""
    return not all(b.any(axis=0).all() for _, _, b in weights.factors())


def with_random_b(weights: AdapterWeights, generator: np.random.Generator) -> AdapterWeights:
    """Return the same function with an A to learn: where B was 0, A is 0 and B is drawn from
    N(0, ``B_SCALE``² ÷ (rank · modules)).

    So noise of one size makes one size of noise in all that the modules write, whatever rank and
    number.
    """
    vector = weights.vector.copy()
    scale = B_SCALE / np.sqrt(weights.rank * len(weights.layout.modules))
    for _, a, b, d_in, d_out in weights.layout.blocks(weights.rank):
        rows, columns = vector[a].reshape(-1, d_in), vector[b].reshape(-1, d_out)
        has_zero_b = ~columns.any(axis=1)
        rows[has_zero_b] = 0.0
        columns[has_zero_b] = scale * generator.standard_normal((has_zero_b.sum(), d_out))
    return replace(weights, vector=vector)

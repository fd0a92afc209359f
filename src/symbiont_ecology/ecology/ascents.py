"""Ascents: steps of evolution strategies, made of seeds and of what their members earned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from symbiont_ecology.ecology.population import ApplyContext, Decision
from symbiont_ecology.events import Ascended, Event
from symbiont_ecology.types import OrganelleId
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.adam import adam_direction
from symbiont_ecology.weights.deltas import truncated
from symbiont_ecology.weights.perturbations import Perturbation, along_b, along_w, mean_of_b

Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Ascend(Decision):
    """The centre of a population goes along the mean of its members' noise, weighted by what each
    of them is worth.

    ``step`` is in units of the noise; ``fade`` is what is kept of ΔW. ``rewards``, ``tokens``,
    ``empty`` and ``kl`` are for the record (``events.Ascended``).
    """

    organelle_id: OrganelleId
    worth: Sequence[tuple[Perturbation, float]]
    step: float
    optimizer: Optimizer = "sgd"
    fade: float = 1.0
    rewards: tuple[float, ...] = ()
    tokens: float = 0.0
    empty: float = 0.0
    kl: float | None = None

    def apply(self, context: ApplyContext) -> list[Event]:
        """The step; a centre whose weights would not be finite stays where it is."""
        state, store = context.state, context.store
        organelle = state.population[self.organelle_id]
        centre = store.weights(organelle.genome.weights)
        before = store.optimizer_state(organelle.optimizer_state)
        noise, _ = self.worth[0]
        move = self._along_w if noise.rank else self._along_b
        weights, optimizer_state, length = move(centre, before, context)
        if np.isfinite(weights.vector).all():
            ref, state_ref = store.put_weights(weights), store.put_optimizer_state(optimizer_state)
            genome = replace(organelle.genome, weights=ref)
            changed = replace(organelle, genome=genome, optimizer_state=state_ref)
            state.population[organelle.id] = changed
        return [
            Ascended(
                state.generation,
                organelle.id,
                rewards=self.rewards,
                tokens=self.tokens,
                empty=self.empty,
                step=length,
                weights=state.population[organelle.id].genome.weights,
                kl=self.kl,
                noise=abs(noise.size),
            )
        ]

    def _along_b(
        self, centre: AdapterWeights, before: OptimizerState, context: ApplyContext
    ) -> tuple[AdapterWeights, OptimizerState, float]:
        """A step on B, where every number has noise of its own."""
        direction = mean_of_b(self._shares, centre) / np.float32(len(self.worth))
        optimizer_state = replace(before, step=before.step + 1)
        if self.optimizer == "adam":
            direction, optimizer_state = adam_direction(direction, before)
        noise, _ = self.worth[0]
        faded = _with_b_times(centre, self.fade)
        moved = along_b(faded, direction, self.step * abs(noise.size), context.norms)
        of_b = direction[_is_b(centre)]
        return moved, optimizer_state, self.step * float(np.sqrt(np.mean(np.square(of_b))))

    def _along_w(
        self, centre: AdapterWeights, before: OptimizerState, context: ApplyContext
    ) -> tuple[AdapterWeights, OptimizerState, float]:
        """A step on W, cut to the centre's rank."""
        noise, _ = self.worth[0]
        size = self.step / len(self.worth)
        shares = [(seed, abs(noise.size) * size * share) for seed, share in self._shares]
        moved = along_w(centre.times(self.fade), shares, noise.rank, context.norms)
        length = size * float(np.linalg.norm([share for _, share in self._shares]))
        return truncated(moved, centre.rank), replace(before, step=before.step + 1), length

    @property
    def _shares(self) -> list[tuple[int, float]]:
        """What the noise of each seed is worth: a mirror image counts against it."""
        shares: dict[int, float] = defaultdict(float)
        for noise, worth in self.worth:
            shares[noise.seed] += worth if noise.size > 0 else -worth
        return list(shares.items())


def _is_b(centre: AdapterWeights) -> np.ndarray:
    """Which numbers of the flat vector are those of B."""
    mask = np.zeros(len(centre.vector), dtype=bool)
    for _, _, b, _, _ in centre.layout.blocks(centre.rank):
        mask[b] = True
    return mask


def _with_b_times(centre: AdapterWeights, share: float) -> AdapterWeights:
    """The centre with B × ``share``: A, which says how large noise on B is, stays."""
    vector = np.where(_is_b(centre), np.float32(share) * centre.vector, centre.vector)
    return replace(centre, vector=vector)

"""Controls that are told how many kinds there are, and group habitats by losses.

Federated learning in groups, brought to verdicts: what a habitat accepted is its data. After every
question of a habitat, its newest accepted answers are scored under every organelle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.ecology import Decision, Found
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.serving import Serving, asked, moves
from symbiont_ecology.types import OrganelleId

STARTS = 8
"""Runs of k-means, of which the tightest counts."""


@dataclass(frozen=True)
class Clusters(Serving):
    """A given number of organelles; habitats are dealt out among them by losses.

    A habitat that accepted nothing yet, or nothing since it changed, asks anybody. A subclass says
    who fits whom.
    """

    organelles: PositiveInt = 4  # as many as there are kinds, if it is told the truth
    answers: PositiveInt = 4  # newest accepted answers of a habitat that everybody is scored on

    @property
    def scored_answers(self) -> int:  # type: ignore[override]
        """The knob ``answers``."""
        return self.answers

    @abstractmethod
    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        """The place of the organelle for each habitat.

        Args:
            losses: nats per accepted answer, ``(habitats, organelles)``.
            generator: for what is left to chance.
        """

    def found(self, context: StrategyContext) -> list[Decision]:
        """All organelles, which start as the host itself (B = 0), or warm."""
        missing = self.organelles - len(context.state.population)
        return [Found(self.traits, context.rank) for _ in range(missing)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Who asked is dealt out anew. Who is gone (a NaN, a catastrophe) is founded anew."""
        state = context.state
        living = list(state.population)
        scored = {
            name: habitat.losses
            for name, habitat in state.habitats.items()
            if habitat.losses.keys() >= set(living)
        }
        server_of = dict[str, OrganelleId]()
        if living and scored:
            losses = np.array([[loss[name] for name in living] for loss in scored.values()])
            places = self.fitting(losses, context.draw("deal"))
            server_of = {name: living[place] for name, place in zip(scored, places, strict=True)}
        servers = [(name, server_of.get(name, "")) for name in asked(context)]
        return [*moves(servers, state), *self.found(context)]


@strategies.register("ifca")
@dataclass(frozen=True)
class LowestLoss(Clusters):
    """IFCA: everyone goes where its own loss is lowest (Ghosh et al. 2020, arXiv 2006.04088)."""

    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        """The lowest of each row, by draw among equals."""
        noise = 1e-9 * generator.random(losses.shape)
        places: list[int] = np.argmin(losses + noise, axis=1).tolist()
        return places


@strategies.register("clove")
@dataclass(frozen=True)
class LossVectors(Clusters):
    """CLoVE: those with similar losses under all models are one group (arXiv 2506.22427, 2025).

    Groups are found by k-means, and matched with organelles so that the sum of losses is lowest.
    """

    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        """By groups; by the lowest loss while there are fewer habitats than organelles."""
        from scipy.cluster.vq import kmeans2
        from scipy.optimize import linear_sum_assignment

        count = losses.shape[1]
        if len(losses) < 2 * count:
            places: list[int] = np.argmin(losses, axis=1).tolist()
            return places
        best, groups = np.inf, np.zeros(len(losses), int)
        for _ in range(STARTS):
            centres, labels = kmeans2(losses, count, minit="++", rng=generator)
            spread = float(((losses - centres[labels]) ** 2).sum())
            if spread < best:
                best, groups = spread, labels
        totals = np.zeros((count, count))
        np.add.at(totals, groups, losses)
        _, matched = linear_sum_assignment(totals)
        return [int(matched[group]) for group in groups]

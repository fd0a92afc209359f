"""Model Swarms: adapters move through weight space like birds (particle swarm optimization).

Feng et al. 2024 (arXiv:2410.11163), after Kennedy and Eberhart 1995: a particle goes on as it went,
is drawn to the best place where it has ever been and to the best place of all, and is driven away
from the worst place of all, each with a random weight. Places are ΔW, and not A and B.
Velocity needs no field of its own: it is the way from a particle's last place to its place,
divided by the step. So up to three organelles of a particle are alive: these two, and its best.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import NonNegativeFloat, PositiveFloat

from symbiont_ecology.ecology import Birth, Decision, Retire
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.operators.means import Combination
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.strategies.exams import Marks, mean_mark
from symbiont_ecology.strategies.experts import ExpertStrategy
from symbiont_ecology.types import OrganelleId


@strategies.register("swarm")
@dataclass(frozen=True)
class Swarm(ExpertStrategy):
    """A particle swarm with velocities. Knobs and their values are those of the paper's code.

    Unlike in the paper, places are cut to the rank of the slots, and no particle that strays is set
    back. It moves within what its founders span: experts (``schooling``) give it more than noise.
    """

    inertia: NonNegativeFloat = 0.4  # weight of a particle's velocity
    own: NonNegativeFloat = 0.3  # weight of the way to its own best place
    social: NonNegativeFloat = 0.3  # weight of the way to the best place of all
    repel: NonNegativeFloat = 0.3  # weight of the way from the worst place of all
    step: PositiveFloat = 1.0  # part of the velocity that a particle goes, at first
    fade: PositiveShare = 0.95  # what is left of the step after a generation
    least_step: PositiveFloat = 0.1  # below which a step does not fall

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.own + self.social == 0:
            raise ConfigError(
                "strategy.own: expected a weight above 0 here or in strategy.social, since nothing "
                "else draws particles to what is better; got 0.0 in both"
            )

    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """Every particle moves; places that nobody looks back at are given up."""
        scores = {name: mean_mark(own) for name, own in marks.items()}
        best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        flock: dict[int, list[OrganelleId]] = defaultdict(list)
        for organelle in context.state.population.values():
            flock[int(organelle.genome.traits[NICHE])].append(organelle.id)
        survivors, decisions = {best, worst}, list[Decision]()
        for number in range(self.population):
            if not (places := flock[number]):  # a catastrophe: the particle is founded anew
                decisions.append(self.founder(number, context))
                continue
            top = max(places, key=scores.__getitem__)
            survivors |= {top, places[-1]}
            others = [path[-1] for path in flock.values() if path and path is not places] or places
            decisions.append(self._move(places, others, (top, best, worst), context))
        return decisions + [Retire(name, "left behind") for name in marks if name not in survivors]

    def _move(
        self,
        places: list[OrganelleId],
        others: list[OrganelleId],
        ends: tuple[OrganelleId, OrganelleId, OrganelleId],
        context: StrategyContext,
    ) -> Birth:
        """The next place of a particle. Its first velocity is towards another particle."""
        now, generator = context.state.population[places[-1]], context.draw("move", places[-1])
        weights = generator.random(4) * (self.inertia, self.own, self.social, self.repel)
        inertia, own, social, repel = self._step(context.state.generation) * weights / weights.sum()
        if len(places) > 1:
            origin, way = places[-2], -inertia / self._step(now.born)
        else:
            origin, way = others[int(generator.integers(len(others)))], inertia
        shares = Counter[OrganelleId]({now.id: 1 - way - own - social + repel})
        for place, share in zip((origin, *ends), (way, own, social, -repel), strict=True):
            shares[place] += share
        return Birth(tuple(shares), Combination(tuple(shares.values())), "swarm", now.genome.traits)

    def _step(self, generation: int) -> float:
        return max(self.step * self.fade**generation, self.least_step)

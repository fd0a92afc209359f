"""Bodies follow energy: the rich grow in rank where they use all of it, the poor shrink where
not."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveInt

from symbiont_ecology.base.registry import Share
from symbiont_ecology.ecology import Decision, Resize
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

IDLE = 0.5
"""Of an even share of the spectrum: a direction that carries no more may go."""


@mechanisms.register("morphogenesis")
@dataclass(frozen=True)
class Morphogenesis(Mechanism):
    """The rich grow in rank where they use all of it, the poor shrink where not, a unit at a time.

    Whether a body is used shows in the spectrum of ΔW: growing asks that its weakest direction
    still carries ``full`` of an even share, shrinking that it carries no more than ``IDLE`` of one.
    """

    every: PositiveInt = 10  # generations between two looks
    rich: PositiveInt = 600_000  # balance from which an organelle may grow, in mATP
    poor: PositiveInt = 100_000  # balance below which it may shrink, in mATP
    full: Share = IDLE  # part of an even share that the weakest direction must carry to grow

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Who shrinks makes room, from the next look on, for who grows."""
        state = context.state
        if state.generation % self.every != self.every - 1:
            return []
        decisions, left = list[Decision](), room.ranks
        for organelle_id, organelle in state.population.items():
            balance, rank = state.ledger.balance(organelle_id), organelle.genome.rank
            if balance < self.poor and rank > 1:
                decisions.append(Resize(organelle_id, rank - 1, IDLE))
            elif balance >= self.rich and rank < context.rank and left > 0:
                decisions.append(Resize(organelle_id, rank + 1, self.full))
                left -= 1
        return decisions

"""Control: a bank of adapters, a bandit that chooses among them by verdicts, a drift detector.

It has memory and replay as the ecology has, and neither energy nor births for pay nor deaths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Colonise, Decision, EcologyState, Habitat, Retire
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.serving import MEALS, Serving, asked, chosen, moves
from symbiont_ecology.types import OrganelleId

FRESH = ""
"""What stands for an adapter that is not there yet."""
ROOM, PSEUDO_COUNT = 32, 8.0
"""Adapters that are kept; answers for which the prior of an adapter in a habitat counts."""


@strategies.register("bank")
@dataclass(frozen=True)
class Bank(Serving):
    """Every habitat stays with an adapter that pleases it. If it is pleased no more, it chooses.

    A habitat chooses by Thompson sampling (1933) among all adapters and a fresh one. What it knows
    of an adapter are its own verdicts since it last changed. What it said before counts a little;
    where it never met the adapter, the verdicts of all others do. Nothing is thrown away while
    there is room; then the adapter leaves that answered least.
    """

    patience: PositiveInt = 4  # newest answers in a habitat by which an adapter is judged
    pleased: PositiveFloat = 0.5  # part of them that must be accepted
    youth: NonNegativeInt = 10  # generations in which a fresh adapter is not judged

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        """The adapter with which each stays, or a draw for those who are new."""
        state, rates = context.state, _rates(context.state)
        return [
            chosen(name, state) or _highest(self._beliefs(name, rates, state), generator)
            for name in names
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Who is not pleased moves, or gets a fresh adapter."""
        state, generator = context.state, context.draw("bank")
        counts, rates = _given(state), _rates(state)
        moved, decisions = dict[str, OrganelleId](), list[Decision]()
        for name in asked(context) if state.population else ():
            habitat = state.habitats[name]
            server = chosen(name, state) or habitat.last
            if server not in state.population:
                continue
            if self._is_young(server, state):
                moved[name] = server
                continue
            verdicts = [a.is_accepted for a in habitat.answers if a.organelle_id == server]
            newest = verdicts[-self.patience :]
            if len(newest) < self.patience or sum(newest) >= self.pleased * self.patience:
                moved[name] = server
                continue
            beliefs = self._beliefs(name, rates, state)
            beliefs[FRESH] = (PSEUDO_COUNT / 2, PSEUDO_COUNT / 2)
            if best := _highest(beliefs, generator):
                moved[name] = best
            else:
                decisions.append(Colonise((name,), self.traits, context.rank, MEALS))
        crowd = len(state.population) + len(decisions) - ROOM
        # The youngest have the fewest answers, because nobody has asked them yet.
        ranking = sorted(state.population, key=lambda o: (self._is_young(o, state), counts[o]))
        leaving = ranking[: max(crowd, 0)]
        moved = {name: server for name, server in moved.items() if server not in leaving}
        retired = [Retire(organelle_id, "replaced") for organelle_id in leaving]
        return [*moves(moved.items(), state), *retired, *decisions, *self.found(context)]

    def _is_young(self, organelle_id: OrganelleId, state: EcologyState) -> bool:
        born = state.population[organelle_id].born
        return born > 0 and state.generation - born < self.youth

    def _beliefs(
        self, name: str, rates: Mapping[OrganelleId, float], state: EcologyState
    ) -> dict[OrganelleId, tuple[float, float]]:
        """The parameters of the Beta posterior of every adapter in a habitat."""
        answers = state.habitats.get(name, Habitat()).answers
        counts = Counter((answer.organelle_id, answer.is_accepted) for answer in answers)
        beliefs = {}
        for organelle_id, overall in rates.items():
            record = state.posteriors.get(organelle_id, {}).get(name)
            rate = record.mean if record else overall
            accepted = counts[organelle_id, True] + PSEUDO_COUNT * rate
            refused = counts[organelle_id, False] + PSEUDO_COUNT * (1 - rate)
            beliefs[organelle_id] = (accepted, refused)
        return beliefs


def _highest(
    beliefs: Mapping[OrganelleId, tuple[float, float]], generator: np.random.Generator
) -> OrganelleId:
    """Who has the highest draw from its posterior."""
    draws = {organelle_id: generator.beta(*belief) for organelle_id, belief in beliefs.items()}
    return max(draws, key=draws.__getitem__)


def _given(state: EcologyState) -> Counter[OrganelleId]:
    """How many of the remembered answers each gave."""
    return Counter(answer.organelle_id for h in state.habitats.values() for answer in h.answers)


def _rates(state: EcologyState) -> dict[OrganelleId, float]:
    """The part of its remembered answers that was accepted, of everyone alive."""
    answers = [answer for habitat in state.habitats.values() for answer in habitat.answers]
    counts = Counter((answer.organelle_id, answer.is_accepted) for answer in answers)
    return {
        o: (counts[o, True] + 1) / (counts[o, True] + counts[o, False] + 2)
        for o in state.population
    }

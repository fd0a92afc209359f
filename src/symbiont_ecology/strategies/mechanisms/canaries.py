"""Canaries: whoever loses what it once mastered is compared with what it was, and may become it
again.

Suspicion is free: what practice says of an organelle falls below the best that was ever believed of
it. Proof is paid for: its former self goes on probation, both answer the same fresh questions, and
it comes back only if it is proven to be better. Where the world has changed both fail, so nobody is
sent back to what is no longer right; and questions that are always fresh cannot be known by heart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Challenger, Decision, EcologyState, Organelle
from symbiont_ecology.ecology.decisions import Judge, KeepSelf, ProposeFormerSelf
from symbiont_ecology.ecology.gate import Gate, OpenShare
from symbiont_ecology.ecology.organelle import SuccessPosterior, skill
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Room, mechanisms
from symbiont_ecology.strategies.probation import ProbationMechanism
from symbiont_ecology.types import OrganelleId

MASTERED = 0.5
"""Believed success, then or now, in the cells that a former self is asked about."""


@dataclass(frozen=True)
class Proof(Gate):
    """Stricter than what a child must show: who is suspected without cause must not be sent
    back."""

    level: OpenShare = 0.01  # chance of being sent back where it is no better
    most: PositiveInt = 256  # questions after which there is no proof


@mechanisms.register("canaries")
@dataclass(frozen=True)
class Canaries(ProbationMechanism):
    """Who loses what it mastered is compared with its former self, and may become that again:
    weights, memory and what was believed of it."""

    fall: PositiveFloat = 3.0  # loss of skill that raises suspicion, in standard deviations
    gate: Proof = field(default_factory=Proof)  # what the former self must show
    by: ClassVar[str] = "canaries"

    def propose(self, context: StrategyContext, busy: Collection[OrganelleId]) -> list[Decision]:
        """Whoever does much worse than before is suspected."""
        state = context.state
        recalls = [
            self._recall(organelle, state.posteriors.get(organelle.id, {}))
            for organelle in state.population.values()
            if organelle.id not in busy
        ]
        return [*filter(None, recalls), *map(KeepSelf, state.population)]

    def _recall(
        self, organelle: Organelle, now: Mapping[str, SuccessPosterior]
    ) -> ProposeFormerSelf | None:
        """The trial of an organelle that is under suspicion."""
        former = organelle.former
        if former is None:
            return None
        known = [*now.items(), *former.posteriors.items()]
        doubt = math.sqrt(sum(posterior.std**2 for _, posterior in known))
        cells = {name for name, posterior in known if posterior.mean >= MASTERED}
        if not cells or skill(former.posteriors) - skill(now) <= self.fall * doubt:
            return None
        return ProposeFormerSelf(organelle.id, former, tuple(sorted(cells)), by=self.by)

    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> Judge:
        """Whether an organelle becomes what it was."""
        (parent,) = challenger.parents
        known = state.population[parent].former if parent in state.population else None
        if known is None or known != challenger.former:  # gone, or as good as ever
            return Judge(challenger, "reject")
        return Judge(challenger, self.gate.better(challenger.against_the_better))

"""Canaries: an organelle that loses what it mastered has a trial against its former self.

Suspicion is free: the success posteriors of an organelle fall below the best that they ever were.
Proof is paid for: its former self goes on probation, both answer the same fresh questions, and it
comes back only if it is proven to be better. Where the world has changed both fail, so no organelle
is sent back to what is no longer right. Questions that are always fresh cannot be known by heart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.ecology import Decision, EcologyState, KeepSelf, Organelle, ProposeFormerSelf
from symbiont_ecology.ecology.gate import Challenger, Gate, Ruling
from symbiont_ecology.ecology.organelle import SuccessPosterior, skill
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import ProbationMechanism, Room, mechanisms

MASTERED = 0.5
"""Mean success, then or now, in the cells that a former self is asked about."""
SUSPICION = 3.0
"""Loss of skill that raises suspicion, in standard deviations."""
PROOF = Gate(level=0.01, most=256)
"""Stricter than what a child must show: who is suspected without cause must not be sent back.
``SUSPICION`` and this are no knobs: no ablation saw that canaries matter (docs/ablations.md)."""


@mechanisms.register("canaries")
@dataclass(frozen=True)
class Canaries(ProbationMechanism):
    """An organelle that loses what it mastered is compared with its former self, and may become
    that again: weights, optimizer state and posteriors."""

    by: ClassVar[str] = "canaries"

    def propose(self, context: StrategyContext) -> list[Decision]:
        """Whoever does much worse than before is suspected."""
        state, busy = context.state, self.busy(context.state)
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
        pairs = [*now.items(), *former.posteriors.items()]
        doubt = math.sqrt(sum(posterior.std**2 for _, posterior in pairs))
        cells = {name for name, posterior in pairs if posterior.mean >= MASTERED}
        if not cells or skill(former.posteriors) - skill(now) <= SUSPICION * doubt:
            return None
        return ProposeFormerSelf(organelle.id, former, tuple(sorted(cells)), by=self.by)

    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> Ruling:
        """Whether an organelle becomes what it was."""
        former = state.population[challenger.parents[0]].former
        if former is None or former != challenger.former:  # as good as ever
            return Ruling("reject", "its parent is as good as ever")
        verdict = PROOF.better(challenger.against_the_better)
        return Ruling(verdict, "it is no better" if verdict == "reject" else "")

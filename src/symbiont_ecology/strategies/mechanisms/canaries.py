"""Canaries: whoever loses what it once mastered is compared with what it was, and may become it
again.

Suspicion is free: what practice says of an organelle falls below the best that was ever believed of
it. Proof is paid for: its former self goes on probation, both answer the same fresh questions, and
it comes back only if it is proven to be better. Where the world has changed both fail, so nobody is
sent back to what is no longer right; and questions that are always fresh cannot be known by heart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    Assignment,
    Challenger,
    Decision,
    EcologyState,
    Gate,
    Judge,
    KeepSelf,
    Organelle,
    Outcome,
    ProposeFormerSelf,
    SuccessPosterior,
    skill,
)
from symbiont_ecology.ecology.gate import OpenShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import (
    comparison_questions,
    on_probation,
    with_new_counts,
)

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
class Canaries(Mechanism):
    """Who loses what it mastered is compared with its former self, and may become that again:
    weights, memory and what was believed of it."""

    fall: PositiveFloat = 3.0  # loss of skill that raises suspicion, in standard deviations
    gate: Proof = field(default_factory=Proof)  # what the former self must show

    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """The same questions to every former self on probation and to what became of it."""
        return [
            assignment
            for former in on_probation(state, "canaries")
            for assignment in comparison_questions(former, 1, state, context, draw)
        ]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        context: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of those on probation; whoever does much worse than before is suspected."""
        judged = [self._judge(one, state, outcomes) for one in on_probation(state, "canaries")]
        busy = {decision.challenger.parents[0] for decision in judged}
        recalls = [
            self._recall(organelle, state.posteriors.get(organelle.id, {}))
            for organelle in state.population.values()
            if organelle.id not in busy
        ]
        return [*judged, *filter(None, recalls), *map(KeepSelf, state.population)]

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
        return ProposeFormerSelf(organelle.id, former, tuple(sorted(cells)), by="canaries")

    def _judge(self, former: Challenger, state: EcologyState, outcomes: Sequence[Outcome]) -> Judge:
        former = with_new_counts(former, outcomes)
        (parent,) = former.parents
        known = state.population[parent].former if parent in state.population else None
        if known is None or known != former.former:  # gone, or as good as ever
            return Judge(former, "reject")
        return Judge(former, self.gate.better(former.against_the_better))

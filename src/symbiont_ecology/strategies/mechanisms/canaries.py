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
    KeepSelf,
    Organelle,
    Outcome,
    Probation,
    Recall,
    SuccessPosterior,
    skill,
)
from symbiont_ecology.ecology.gate import OpenShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import asked, on_probation, seen

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

    fall: PositiveFloat = (
        3.0  # loss of skill that makes an organelle suspect, in standard deviations
    )
    gate: Proof = field(default_factory=Proof)  # what the former self must show

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """To every former self on probation and to what became of it the same questions."""
        formers = on_probation(state, "canaries")
        return [t for one in formers for t in asked(one, 1, state, scene, draw)]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        scene: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of those on probation; and whoever does much worse than before is
        suspected."""
        judged = [self._look_at(one, state, outcomes) for one in on_probation(state, "canaries")]
        busy = {probation.child.parents[0] for probation in judged}
        others = (one for one in state.population.values() if one.id not in busy)
        recalls = (self._recall(one, state.posteriors.get(one.id, {})) for one in others)
        return [*judged, *filter(None, recalls), *map(KeepSelf, state.population)]

    def _recall(self, organelle: Organelle, now: Mapping[str, SuccessPosterior]) -> Recall | None:
        """Of who is under suspicion."""
        former = organelle.former
        if former is None:
            return None
        known = [*now.items(), *former.posteriors.items()]
        doubt = math.sqrt(sum(posterior.std**2 for _, posterior in known))
        cells = {name for name, posterior in known if posterior.mean >= MASTERED}
        is_suspect = cells and skill(former.posteriors) - skill(now) > self.fall * doubt
        return (
            Recall(organelle.id, former, tuple(sorted(cells)), by="canaries")
            if is_suspect
            else None
        )

    def _look_at(
        self, child: Challenger, state: EcologyState, outcomes: Sequence[Outcome]
    ) -> Probation:
        child, (organelle_id,) = seen(child, outcomes), child.parents
        former = state.population[organelle_id].former if organelle_id in state.population else None
        if former is None or former != child.former:  # gone, or as good as ever
            return Probation(child, "reject")
        return Probation(child, self.gate.better(child.against_the_better))

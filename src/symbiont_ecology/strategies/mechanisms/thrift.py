"""Less is enough: an organelle that can do its work tries to do it with a smaller ΔW, and keeps what does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    Belief,
    Candidate,
    Decision,
    EcologyState,
    Gate,
    Outcome,
    Probation,
    Propose,
    Tally,
    Trial,
)
from symbiont_ecology.ecology.gate import Part
from symbiont_ecology.operators.shrink import Shrink
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Scene
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import asked, homes, on_probation, seen
from symbiont_ecology.types import OrganelleId

ABLE = 0.5
"""Believed success in its cells from which an organelle tries."""
MOST = 260
"""Questions to both selves after which it is undecided for good."""


@mechanisms.register("thrift")
@dataclass(frozen=True)
class Thrift(Mechanism):
    """A leaner self answers the same fresh questions, and takes over once it is proven to lose little.

    Learning by verdicts pushes on long after an answer is right, and what an adapter is beyond need drowns
    what the host would do by itself: on the embedded host six tenths of a trained ΔW have all of its skill,
    and leave twice as much of what it was not trained for (docs/log.md).
    """

    first: PositiveInt = 40  # age in generations at the first try; each later one comes at twice the age
    share: PositiveShare = 0.7  # of its ΔW that the leaner self has
    questions: PositiveFloat = 0.5  # per cell and generation
    loss: Part = 0.05  # share of questions that the leaner self must be proven not to lose

    def ask(self, state: EcologyState, scene: Scene, draw: Draw) -> Sequence[Trial]:
        """The same questions to both selves, where the organelle is at home."""
        trying = on_probation(state, "thrift")
        return [t for child in trying for t in asked(child, self.questions, state, scene, draw)]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, room: Room, draw: Draw
    ) -> Sequence[Decision]:
        """What became of those who try; and who tries next."""
        trying = on_probation(state, "thrift")
        decisions: list[Decision] = [self._look_at(child, state, outcomes) for child in trying]
        busy = {parent for child in trying for parent in child.parents}
        return decisions + [self._try(who, state) for who in state.population if self._may(who, state, busy)]

    def _may(self, who: OrganelleId, state: EcologyState, busy: set[OrganelleId]) -> bool:
        count, rest = divmod(state.generation - state.population[who].born, self.first)
        if who in busy or rest or count.bit_count() != 1:
            return False
        own = [state.beliefs[who].get(name, Belief()).mean for name in homes(who, state)]
        return bool(own) and sum(own) >= ABLE * len(own)

    def _try(self, who: OrganelleId, state: EcologyState) -> Propose:
        genome, own = state.population[who].genome, {who: homes(who, state)}
        leaner, traits = Shrink(self.share), dict(genome.traits)
        return Propose(own, leaner, "thrift", traits, genome.rank, by="thrift", is_child=False)

    def _look_at(self, child: Candidate, state: EcologyState, outcomes: Sequence[Outcome]) -> Probation:
        child, (who,) = seen(child, outcomes), child.parents
        lost = set(child.cells[who]) - set(homes(who, state))
        if who not in state.population or 3 * len(lost) > len(child.cells[who]):  # it is about another home
            return Probation(child, "reject")
        verdict = Gate(loss=self.loss, most=MOST).kept(child.tallies[who].get(who, Tally()))
        return Probation(child, verdict, Shrink(self.share))

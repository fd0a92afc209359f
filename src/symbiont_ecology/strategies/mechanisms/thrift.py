"""Thrift: an organelle tries to do its work with a smaller ΔW, and keeps what is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Decision, EcologyState, Organelle, ProposeVariant
from symbiont_ecology.ecology.gate import Challenger, Gate, OpenShare, PairedCounts, Ruling
from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.operators.mutations import Shrink
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import ProbationMechanism, Room, homes, mechanisms

ABLE = 0.5
"""Mean success in its cells from which an organelle tries."""
MOST_QUESTIONS = 260
"""Questions to both after which the trial ends undecided."""


@mechanisms.register("thrift")
@dataclass(frozen=True)
class Thrift(ProbationMechanism):
    """A leaner variant answers the same fresh questions; it takes over if it loses little.

    Learning from verdicts goes on long after an answer is right. What an adapter has beyond need
    covers what the host would do by itself: on the embedded host six tenths of a trained ΔW have
    all of its skill, and keep twice as much of what it was not trained for (docs/log.md).
    """

    first: PositiveInt = 40  # age of the first try in generations; later ones at twice the age
    share: PositiveShare = 0.7  # of its ΔW that the leaner variant has
    questions: PositiveFloat = 0.5  # per cell and generation
    loss: OpenShare = 0.05  # share of questions that the variant must be proven not to lose
    by: ClassVar[str] = "thrift"

    def propose(self, context: StrategyContext) -> list[Decision]:
        """Which organelles try next."""
        state, busy = context.state, self.busy(context.state)
        return [
            ProposeVariant(name, homes(name, state), self.variation, self.by, by=self.by)
            for name, organelle in state.population.items()
            if name not in busy and self._may_try(organelle, state)
        ]

    @property
    def variation(self) -> Shrink:
        """What makes an organelle leaner."""
        return Shrink(self.share)

    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> Ruling:
        """Whether an organelle becomes its leaner variant."""
        (parent,) = challenger.parents
        lost_cells = set(challenger.cells[parent]) - set(homes(parent, state))
        if 3 * len(lost_cells) > len(challenger.cells[parent]):
            return Ruling("reject", "its parent is at home elsewhere by now")
        pairs = challenger.counts[parent].get(parent, PairedCounts())
        verdict = Gate(loss=self.loss, most=MOST_QUESTIONS).kept(pairs)
        return Ruling(verdict, "it loses too much at home" if verdict == "reject" else "")

    def _may_try(self, organelle: Organelle, state: EcologyState) -> bool:
        count, rest = divmod(state.generation - organelle.born, self.first)
        if rest or count.bit_count() != 1:
            return False
        posteriors, cells = state.posteriors.get(organelle.id, {}), homes(organelle.id, state)
        rates = [posteriors.get(name, SuccessPosterior()).mean for name in cells]
        return bool(rates) and sum(rates) >= ABLE * len(rates)

"""Thrift: an organelle tries to do its work with a smaller ΔW, and keeps what is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    Assignment,
    Challenger,
    Decision,
    EcologyState,
    Gate,
    Judge,
    Outcome,
    PairedCounts,
    ProposeVariant,
    SuccessPosterior,
)
from symbiont_ecology.ecology.gate import OpenShare
from symbiont_ecology.operators.shrink import Shrink
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import (
    comparison_questions,
    homes,
    on_probation,
    with_new_counts,
)
from symbiont_ecology.types import OrganelleId

ABLE = 0.5
"""Mean success in its cells from which an organelle tries."""
MOST_QUESTIONS = 260
"""Questions to both after which the trial ends undecided."""


@mechanisms.register("thrift")
@dataclass(frozen=True)
class Thrift(Mechanism):
    """A leaner variant answers the same fresh questions; it takes over if it loses little.

    Learning by verdicts goes on long after an answer is right. What an adapter has beyond need
    covers what the host would do by itself: on the embedded host six tenths of a trained ΔW have
    all of its skill, and keep twice as much of what it was not trained for (docs/log.md).
    """

    first: PositiveInt = 40  # age of the first try in generations; later ones at twice the age
    share: PositiveShare = 0.7  # of its ΔW that the leaner variant has
    questions: PositiveFloat = 0.5  # per cell and generation
    loss: OpenShare = 0.05  # share of questions that the variant must be proven not to lose

    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """The same questions to both, where the organelle is at home."""
        return [
            assignment
            for variant in on_probation(state, "thrift")
            for assignment in comparison_questions(variant, self.questions, state, context, draw)
        ]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        context: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of variants on probation, and which organelles try next."""
        variants = on_probation(state, "thrift")
        decisions: list[Decision] = [self._judge(one, state, outcomes) for one in variants]
        busy = {parent for variant in variants for parent in variant.parents}
        return decisions + [
            ProposeVariant(one, homes(one, state), Shrink(self.share), "thrift", by="thrift")
            for one in state.population
            if one not in busy and self._may_try(one, state)
        ]

    def _may_try(self, organelle_id: OrganelleId, state: EcologyState) -> bool:
        age = state.generation - state.population[organelle_id].born
        count, rest = divmod(age, self.first)
        if rest or count.bit_count() != 1:
            return False
        posteriors = state.posteriors.get(organelle_id, {})
        rates = [
            posteriors.get(name, SuccessPosterior()).mean for name in homes(organelle_id, state)
        ]
        return bool(rates) and sum(rates) >= ABLE * len(rates)

    def _judge(
        self, variant: Challenger, state: EcologyState, outcomes: Sequence[Outcome]
    ) -> Judge:
        variant = with_new_counts(variant, outcomes)
        (parent,) = variant.parents
        lost = set(variant.cells[parent]) - set(homes(parent, state))
        if parent not in state.population or 3 * len(lost) > len(variant.cells[parent]):
            return Judge(variant, "reject")  # it is about another home
        pairs = variant.counts[parent].get(parent, PairedCounts())
        decision = Gate(loss=self.loss, most=MOST_QUESTIONS).kept(pairs)
        return Judge(variant, decision, Shrink(self.share))

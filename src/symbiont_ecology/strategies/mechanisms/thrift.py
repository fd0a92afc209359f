"""Less is enough: an organelle that can do its work tries to do it with a smaller ΔW, and keeps
what does."""

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
    Outcome,
    PairedCounts,
    Probation,
    Propose,
    SuccessPosterior,
)
from symbiont_ecology.ecology.gate import OpenShare
from symbiont_ecology.operators.shrink import Shrink
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import asked, homes, on_probation, seen
from symbiont_ecology.types import OrganelleId

ABLE = 0.5
"""Believed success in its cells from which an organelle tries."""
MOST_QUESTIONS = 260
"""Questions to both selves after which it is undecided for good."""


@mechanisms.register("thrift")
@dataclass(frozen=True)
class Thrift(Mechanism):
    """A leaner self answers the same fresh questions, and takes over once it is proven to lose
    little.

    Learning by verdicts pushes on long after an answer is right, and what an adapter is beyond need
    drowns what the host would do by itself: on the embedded host six tenths of a trained ΔW have
    all of its skill, and leave twice as much of what it was not trained for (docs/log.md).
    """

    first: PositiveInt = (
        40  # age in generations at the first try; each later one comes at twice the age
    )
    share: PositiveShare = 0.7  # of its ΔW that the leaner self has
    questions: PositiveFloat = 0.5  # per cell and generation
    loss: OpenShare = 0.05  # share of questions that the leaner self must be proven not to lose

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """The same questions to both selves, where the organelle is at home."""
        trying = on_probation(state, "thrift")
        return [t for child in trying for t in asked(child, self.questions, state, scene, draw)]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        scene: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of those who try; and who tries next."""
        trying = on_probation(state, "thrift")
        decisions: list[Decision] = [self._look_at(child, state, outcomes) for child in trying]
        busy = {parent for child in trying for parent in child.parents}
        return decisions + [
            self._try(organelle_id, state)
            for organelle_id in state.population
            if self._may(organelle_id, state, busy)
        ]

    def _may(self, organelle_id: OrganelleId, state: EcologyState, busy: set[OrganelleId]) -> bool:
        count, rest = divmod(state.generation - state.population[organelle_id].born, self.first)
        if organelle_id in busy or rest or count.bit_count() != 1:
            return False
        own = [
            state.posteriors[organelle_id].get(name, SuccessPosterior()).mean
            for name in homes(organelle_id, state)
        ]
        return bool(own) and sum(own) >= ABLE * len(own)

    def _try(self, organelle_id: OrganelleId, state: EcologyState) -> Propose:
        genome, own = (
            state.population[organelle_id].genome,
            {organelle_id: homes(organelle_id, state)},
        )
        leaner, traits = Shrink(self.share), dict(genome.traits)
        return Propose(own, leaner, "thrift", traits, genome.rank, by="thrift", is_child=False)

    def _look_at(
        self, child: Challenger, state: EcologyState, outcomes: Sequence[Outcome]
    ) -> Probation:
        child, (organelle_id,) = seen(child, outcomes), child.parents
        lost = set(child.cells[organelle_id]) - set(homes(organelle_id, state))
        if organelle_id not in state.population or 3 * len(lost) > len(
            child.cells[organelle_id]
        ):  # it is about another home
            return Probation(child, "reject")
        verdict = Gate(loss=self.loss, most=MOST_QUESTIONS).kept(
            child.tallies[organelle_id].get(organelle_id, PairedCounts())
        )
        return Probation(child, verdict, Shrink(self.share))

"""Writes down what was asked in a generation, and what was replied."""

import math
from collections.abc import Iterator, Sequence

from symbiont_ecology.ecology import Outcome
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.transcripts import Transcript
from symbiont_ecology.types import cell_name, examples_in, last_turn


def transcribe(outcomes: Sequence[Outcome], turn: Turn) -> Iterator[Transcript]:
    """A transcript of every reply, with the price that its cell had when it was paid. A reference
    answer that was only read is no reply."""
    for outcome in outcomes:
        assignment, is_paid = outcome.assignment, outcome.assignment.is_practice
        price = turn.prices.price(turn.state.success_at(assignment)) if is_paid else 0
        for rollout in (r for r in outcome.rollouts if r.has_verdict):
            yield Transcript(
                turn.state.generation,
                assignment.organelle_id,
                assignment.purpose,
                cell_name(assignment.cell),
                rollout.item.id,
                last_turn(rollout.item.prompt),
                rollout.text,
                verdict=rollout.verdict,
                price=math.floor(price),
                confidence=rollout.confidence if math.isfinite(rollout.confidence) else None,
                habitat=rollout.item.habitat,
                target=rollout.item.answer,
                examples=examples_in(rollout.item.prompt),
            )

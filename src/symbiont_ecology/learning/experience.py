"""What a learning rule sees of a generation, and what it wants to be learned from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from symbiont_ecology.ecology import Outcome, RememberedAnswer, Rollout
from symbiont_ecology.types import Item
from symbiont_ecology.weights.traces import Trace


@dataclass(frozen=True)
class Experience:
    """One generation of one organelle: its practice, an outcome for each cell, and its notes.

    ``traits`` are those of its genome. ``reference_ids`` are the token ids of reference answers by
    their text, end of answer included; empty unless the rule sees gold answers. ``remembered`` are
    accepted answers of the habitats that it serves, if the rule replays.
    """

    outcomes: tuple[Outcome, ...]
    notes: Mapping[str, float]
    traits: Mapping[str, float] = field(default_factory=dict)
    reference_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remembered: tuple[RememberedAnswer, ...] = ()


@dataclass(frozen=True)
class WeightedTarget:
    """Raise (weight > 0) or lower (weight < 0) the log-probability of this answer to this item.

    ``weight`` is one number for the whole answer, or one for each token. With a ``trace`` the
    answer is learned from without a backward pass.
    """

    item: Item
    token_ids: tuple[int, ...]
    weight: float | tuple[float, ...]
    trace: Trace | None = None

    @classmethod
    def of(cls, rollout: Rollout, weight: float | tuple[float, ...]) -> WeightedTarget:
        """The rollout's own answer."""
        return cls(rollout.item, rollout.token_ids, weight, rollout.trace)


Targets = tuple[Sequence[WeightedTarget], Mapping[str, float]]
"""What to learn from a generation, and the notes to keep for the next."""

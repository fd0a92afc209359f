"""What a learning rule sees of a generation, and what it wants to be learned from it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from symbiont_ecology.ecology import Outcome, RememberedAnswer, Rollout
from symbiont_ecology.fence import FaultError
from symbiont_ecology.types import Item, cell_name
from symbiont_ecology.weights.traces import Trace


@dataclass(frozen=True)
class Experience:
    """One generation of one organelle: its practice, an outcome for each cell (and habitat),
    and its notes.

    ``traits`` are those of its genome. ``reference_ids`` are the token ids of reference answers by
    their text, end of answer included; empty unless the rule sees gold answers. ``remembered`` are
    right answers to learn again, if the rule replays: of the habitats that it serves, or of its
    cells.
    """

    outcomes: tuple[Outcome, ...]
    notes: Mapping[str, float]
    traits: Mapping[str, float] = field(default_factory=dict)
    reference_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remembered: tuple[RememberedAnswer, ...] = ()

    def rewards_by_cell(self) -> dict[str, list[float]]:
        """Of all rollouts, by the name of their cell; where users ask, a cell has many outcomes."""
        rewards = defaultdict[str, list[float]](list)
        for outcome in self.outcomes:
            cell = cell_name(outcome.assignment.cell)
            rewards[cell] += [rollout.reward for rollout in outcome.rollouts]
        return {cell: own for cell, own in rewards.items() if own}


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
MOST_TARGETS = 100_000
"""That a rule may want at once."""
LARGEST_WEIGHT = 1e6
"""Of a token: with larger ones, losses and gradients overflow."""


def checked_targets(said: object, vocab: int) -> Targets:
    """What a learning rule returned, if a host with so many tokens can learn it.

    Raises:
        FaultError: it is no pair of targets and notes, a token is none of the host's, or a number
            is not finite.
    """
    if not isinstance(said, tuple) or len(said) != 2 or not isinstance(said[1], Mapping):
        raise FaultError(f"returned {said!r:.60}, expected targets and notes")
    targets, notes = tuple(islice(said[0], MOST_TARGETS + 1)), said[1]
    if len(targets) > MOST_TARGETS:
        raise FaultError(f"returned more than {MOST_TARGETS} targets")
    for target in targets:
        if not isinstance(target, WeightedTarget) or not isinstance(target.item, Item):
            raise FaultError(f"returned {target!r:.60}, expected a WeightedTarget")
        _check_numbers(target, vocab)
    for name, note in notes.items():
        if not (isinstance(name, str) and isinstance(note, int | float) and math.isfinite(note)):
            raise FaultError(f"returned the note {name!r:.60}: {note!r:.60}, expected a number")
    return targets, notes


def _check_numbers(target: WeightedTarget, vocab: int) -> None:
    """Whether tokens are the host's, and every weight is a finite number."""
    tokens, weight = target.token_ids, target.weight
    are_tokens = isinstance(tokens, tuple) and set(map(type, tokens)) <= {int}
    if not are_tokens or (tokens and not 0 <= min(tokens) <= max(tokens) < vocab):
        raise FaultError(f"returned the tokens {tokens!r:.60}, expected numbers below {vocab}")
    weights = weight if isinstance(weight, tuple) else (weight,)
    if isinstance(weight, tuple) and len(weight) != len(tokens):
        raise FaultError(f"returned {len(weight)} weights for {len(tokens)} tokens")
    if not all(isinstance(w, int | float) and abs(w) <= LARGEST_WEIGHT for w in weights):
        most = f"numbers from {-LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
        raise FaultError(f"returned the weight {weight!r:.60}, expected {most}")

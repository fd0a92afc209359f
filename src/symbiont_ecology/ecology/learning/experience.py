"""Experience: what a learning rule sees of a generation, what it wants to be learned from it, and
how another gradient estimator than a backward pass learns it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

import numpy as np

from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.fence import FaultError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    Completions,
    Decoding,
    Item,
    LearningStatistics,
    Request,
    cell_name,
)
from symbiont_ecology.ecology import Organelle, Outcome, RememberedAnswer, Rollout

MAX_TARGETS = 100_000
"""That a rule may want at once."""
MAX_WEIGHT = 1e6
"""Of a token: with larger ones, losses and gradients overflow."""


@dataclass(frozen=True)
class Experience:
    """One generation of one organelle: its practice, an outcome for each cell (and user),
    and its notes.

    ``reference_ids`` are the token ids of reference answers by their text, end of answer included;
    empty unless the rule sees gold answers. ``remembered`` are right answers to learn again, if the
    rule replays: of the users that it serves, or of its cells.
    """

    outcomes: tuple[Outcome, ...]
    notes: Mapping[str, float]
    reference_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remembered: tuple[RememberedAnswer, ...] = ()

    def rewards_by_cell(self) -> dict[str, list[float]]:
        """Return those of all rollouts, by the name of their cell; where users ask, a cell has
        many outcomes."""
        rewards = defaultdict[str, list[float]](list)
        for outcome in self.outcomes:
            cell = cell_name(outcome.assignment.cell)
            rewards[cell] += [rollout.reward for rollout in outcome.rollouts]
        return {cell: own for cell, own in rewards.items() if own}

    def replayed(self, weight: float = 1.0) -> list[WeightedTarget]:
        """Return the remembered answers as targets."""
        return [WeightedTarget(one.item, one.token_ids, weight) for one in self.remembered]


@dataclass(frozen=True)
class WeightedTarget:
    """Raise (weight > 0) or lower (weight < 0) the log-probability of this answer to this item.

    ``weight`` is one number for the whole answer, or one for each token. ``extra`` is the
    rollout's.
    """

    item: Item
    token_ids: tuple[int, ...]
    weight: float | tuple[float, ...]
    extra: object = None

    @classmethod
    def of(cls, rollout: Rollout, weight: float | tuple[float, ...]) -> WeightedTarget:
        """Return the rollout's own answer as a target."""
        return cls(rollout.item, rollout.token_ids, weight, rollout.extra)


Targets = tuple[Sequence[WeightedTarget], Mapping[str, float]]
"""What to learn from a generation, and the notes to keep for the next."""


@dataclass(frozen=True)
class PricedLesson:
    """A target with its prompt as the learner reads it, and what its lesson takes alone."""

    target: WeightedTarget
    prompt: str
    cost: Cost


@dataclass(frozen=True)
class Learner:
    """An organelle in a slot, with the lessons of one step and its learning rate.

    ``reading_flops`` is what the host's log-probabilities of its answers took, by cell name.
    """

    organelle: Organelle
    slot: int
    weights: AdapterWeights
    optimizer_state: OptimizerState
    rate: float
    lessons: Sequence[PricedLesson] = ()
    reading_flops: Mapping[str, int] = field(default_factory=dict)


LearnedSlots: TypeAlias = tuple[
    dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics
]
"""What ``Host.learn`` returns, by slot."""


class Estimator(Protocol):
    """A gradient estimator of its own, for a rule that does without a backward pass.

    ``host`` is the kernel itself (``model.kernel.HostKernel``), in this process.
    """

    def rollout(
        self,
        host: Any,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None],
        decoding: Decoding,
    ) -> tuple[Completions, Sequence[object]]:
        """Answer rows as ``Host.rollout`` does; also return the ``Rollout.extra`` of each."""

    def cost(self, host: Any, rank: int, target: WeightedTarget) -> Cost:
        """Return what the lesson of a target takes, for an adapter of that rank."""

    def learn(self, learners: Sequence[Learner], draw: Draw) -> LearnedSlots:
        """Make a step of each learner, some of which have no lessons, and return what changed.
        A step that is not finite will not be taken."""


def checked_targets(said: object, vocab: int) -> Targets:
    """Return what a learning rule said, if a host with so many tokens can learn it.

    Raises:
        FaultError: it is no pair of targets and notes, a token is none of the host's, or a number
            is not finite.
    """
    if not isinstance(said, tuple) or len(said) != 2 or not isinstance(said[1], Mapping):
        raise FaultError(f"returned {said!r:.60}, expected targets and notes")
    targets, notes = tuple(islice(said[0], MAX_TARGETS + 1)), said[1]
    if len(targets) > MAX_TARGETS:
        raise FaultError(f"returned more than {MAX_TARGETS} targets")
    for target in targets:
        if not isinstance(target, WeightedTarget) or not isinstance(target.item, Item):
            raise FaultError(f"returned {target!r:.60}, expected a WeightedTarget")
        tokens, weight = target.token_ids, target.weight
        are_tokens = isinstance(tokens, tuple) and set(map(type, tokens)) <= {int}
        if not are_tokens or (tokens and not 0 <= min(tokens) <= max(tokens) < vocab):
            raise FaultError(f"returned the tokens {tokens!r:.60}, expected numbers below {vocab}")
        weights = weight if isinstance(weight, tuple) else (weight,)
        is_whole = len(weights) in ({len(tokens)} if isinstance(weight, tuple) else {1})
        if not is_whole or not all(_is_weight(one) for one in weights):
            raise FaultError(
                f"returned the weight {weight!r:.60}, expected numbers from {-MAX_WEIGHT:g} to "
                f"{MAX_WEIGHT:g}, one or as many as there are tokens ({len(tokens)})"
            )
    for name, note in notes.items():
        if not (isinstance(name, str) and isinstance(note, int | float) and math.isfinite(note)):
            raise FaultError(f"returned the note {name!r:.60}: {note!r:.60}, expected a number")
    return targets, notes


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_WEIGHT

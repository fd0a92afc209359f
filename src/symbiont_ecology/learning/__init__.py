"""Learning within a life: rules that turn outcomes into one batch of lessons. One rule per file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from symbiont_ecology.ecology import Outcome
from symbiont_ecology.registry import Registry
from symbiont_ecology.types import Item
from symbiont_ecology.weights.traces import Trace


@dataclass(frozen=True)
class Experience:
    """One generation of one organelle: its practice, what each rollout is worth, and its own
    notes."""

    outcomes: tuple[Outcome, ...]
    rewards: tuple[tuple[float, ...], ...]
    """Per outcome, one number per rollout, by the run's reward rule."""
    notes: Mapping[str, float]
    golds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Per outcome, the gold answer of each item as token ids, end of answer included; empty unless
    the rule sees gold."""
    traits: Mapping[str, float] = field(default_factory=dict)
    """Of the organelle's genome."""


@dataclass(frozen=True)
class WeightedTarget:
    """Raise (weight > 0) or lower (weight < 0) the probability of this completion to this item."""

    item: Item
    completion: tuple[int, ...]
    weight: float
    trace: Trace | None = None
    """What the rollout left behind; it is then learned from without a backward pass."""


class LearningRule(Protocol):
    """A rule of learning. Frozen; what it must remember goes into the organelle's notes.

    With a field ``perturbation`` above 0 everyone practises under noise of that standard deviation
    on what A makes of its inputs, and outcomes hold the traces of their rollouts. With a field
    ``rules`` everyone learns by a rule of their own, by the trait ``ecology.RULE`` that whoever
    comes without parents is given.
    """

    sees_gold: ClassVar[bool]
    """Whether it uses gold answers and not verdicts alone."""

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """What to learn from a generation, and the notes to keep."""


learning_rules: Registry[LearningRule] = Registry("plasticity", "symbiont_ecology.learning")

"""Which rule an organelle learns by is in its genome, so evolution chooses among rules of learning.

Selection then acts on how one comes to know, too (Chalmers 1990, who evolved the delta rule; Ackley
& Littman 1991, whose agents inherit what they take for success).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from symbiont_ecology.ecology import RULE
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.learning import Experience, LearningRule, WeightedTarget, learning_rules
from symbiont_ecology.registry import Spec


@learning_rules.register("heritable")
@dataclass(frozen=True)
class Heritable:
    """Everyone learns by a rule of their own: the trait ``rule`` in [0, 1) points at one of equal
    parts.

    Who comes without parents is given one, evenly spread; a child has its parent's, or seldom
    another. Who has no such trait learns by the first rule.
    """

    rules: tuple[Spec, ...] = (
        "expert_iteration",
        "policy_gradient",
    )  # to choose from, all without gold
    sees_gold: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.rules or not all(map(_is_fit, self.built)):
            raise ConfigError(
                "rules: expected one or more that see no gold, perturb nothing and are not heritable "
                f"themselves, got {list(self.rules)}"
            )

    @cached_property
    def built(self) -> tuple[LearningRule, ...]:
        """The rules, in the order in which the trait points at them."""
        return tuple(map(learning_rules.build, self.rules))

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """What one's own rule makes of it."""
        return self.built[int(lived.traits.get(RULE, 0.0) * len(self.built))].learn(lived)


def _is_fit(rule: LearningRule) -> bool:
    """Whether organelles can differ in having it."""
    return not (
        rule.sees_gold or getattr(rule, "perturbation", False) or isinstance(rule, Heritable)
    )

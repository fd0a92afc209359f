"""Heritable rules: evolution chooses among learning rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.ecology import RULE
from symbiont_ecology.ecology.learning import LearningRule, learning_rules
from symbiont_ecology.ecology.learning.experience import Experience, Targets

_COMMON_NEEDS = (
    "rule_count",
    "sees_gold",
    "needs_host_log_probabilities",
    "least_samples",
    "estimator",
    "replay",
    "temperature",
)
"""Attributes of a rule in which organelles of one population cannot differ."""


@learning_rules.register("heritable")
@dataclass(frozen=True)
class Heritable(LearningRule):
    """Everyone learns by a rule of their own: the trait ``rule`` in [0, 1) chooses one of them, so
    that evolution chooses among learning rules (Chalmers 1990, who evolved the delta rule; Ackley
    & Littman 1991, whose agents inherit what they take for success).

    Newcomers without parents are given one, evenly spread. A child has its parent's rule, or
    seldom another. An organelle without the trait learns by the first rule.
    """

    rules: tuple[Spec, ...] = ("expert_iteration", "policy_gradient")  # without gold

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("rules: expected the name of one or more, got none")
        for number, rule in enumerate(self.built):
            for need in _COMMON_NEEDS:
                usual, own = getattr(LearningRule, need), getattr(rule, need)
                if own != usual:
                    raise ConfigError(
                        f"rules.{number}: expected a rule whose {need} is {usual!r}, since all "
                        f"organelles would have it, got {kind_of(self.rules[number])!r} with "
                        f"{own!r:.60}: leave it out, or change that"
                    )

    @cached_property
    def built(self) -> tuple[LearningRule, ...]:
        """The rules, in the order in which the trait chooses among them."""
        return tuple(map(learning_rules.build, self.rules))

    @property
    def needs_verdicts(self) -> bool:  # type: ignore[override]
        """True where one of the rules needs them."""
        return any(rule.needs_verdicts for rule in self.built)

    @property
    def rule_count(self) -> int:  # type: ignore[override]
        """Number of rules."""
        return len(self.rules)

    def targets(self, experience: Experience) -> Targets:
        index = int(experience.traits.get(RULE, 0.0) * len(self.built))
        return self.built[index].targets(experience)

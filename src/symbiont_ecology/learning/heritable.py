"""Which rule an organelle learns by is in its genome, so evolution chooses among learning rules.

Selection then acts on how organelles learn, too (Chalmers 1990, who evolved the delta rule; Ackley
& Littman 1991, whose agents inherit what they take for success).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from symbiont_ecology.ecology import RULE
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.learning import Experience, LearningRule, Targets, learning_rules
from symbiont_ecology.registry import Spec, kind_of


@learning_rules.register("heritable")
@dataclass(frozen=True)
class Heritable(LearningRule):
    """Everyone learns by a rule of their own: the trait ``rule`` in [0, 1) chooses one of them.

    Newcomers without parents are given one, evenly spread. A child has its parent's rule, or
    seldom another. An organelle without the trait learns by the first rule.
    """

    rules: tuple[Spec, ...] = ("expert_iteration", "policy_gradient")  # without gold

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("rules: expected the name of one or more, got none")
        for number, rule in enumerate(self.built):
            if fault := _fault(rule):
                name = kind_of(self.rules[number])
                raise ConfigError(f"rules.{number}: {name!r} {fault}")

    @cached_property
    def built(self) -> tuple[LearningRule, ...]:
        """The rules, in the order in which the trait chooses among them."""
        return tuple(map(learning_rules.build, self.rules))

    @property
    def needs_verdicts(self) -> bool:  # type: ignore[override]
        """Whether one of the rules does."""
        return any(rule.needs_verdicts for rule in self.built)

    @property
    def rule_count(self) -> int:  # type: ignore[override]
        """How many rules there are."""
        return len(self.rules)

    def targets(self, experience: Experience) -> Targets:
        """The targets of the organelle's own rule."""
        index = int(experience.traits.get(RULE, 0.0) * len(self.built))
        return self.built[index].targets(experience)


def _fault(rule: LearningRule) -> str:
    """Why organelles cannot differ in having this rule, and what to do; empty if they can."""
    usual = LearningRule.temperature
    faults = (
        (isinstance(rule, Heritable), "chooses among rules itself: name them here"),
        (rule.sees_gold, "sees gold answers, which not all do: leave it out"),
        (rule.needs_host_log_probabilities, "asks the bare host, which not all do: leave it out"),
        (rule.least_samples > 1, "compares answers to a question, which not all do: leave it out"),
        (rule.perturbation > 0, "needs noise in answers, which all would have: leave it out"),
        (rule.replay > 0, "replays answers, which all would learn: set its replay to 0"),
        (rule.temperature != usual, f"answers at a temperature of its own: set that to {usual:g}"),
    )
    return next((fault for is_so, fault in faults if is_so), "")

"""Learning within a life: rules that map rollouts to weighted targets, and what a rollout is worth.

A rule of one's own is one file: ``examples/grpo_kl.py``.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning.experience import (
    Estimator,
    Experience,
    Targets,
    WeightedTarget,
)


class LearningRule(ABC):
    """A rule of learning. Frozen: what it must remember goes into notes, which are kept with
    the organelle's optimizer state.

    A subclass declares what it needs.

    Attributes:
        sees_gold: it uses reference answers, not verdicts alone.
        needs_log_probabilities: of replies that were given in the past. They cost a forward pass.
        needs_host_log_probabilities: rollouts come with the bare host's log-probabilities of their
            tokens. They cost one forward pass without adapters.
        temperature: of sampling in practice. Log-probabilities are those of temperature 1, so
            another one is only for rules that do not compare them.
        estimator: what answers in practice and learns in place of the kernel's backward pass.
        replay: remembered right answers for each rollout of a generation: those of users, or of
            cells where there are no users.
        least_samples: rollouts per question without which there is nothing to compare.
        needs_verdicts: it takes a reward of 1 for right, so it needs one that follows the verdict.
    """

    sees_gold: ClassVar[bool] = False
    needs_log_probabilities: ClassVar[bool] = True
    needs_host_log_probabilities: ClassVar[bool] = False
    temperature: float = 1.0
    estimator: Estimator | None = None
    replay: float = 0.0
    least_samples: ClassVar[int] = 1
    needs_verdicts: ClassVar[bool] = False

    @abstractmethod
    def targets(self, experience: Experience) -> Targets:
        """Return what to learn from a generation, and the notes to keep."""


class RewardRule(ABC):
    """Worth of a rollout to learning, more for the better. Revenue and accuracy use the verdict. A
    subclass declares what it is and what it needs.

    Attributes:
        sees_gold: it uses more of the reference answer than the verdict.
        follows_verdict: it is 1 for what the verifier accepts, and from 0 to less than 1 for all
            else.
        reads: it is about reference answers. In practice nobody replies: rollouts are reference
            answers with the log-probabilities that they have. They have no verdict.
    """

    sees_gold: ClassVar[bool] = False
    follows_verdict: ClassVar[bool] = False
    reads: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, rollout: Rollout) -> float:
        """Return the reward of a rollout that the verifier has judged."""


learning_rules: Registry[LearningRule] = Registry(
    "learning rule", "symbiont_ecology.ecology.learning"
)
reward_rules: Registry[RewardRule] = Registry("reward rule", __name__)

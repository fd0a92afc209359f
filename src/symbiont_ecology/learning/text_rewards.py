"""Rewards by text: what a reply is worth beside a reference answer. All of them see gold answers.

For strategies that only need to know what is better (``strategies``: es, genetic), and as partial
credit for a policy gradient. Verdicts, revenue and accuracy stay what the verifier says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.errors import MissingExtraError
from symbiont_ecology.extensions.worlds.countdown import is_expression
from symbiont_ecology.learning import RewardRule, reward_rules
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks.grading import LONGEST_REPLY, ReferenceVerifier, graders
from symbiont_ecology.tasks.verification import judge

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 0.1
"""What an answer of the right form earns, right or wrong."""


@reward_rules.register("graded")
@dataclass(frozen=True)
class GradedReward(RewardRule):
    """What a grader gives, such as ``contains``, ``number`` or one's own, within its time
    limit."""

    grader: Spec = "stated"  # compares the reply with the reference answer
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        graders.build(self.grader)  # a mistake shows before a host is loaded

    def __call__(self, rollout: Rollout) -> float:
        """The grade, in [0, 1]; 0 for a grader that fails."""
        verifier = ReferenceVerifier(graders.build(self.grader), (rollout.item.answer,))
        (judgement,) = judge([(replace(rollout.item, verifier=verifier), rollout.text)])
        return judgement.verdict


@reward_rules.register("conciseness")
@dataclass(frozen=True)
class ConcisenessReward(RewardRule):
    """How near the reply's length is to that of the reference answer, in characters: 0 at best
    (Qiu et al. 2025, arXiv:2509.24372). What the reply says does not count."""

    sees_gold: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        """−|length − length of the reference answer|."""
        return -float(abs(len(rollout.text) - len(rollout.item.answer)))


@reward_rules.register("countdown")
@dataclass(frozen=True)
class CountdownReward(RewardRule):
    """A tenth for an arithmetic expression, and one for the right one (Pan et al. 2025,
    TinyZero)."""

    def __call__(self, rollout: Rollout) -> float:
        """From 0 to 1.1."""
        return FORMAT * is_expression(rollout.text.strip()) + rollout.verdict


@reward_rules.register("overlap")
@dataclass(frozen=True)
class OverlapReward(RewardRule):
    """How much of the reference answer the reply says: chrF (Popović 2015), BLEU (Papineni et al.
    2002, smoothed) or ROUGE-L (Lin 2004), through their own libraries."""

    metric: Literal["chrf", "bleu", "rouge_l"] = "chrf"  # which of them
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _metric(self.metric)  # a package that is not there shows before a host is loaded

    def __call__(self, rollout: Rollout) -> float:
        """The share, in [0, 1]."""
        return _metric(self.metric)(rollout.text[:LONGEST_REPLY], rollout.item.answer)


@reward_rules.register("log_probability")
@dataclass(frozen=True)
class LogProbabilityReward(RewardRule):
    """Mean log-probability of a token of the reference answer, its end included, in nats: 0 at
    best. Nobody replies: the answer is read, so even those who would all be wrong differ."""

    sees_gold: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        """From −∞ to 0."""
        return rollout.confidence


@cache
def _metric(name: str) -> Callable[[str, str], float]:
    """A metric of a reply and a reference answer, in [0, 1].

    Raises:
        MissingExtraError: its package is not installed.
    """
    try:
        if name == "rouge_l":
            from rouge_score.rouge_scorer import RougeScorer

            scorer = RougeScorer(["rougeL"])
            return lambda reply, answer: float(scorer.score(answer, reply)["rougeL"].fmeasure)
        from sacrebleu import sentence_bleu, sentence_chrf
    except ImportError as error:
        package = "rouge-score" if name == "rouge_l" else "sacrebleu"
        raise MissingExtraError(f"the reward {name}", package, "rewards") from error
    compare = sentence_bleu if name == "bleu" else sentence_chrf
    return lambda reply, answer: float(compare(reply, [answer]).score) / 100

"""Rewards by text: what a reply is worth beside a reference answer, by metrics of other libraries.

For strategies that only need to know what is better (es, genetic), and as partial credit for a
policy gradient. Verdicts, revenue and accuracy stay what the verifier says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from symbiont_ecology.base.errors import MissingExtraError
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS, ReferenceVerifier, graders
from symbiont_ecology.tasks.verification import judge


@reward_rules.register("shaped")
@dataclass(frozen=True)
class ShapedReward(RewardRule):
    """The verdict, or part of ``ceiling`` if that is more: the smaller the edit distance to the
    reference answer, the larger the part.

    It sees gold answers, and tables must say so. What is less than a full verdict earns less than a
    full verdict. A reply is cut at twice the answer's length and four characters.
    """

    ceiling: Annotated[float, Field(ge=0, lt=1)] = 0.4  # most that nearness earns, in [0, 1)
    sees_gold: ClassVar[bool] = True
    follows_verdict: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        answer = rollout.item.answer
        if rollout.verdict >= 1:
            return rollout.verdict
        reply = rollout.text.strip()[: 2 * len(answer) + 4]
        longest = max(len(reply), len(answer), 1)
        nearness = self.ceiling * (1 - edit_distance(reply, answer) / longest)
        return max(rollout.verdict, nearness)


@reward_rules.register("conciseness")
@dataclass(frozen=True)
class ConcisenessReward(RewardRule):
    """−|length of the reply − length of the reference answer|, in characters: 0 at best (Qiu et al.
    2025, arXiv:2509.24372). What the reply says does not count."""

    sees_gold: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        return -float(abs(len(rollout.text) - len(rollout.item.answer)))


@reward_rules.register("log_probability")
@dataclass(frozen=True)
class LogProbabilityReward(RewardRule):
    """Mean log-probability of a token of the reference answer, its end included, in nats: 0 at
    best. Nobody replies: the answer is read, so even those who would all be wrong differ."""

    sees_gold: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        return rollout.confidence


@reward_rules.register("graded")
@dataclass(frozen=True)
class GradedReward(RewardRule):
    """Grade by a grader such as ``contains``, ``number`` or one's own, in [0, 1]; 0 where it fails
    or takes too long."""

    grader: Spec = "stated"  # compares the reply with the reference answer
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        graders.build(self.grader)  # a mistake shows before a host is loaded

    def __call__(self, rollout: Rollout) -> float:
        verifier = ReferenceVerifier(graders.build(self.grader), (rollout.item.answer,))
        (judgement,) = judge([(replace(rollout.item, verifier=verifier), rollout.text)])
        return judgement.verdict


@reward_rules.register("overlap")
@dataclass(frozen=True)
class OverlapReward(RewardRule):
    """Share of the reference answer that the reply says, in [0, 1]: chrF (Popović 2015), BLEU
    (Papineni et al. 2002, smoothed) or ROUGE-L (Lin 2004), through their own libraries."""

    metric: Literal["chrf", "bleu", "rouge_l"] = "chrf"  # which of them
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _overlap(self.metric)  # a package that is not there shows before a host is loaded

    def __call__(self, rollout: Rollout) -> float:
        return _overlap(self.metric)(rollout.text[:MAX_REPLY_CHARS], rollout.item.answer)


@cache
def _overlap(metric: str) -> Callable[[str, str], float]:
    try:
        if metric == "rouge_l":
            from rouge_score.rouge_scorer import RougeScorer

            scorer = RougeScorer(["rougeL"])
            return lambda reply, answer: float(scorer.score(answer, reply)["rougeL"].fmeasure)
        from sacrebleu import sentence_bleu, sentence_chrf
    except ImportError as error:
        package = "rouge-score" if metric == "rouge_l" else "sacrebleu"
        raise MissingExtraError(f"the reward {metric}", package, "rewards") from error
    compare = sentence_bleu if metric == "bleu" else sentence_chrf
    return lambda reply, answer: float(compare(reply, [answer]).score) / 100


def edit_distance(left: str, right: str) -> int:
    """Return the Levenshtein distance in characters."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]

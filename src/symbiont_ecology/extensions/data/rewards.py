"""Rewards by text: what a reply is worth beside a reference answer, by metrics of other libraries.

For strategies that only need to know what is better (es, genetic), and as partial credit for a
policy gradient. Verdicts, revenue and accuracy stay what the verifier says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from symbiont_ecology.base.errors import ConfigError, MissingExtraError, lines_of
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS, ReferenceVerifier, graders
from symbiont_ecology.tasks.verification import judge

MAX_EMBEDDINGS = 16_384
"""Texts whose embeddings are kept."""


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


@reward_rules.register("similarity")
@dataclass(frozen=True)
class SimilarityReward(RewardRule):
    """Cosine of the embeddings of reply and reference answer, from −1 to 1 (Reimers and Gurevych
    2019, arXiv:1908.10084), by sentence-transformers on the CPU.

    A text is embedded alone, so its embedding does not depend on what stands beside it.
    """

    model: str = "sentence-transformers/all-MiniLM-L6-v2"  # a folder, or a name on the hub
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if find_spec("sentence_transformers") is None:  # shows before a host is loaded
            raise MissingExtraError("the reward similarity", "sentence-transformers", "similarity")
        is_path = self.model.startswith((".", "/", "~")) or self.model.count("/") > 1
        if is_path and not Path(self.model).is_dir():
            raise ConfigError(
                f"reward.model: expected a folder of sentence-transformers or a name on the hub, "
                f"got {self.model!r}, where no folder is"
            )

    def __call__(self, rollout: Rollout) -> float:
        reply, answer = rollout.text[:MAX_REPLY_CHARS], rollout.item.answer
        if reply == answer:
            return 1.0
        if not (reply.strip() and answer.strip()):  # some models fail where there is no token
            return 0.0
        left, right = _embedding(self.model, reply), _embedding(self.model, answer)
        length = float(np.linalg.norm(left) * np.linalg.norm(right))
        return min(float(left @ right) / length, 1.0) if length else 0.0


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


@lru_cache(maxsize=MAX_EMBEDDINGS)
def _embedding(model: str, text: str) -> np.ndarray:
    return np.asarray(_encoder(model).encode(text, show_progress_bar=False), np.float64)


@lru_cache(maxsize=1)
def _encoder(model: str) -> Any:
    """Return the model of sentences; no code of its folder runs."""
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(model, device="cpu", model_kwargs={"use_safetensors": True})
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"reward.model: {model!r} cannot be loaded ({lines_of(error)[0]:.200}): name a "
            "folder of sentence-transformers, or a model that can be downloaded"
        ) from error

"""A reward by meaning: how near a reply is to the reference answer for a model of sentences."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.errors import ConfigError, MissingExtraError, lines_of
from symbiont_ecology.learning import RewardRule, reward_rules
from symbiont_ecology.tasks.grading import LONGEST_REPLY

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = "sentence_transformers"
MOST_EMBEDDINGS = 16_384
"""Texts whose embeddings are kept."""


@reward_rules.register("similarity")
@dataclass(frozen=True)
class SimilarityReward(RewardRule):
    """Cosine of the embeddings of reply and reference answer (Reimers and Gurevych 2019,
    arXiv:1908.10084), by sentence-transformers on the CPU.

    A text is embedded alone, so its embedding does not depend on what stands beside it.
    """

    model: str = "sentence-transformers/all-MiniLM-L6-v2"  # a folder, or a name on the hub
    sees_gold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if find_spec(PACKAGE) is None:  # shows before a host is loaded
            raise MissingExtraError("the reward similarity", "sentence-transformers", "similarity")
        is_path = self.model.startswith((".", "~", os.sep)) or self.model.count("/") > 1
        if is_path and not Path(self.model).is_dir():
            raise ConfigError(
                f"reward.model: expected a folder of sentence-transformers or a name on the hub, "
                f"got {self.model!r}, where no folder is"
            )

    def __call__(self, rollout: Rollout) -> float:
        """The cosine, from −1 to 1; 0 where a text is blank or its embedding is zero."""
        reply, answer = rollout.text[:LONGEST_REPLY], rollout.item.answer
        if reply == answer:
            return 1.0
        if not (reply.strip() and answer.strip()):  # some models fail where there is no token
            return 0.0
        left, right = embedding(self.model, reply), embedding(self.model, answer)
        length = float(np.linalg.norm(left) * np.linalg.norm(right))
        return min(float(left @ right) / length, 1.0) if length else 0.0


@lru_cache(maxsize=MOST_EMBEDDINGS)
def embedding(model: str, text: str) -> np.ndarray:
    """The embedding of a text, ``(dimensions,)``.

    Raises:
        ConfigError: there is no such model.
    """
    return np.asarray(_encoder(model)(text), np.float64)


@lru_cache(maxsize=1)
def _encoder(model: str) -> Callable[[str], Any]:
    """What embeds a text; no code of the model's folder runs."""
    from sentence_transformers import SentenceTransformer

    try:
        encoder = SentenceTransformer(model, device="cpu", model_kwargs={"use_safetensors": True})
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"reward.model: {model!r} cannot be loaded ({lines_of(error)[0]:.200}): name a "
            "folder of sentence-transformers, or a model that can be downloaded"
        ) from error
    return lambda text: encoder.encode(text, show_progress_bar=False)

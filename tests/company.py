"""A kernel with four adapters in its slots, and the same adapters on PEFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hosts import PROMPTS
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.model.kernel import HostKernel

RANKS = (8, 4, 8, 1)


SLOTS = (
    0,
    1,
    HOST_SLOT,
    3,
    2,
    2,
    2,
    0,
)  # one per prompt: ragged, mixed with the bare host, out of order


GREEDY = Decoding()


SAMPLED = Decoding(temperature=0.9, top_p=0.9)


@dataclass
class Company:
    """A kernel with four adapters in its slots, and the same adapters on PEFT."""

    kernel: HostKernel
    adapters: tuple[AdapterWeights, ...]
    peft: Any
    tokenizer: Any

    def rollout(self, slots: Sequence[int] = SLOTS, tokens: int = 12) -> Completions:
        rows = [Request(prompt, slot, tokens) for prompt, slot in zip(PROMPTS, slots, strict=True)]
        return self.kernel.rollout(rows, None, GREEDY)

    def peft_as(self, slot: int) -> Any:
        self.peft.set_adapter(str(slot))
        return self.peft

    def peft_log_probabilities(
        self, model: Any, prompt: str, completion: Sequence[int]
    ) -> torch.Tensor:
        head = self.tokenizer(prompt)["input_ids"]
        ids = torch.tensor([head + list(completion)])
        logits = model(input_ids=ids).logits[0, len(head) - 1 : -1]
        return logits.log_softmax(-1).gather(1, ids[0, len(head) :, None])[:, 0]


def some_lessons(company: Company, clip: float = 100.0) -> tuple[tuple[Lesson, ...], LearningBatch]:
    """Lessons for all four slots, praised and blamed: four each, and three for the last one."""
    written = company.rollout()
    lessons = tuple(
        Lesson(
            PROMPTS[row % 8],
            written[row % 8].token_ids[: row % 8 + 2],
            row % 4,
            (1.0, 0.5, -0.3)[row % 3],
        )
        for row in range(15)
    )
    return lessons, LearningBatch(lessons, dict.fromkeys(range(4), 1e-4), clip)


def assert_same_weights(
    one: AdapterWeights, other: AdapterWeights, rate: float, steps: int
) -> None:
    """Equal but where a gradient is rounding noise of 1e-8: Adam makes a whole step of it, either
    way."""
    difference = np.abs(one.vector - other.vector)
    assert (difference <= 1e-5).mean() > 0.9999
    assert difference.max() <= 2 * rate * steps


def as_vector(like: AdapterWeights, parameters: dict[str, torch.Tensor], slot: int) -> np.ndarray:
    """PEFT's parameters of one adapter in our layout."""
    stem = "base_model.model."
    factors = {
        name: tuple(
            parameters[f"{stem}{name}.lora_{side}.{slot}.weight"].detach().numpy() for side in "AB"
        )
        for name, _, _ in like.layout.modules
    }
    return AdapterWeights.from_factors(like.layout, like.rank, like.scaling, factors).vector

"""On real models, too, prompts read as a tree give what PEFT gives one by one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hosts import SMOLLM2, PeftHost, random_weights, smollm2
from symbiont_ecology.base.types import Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.extensions.hosts.packages import hosts_folder
from symbiont_ecology.model.kernel import HostKernel

GEMMA = hosts_folder() / "gemma3-270m"
gemma = pytest.mark.skipif(
    not (GEMMA.is_dir() and os.environ.get("SYMBIONT_GEMMA")),
    reason="needs Gemma 3 270M and SYMBIONT_GEMMA=1",
)
SYSTEM = "<|im_start|>system\nYou are a helpful assistant who says little.<|im_end|>\n"
SHOWN = "code.format: lake_root\nlakeRoot\ncode.format: town_hand_book\ntownHandBook\n"
PROMPTS = (
    *(f"{SYSTEM}<|im_start|>user\nName one {what}.<|im_end|>\n" for what in ("bird", "red fruit")),
    *(f"{SHOWN}code.format: {name}\n" for name in ("low_iron", "jar_silk_bold", "low_iron_jar")),
    SHOWN,
    "Hi",
)
SLOTS, NEW_TOKENS = (0, 1), 5


@pytest.fixture(
    scope="module",
    params=[pytest.param(SMOLLM2, marks=smollm2), pytest.param(GEMMA, marks=gemma)],
    ids=["smollm2", "gemma3-270m"],
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[HostKernel, PeftHost]:
    folder: Path = request.param
    kernel = HostKernel.from_pretrained(folder, slots=2, rank=2)
    for slot in SLOTS:  # small enough that moments keep all bits
        kernel.place(slot, random_weights(kernel.layout, slot, rank=1 + slot, scaling=1.0))
    return kernel, PeftHost(folder, kernel, SLOTS, tmp_path_factory.mktemp("exports"))


def test_answers_and_their_log_probabilities_are_those_of_peft(
    pair: tuple[HostKernel, PeftHost],
) -> None:
    kernel, peft = pair
    rows = [Request(prompt, slot, NEW_TOKENS) for prompt in PROMPTS for slot in SLOTS]
    first = kernel.rollout(rows, None, Decoding())
    assert first.read is not None
    assert first.read.sum() < 0.7 * first.prompt_lengths.sum()
    for slot in SLOTS:
        numbers = [number for number, row in enumerate(rows) if row.slot == slot]
        answers = [first[number].token_ids for number in numbers]
        assert answers == [peft.generate([prompt], slot, NEW_TOKENS)[0] for prompt in PROMPTS]
        exact = peft.log_probabilities(PROMPTS, answers, slot)
        scores = kernel.score(PROMPTS, answers, slot)
        for number, expected, score in zip(numbers, exact, scores, strict=True):
            said = torch.from_numpy(first[number].log_probabilities)
            torch.testing.assert_close(said, expected.detach(), atol=1e-4, rtol=0)
            torch.testing.assert_close(score, expected.detach(), atol=1e-4, rtol=0)


def test_lessons_of_a_tree_have_the_gradients_of_peft(pair: tuple[HostKernel, PeftHost]) -> None:
    kernel, peft = pair
    slot = 1
    lessons = [
        Lesson(prompt, (100 + number, 200, 300), slot) for number, prompt in enumerate(PROMPTS)
    ]
    batch = LearningBatch(tuple(lessons), {slot: 0.0}, clip=1e9)
    _, states, _ = kernel.learn(batch, {slot: kernel.weights_of(slot)}, {})
    assert states[slot].first is not None
    ours, theirs = 10 * states[slot].first, peft.gradient(lessons, slot)
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()

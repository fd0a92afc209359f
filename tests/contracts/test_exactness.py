"""One contract for every architecture and every path: the kernel computes what PEFT computes.

A path is a way through the kernel: which decoder, how much memory for a batch, which rows. All
paths of an architecture answer for the same prompts and adapters, so PEFT is asked once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hosts import KINDS, PeftHost, leave_torch_alone, make_host, random_weights
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

# A Mistral without windows is a Llama without biases.
ARCHITECTURES = (*(kind for kind in KINDS if kind != "mistral"), "embedded")
LORA = {0: (1, 2.0), 1: (16, 0.25), 2: (4, 1.0), 3: (8, 2.0), 4: (3, 0.5), 5: (16, 0.5)}
"""Rank and scaling of each slot's adapter."""
OWNERS = (HOST_SLOT, *LORA)
LIMIT = 20
"""New tokens per answer: a short prompt, too, outgrows a window of 16."""

LENGTHS = (0, 1, 13, 14, 15, 16, 17, 31, 47, 63, 80, 100)
"""Letters of prompts: below, at and above a window of 16, and far above it."""


def made_prompts(count: int) -> tuple[str, ...]:
    """Texts of 0 to 100 letters: 1 to 101 tokens with the beginning token."""
    letters = np.array(list("abcdefghij 0123456789+="))
    return tuple(
        "".join(
            letters[
                Draw(0)("prompt", index).integers(len(letters), size=LENGTHS[index % len(LENGTHS)])
            ]
        )
        for index in range(count)
    )


PROMPTS = made_prompts(18)
BRANCHES = tuple(
    f"{PROMPTS[8][:30]}{family}{question}"
    for family in ("", PROMPTS[17], PROMPTS[6] + "=")
    for question in PROMPTS[12:17]
)
"""Prompts that part at several places, or end where others go on."""


def regular_rows() -> list[Request]:
    """A prompt of every length for every owner."""
    prompts = PROMPTS[: len(LENGTHS)]
    return [Request(prompt, owner, LIMIT) for prompt in prompts for owner in OWNERS]


def ragged_rows() -> list[Request]:
    """One to thirteen rows per owner, in any order, each with a limit of its own; 0 is one."""
    draw = Draw(0)("ragged")
    counts = zip(OWNERS, (4, 1, 13, 2, 8, 3, 5), strict=True)
    rows = [
        Request(PROMPTS[draw.integers(len(PROMPTS))], owner, int(draw.integers(LIMIT + 1)))
        for owner, count in counts
        for _ in range(count)
    ]
    return [rows[index] for index in draw.permutation(len(rows))]


def shared_rows() -> list[Request]:
    """Prompts of all lengths, each twice under one owner and under other owners."""
    rows = [
        Request(prompt, owner, LIMIT)
        for prompt in PROMPTS[: len(LENGTHS)]
        for owner in OWNERS[::2]
        for _ in range(2)
    ]
    return [rows[index] for index in Draw(0)("shared").permutation(len(rows))]


def branching_rows() -> list[Request]:
    """Prompts with beginnings in common, half of them under each owner, some of them twice."""
    rows = [
        Request(prompt, owner, LIMIT)
        for place, prompt in enumerate(BRANCHES)
        for owner in OWNERS
        if (place + owner) % 2
    ]
    rows += rows[::5] + [
        Request(prompt, owner, LIMIT) for prompt, owner in zip(PROMPTS, OWNERS, strict=False)
    ]
    return [rows[index] for index in Draw(0)("branching").permutation(len(rows))]


@dataclass(frozen=True)
class Way:
    """Settings of a kernel and the rows that it answers."""

    rows: list[Request]
    settings: dict[str, Any] = field(default_factory=dict)


PATHS = {
    "fused": Way(regular_rows()),
    "transformers": Way(shared_rows() + ragged_rows(), {"prefer_fused": False}),
    "chunked": Way(regular_rows()[::2], {"memory_mb": 4.0}),
    "ragged": Way(ragged_rows()),
    "shared": Way(shared_rows()),
    "torch": Way(shared_rows() + ragged_rows()),
    "branching": Way(branching_rows()),
    "branching, chunked": Way(branching_rows(), {"memory_mb": 6.0}),
    "branching, transformers": Way(branching_rows(), {"prefer_fused": False}),
    "branching, torch": Way(branching_rows()),
    "transformers, torch": Way(ragged_rows(), {"prefer_fused": False}),
}


@contextmanager
def compiled_or_not(path: str) -> Iterator[None]:
    """On the paths of torch alone, there are no compiled passes."""
    with pytest.MonkeyPatch.context() as patch:
        if path.endswith("torch"):
            leave_torch_alone(patch)
        yield


@pytest.fixture(autouse=True)
def _compiled_or_not(request: pytest.FixtureRequest) -> Iterator[None]:
    callspec = getattr(request.node, "callspec", None)
    with compiled_or_not(callspec.params.get("path", "") if callspec else ""):
        yield


class Reference:
    """What PEFT makes of all prompts under all adapters of one architecture, and a kernel for every
    path."""

    def __init__(self, folder: Path, exports: Path) -> None:
        self.folder, self.kernels, self.written = (
            folder,
            dict[str, HostKernel](),
            dict[str, Completions](),
        )
        for name, path in PATHS.items():
            with compiled_or_not(name):
                kernel = HostKernel.from_pretrained(
                    folder, slots=len(LORA), rank=16, **path.settings
                )
                self.kernels[name] = with_adapters(kernel)
                self.written[name] = kernel.rollout(path.rows, None, Decoding())
        self.peft = PeftHost(folder, self.kernels["fused"], list(LORA), exports)
        self.answers: dict[tuple[str, int], tuple[int, ...]] = {}
        self.log_probabilities: dict[tuple[str, int], torch.Tensor] = {}
        for owner in OWNERS:
            asked = PROMPTS + BRANCHES
            answers = self.peft.generate(asked, owner, LIMIT)
            with torch.no_grad():
                found = self.peft.log_probabilities(asked, answers, owner)
            for prompt, answer, one in zip(asked, answers, found, strict=True):
                self.answers[prompt, owner], self.log_probabilities[prompt, owner] = answer, one

    def answer(self, row: Request) -> tuple[int, ...]:
        """What PEFT writes, up to the row's limit."""
        return self.answers[row.prompt, row.slot][: row.max_new_tokens]


def with_adapters(kernel: HostKernel) -> HostKernel:
    for slot, (rank, scaling) in LORA.items():
        kernel.place(slot, random_weights(kernel.layout, slot, rank, scaling))
    return kernel


@pytest.fixture(scope="session", params=ARCHITECTURES)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    kind, folder = request.param, tmp_path_factory.mktemp("host")
    if kind == "embedded":
        folder = EMBEDDED_FOLDER
    else:
        # Weights large enough for answers that differ; Gemma's, scaled up, would repeat one token.
        sizes = {} if kind == "gpt2" else {"hidden_size": 64, "intermediate_size": 192}
        make_host(
            folder, kind, layers=3, initializer_range=0.1 if kind == "gemma3" else 0.15, **sizes
        )
    return Reference(folder, tmp_path_factory.mktemp("exports"))


every_path = pytest.mark.parametrize("path", PATHS)


@every_path
def test_log_probabilities_equal_peft(reference: Reference, path: str) -> None:
    kernel, written, rows = reference.kernels[path], reference.written[path], PATHS[path].rows
    answers = [reference.answer(row) for row in rows]
    scores = kernel.score([row.prompt for row in rows], answers, [row.slot for row in rows])
    for index, (row, answer, score) in enumerate(zip(rows, answers, scores, strict=True)):
        theirs = reference.log_probabilities[row.prompt, row.slot][: len(answer)]
        torch.testing.assert_close(score, theirs, atol=1e-4, rtol=0)
        # Where the text leaves PEFT's, another test says so; up to there the numbers must be the
        # same.
        same = np.cumprod(written.ids[index, : len(answer)] == answer).sum()
        np.testing.assert_allclose(
            written.log_probabilities[index, :same], theirs[:same], atol=1e-4
        )


def test_greedy_text_equals_peft_generate(reference: Reference) -> None:
    equal, rows = 0, 0
    for path, way in PATHS.items():
        for row, text in zip(way.rows, reference.written[path].texts, strict=True):
            theirs = reference.peft.tokenizer.decode(
                reference.answer(row), skip_special_tokens=True
            )
            equal, rows = equal + (text == theirs), rows + 1
    assert rows > 500
    assert equal / rows >= 0.999


@every_path
def test_gradients_equal_peft_and_autograd(reference: Reference, path: str) -> None:
    kernel = reference.kernels[path]
    lessons: list[Lesson] = []
    for slot in LORA:
        own = [row for row in PATHS[path].rows if row.slot == slot and row.max_new_tokens][
            : 2 + slot
        ]
        lessons += [
            # Repeated prompts get answers of different lengths.
            Lesson(
                row.prompt,
                reference.answer(row)[: 5 + 4 * index],
                slot,
                (1.0, -0.5, 0.25)[index % 3],
            )
            for index, row in enumerate(own)
        ]
    lessons = [lessons[index] for index in Draw(0)("lessons").permutation(len(lessons))]
    weights = {slot: kernel.weights_of(slot) for slot in {one.slot for one in lessons}}
    _, optimizer_state, _ = kernel.learn(
        LearningBatch(tuple(lessons), dict.fromkeys(LORA, 1e-4), 1e9), weights, {}
    )
    for slot in weights:
        first = optimizer_state[slot].first
        assert first is not None
        theirs = reference.peft.gradient([one for one in lessons if one.slot == slot], slot)
        assert np.abs(theirs).max() > 1e-3
        # From an empty memory, Adam's first moment is a tenth of the gradient.
        np.testing.assert_allclose(first * 10, theirs, atol=1e-5)


@pytest.mark.parametrize("prefer_fused", [True, False])
def test_half_precision_says_nearly_the_same(reference: Reference, prefer_fused: bool) -> None:
    half = HostKernel.from_pretrained(
        reference.folder, slots=6, rank=16, dtype="bfloat16", prefer_fused=prefer_fused
    )
    rows = [row for row in branching_rows() + ragged_rows() if reference.answer(row)][::6]
    words = [row.prompt for row in rows], [reference.answer(row) for row in rows]
    slots = [row.slot for row in rows]
    exact = reference.kernels["fused"].score(*words, slots)
    gaps = torch.cat(exact) - torch.cat(with_adapters(half).score(*words, slots))
    assert 0 < gaps.abs().mean() < 0.05
    assert gaps.mean().abs() < 0.01
    written = half.rollout(rows, None, Decoding())
    first = [one.log_probabilities[:1] for one in written]
    said = half.score(words[0], [one.token_ids[:1] for one in written], slots)
    np.testing.assert_allclose(np.concatenate(first), torch.cat(said), atol=0.05)


@every_path
def test_draws_do_not_depend_on_neighbours(reference: Reference, path: str) -> None:
    kernel = reference.kernels[path]
    decoding = Decoding(temperature=0.9, top_p=0.95)
    rows = [row for row in PATHS[path].rows if row.max_new_tokens > 5][::3]
    company = kernel.rollout(rows, [Draw(0)("row", row) for row in range(len(rows))], decoding)
    assert len(set(company.texts)) > 5
    for row in range(0, len(rows), 1 + len(rows) // 4):
        alone = kernel.rollout([rows[row]], [Draw(0)("row", row)], decoding)
        assert alone[0].token_ids == company[row].token_ids

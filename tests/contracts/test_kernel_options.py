"""What a caller of the kernel may ask for beside plain answers and plain steps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hosts import PROMPTS, random_weights
from symbiont_ecology.adapters.adapter import AdapterWeights, OptimizerState
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.model.backend import lowrank
from symbiont_ecology.model.kernel import HostKernel

PATHS = pytest.mark.parametrize("prefer_fused", [True, False], ids=["fused", "transformers"])
Load = Callable[..., HostKernel]


@pytest.fixture
def load(host_folders: dict[str, Path]) -> Load:
    """A kernel with an adapter in each of its four slots."""

    def loaded(kind: str = "qwen3", **settings: Any) -> HostKernel:
        kernel = HostKernel.from_pretrained(host_folders[kind], slots=4, **settings)
        for slot in range(4):
            kernel.place(slot, random_weights(kernel.layout, slot))
        return kernel

    return loaded


def adapters_of(kernel: HostKernel) -> dict[int, AdapterWeights]:
    return {slot: kernel.weights_of(slot) for slot in range(4)}


def lessons(kernel: HostKernel, **settings: Any) -> LearningBatch:
    """Four lessons for each slot; two prompts each, so that prompts are shared."""
    replies = kernel.rollout(
        [Request(prompt, index % 4, 9) for index, prompt in enumerate(PROMPTS * 2)],
        None,
        Decoding(),
    )
    made = tuple(
        Lesson(prompt, replies[index].token_ids, index % 4, (1.0, -0.5, 0.25)[index % 3])
        for index, prompt in enumerate(PROMPTS * 2)
    )
    return LearningBatch(made, dict.fromkeys(range(4), 1e-3), 100.0, **settings)


def gradients(
    kernel: HostKernel, batch: LearningBatch, slots: tuple[int, ...] = (0, 1, 2, 3)
) -> dict[int, np.ndarray]:
    """Of one step from an empty memory: Adam's first moment is a tenth of the gradient."""
    own = dataclasses.replace(
        batch, lessons=tuple(one for one in batch.lessons if one.slot in slots)
    )
    _, optimizer_state, _ = kernel.learn(own, {slot: kernel.weights_of(slot) for slot in slots}, {})
    found = {}
    for slot in slots:
        first = optimizer_state[slot].first
        assert first is not None
        found[slot] = first * 10
    return found


@PATHS
def test_a_stop_text_ends_an_answer_and_is_cut_off(load: Load, prefer_fused: bool) -> None:
    kernel = load(prefer_fused=prefer_fused)
    rows = [Request(prompt, index % 4, 24) for index, prompt in enumerate(PROMPTS)]
    free = kernel.rollout(rows, None, Decoding(min_new_tokens=24))
    stop = free.texts[0][3:5]
    found = kernel.rollout(rows, None, Decoding(min_new_tokens=24, stop=(stop, "never said")))
    assert found.texts[0] == free.texts[0][: free.texts[0].index(stop)]
    for row, text in enumerate(free.texts):
        assert found.texts[row] == text.split(stop)[0]
        assert found[row].token_ids == free[row].token_ids[: found.lengths[row]]
        # It ends with the very token that completes the stop text.
        assert (found.lengths[row] < 24) or stop not in text[:-2]
    shortest = kernel.rollout(
        [dataclasses.replace(rows[0], max_new_tokens=int(found.lengths[0]) - 1)],
        None,
        Decoding(min_new_tokens=24),
    )
    assert stop not in shortest.texts[0]


@PATHS
def test_dropout_in_company_equals_dropout_alone(load: Load, prefer_fused: bool) -> None:
    kernel = load(prefer_fused=prefer_fused)
    plain = lessons(kernel)
    batch = dataclasses.replace(
        plain,
        dropout={slot: 0.1 * (slot + 1) for slot in range(4)},
        dropout_seeds={slot: 7 * slot + 1 for slot in range(4)},
    )
    together = gradients(kernel, batch)
    for slot in range(4):
        np.testing.assert_allclose(
            together[slot], gradients(kernel, batch, (slot,))[slot], atol=1e-5
        )
    small = load(prefer_fused=prefer_fused, memory_mb=0.2)
    for slot, gradient in gradients(small, batch).items():
        np.testing.assert_allclose(gradient, together[slot], atol=1e-5)
    other = dataclasses.replace(batch, dropout_seeds=dict.fromkeys(range(4), 99))
    without = gradients(kernel, plain)
    for slot in range(4):
        assert np.abs(together[slot] - without[slot]).max() > 1e-3
        assert np.abs(together[slot] - gradients(kernel, other)[slot]).max() > 1e-3


@PATHS
def test_running_out_of_memory_makes_smaller_pieces(
    load: Load, prefer_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load(prefer_fused=prefer_fused)
    batch = lessons(kernel)
    rows = [Request(prompt, index % 4, 12) for index, prompt in enumerate(PROMPTS)]
    weights = adapters_of(kernel)
    texts, learned = (
        kernel.rollout(rows, None, Decoding()).texts,
        kernel.learn(batch, weights, {})[0],
    )
    decoder: Any = kernel._decoder
    start, logits = decoder.start, decoder.logits

    def little_room(prefill: Any) -> Any:
        if len(prefill.prompts) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return start(prefill)

    def little_space(packing: Any, *rest: Any, **how: Any) -> Any:
        found = logits(packing, *rest, **how)
        if len(packing.texts) > 2:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return found

    monkeypatch.setattr(decoder, "start", little_room)
    monkeypatch.setattr(decoder, "logits", little_space)
    before = kernel.memory_mb
    assert kernel.rollout(rows, None, Decoding()).texts == texts
    assert kernel.memory_mb < before
    again = kernel.learn(batch, weights, {})[0]
    for slot, one in learned.items():
        assert np.abs(one.vector - again[slot].vector).max() <= 2e-3
        assert (np.abs(one.vector - again[slot].vector) < 1e-5).mean() > 0.999


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), HostError, "memory for a batch of one row"),
        (RuntimeError("device-side assert"), RuntimeError, "device-side assert"),
    ],
)
def test_what_cannot_be_done_in_smaller_pieces_fails(
    load: Load, monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type, says: str
) -> None:
    kernel = load()

    def failing(*_: Any) -> Any:
        raise failure

    monkeypatch.setattr(kernel._decoder, "start", failing)
    with pytest.raises(kind, match=says):
        kernel.generate(["a"], 0)


def test_impossible_options_are_refused(host_folders: dict[str, Path], load: Load) -> None:
    kernel = load()
    one = Lesson("a", (70,), 0, (1.0, 1.0))
    for rates, says in (
        ({0: 1e-3}, "each of 1 completion tokens"),
        ({}, "a learning rate for slot 0"),
    ):
        with pytest.raises(ValueError, match=says):
            kernel.learn(
                LearningBatch((one,), rates), {0: kernel.weights_of(0)}, {0: OptimizerState()}
            )
    with pytest.raises(HostError, match="memory_mb"):
        HostKernel.from_pretrained(host_folders["qwen3"], memory_mb=0)


@PATHS
def test_an_observer_is_in_every_step_and_may_change_its_terms(
    load: Load, prefer_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts that sort differently without their last token are read in several pieces."""
    prompts = ["47", "478", "4", "aé", "aa", "a", "ab"]
    rows = [Request(prompt, index % 4, 9) for prompt in prompts for index in range(8)]
    for memory_mb in (2048.0, 0.5):
        kernel, steps = load(prefer_fused=prefer_fused, memory_mb=memory_mb), Counter[int]()

        def watch(numbers: Any, step: int, adapters: Any, tiling: Any) -> Any:
            place = range(len(numbers)) if tiling.rows is None else tiling.rows.numpy()
            steps.update(set(numbers[place].tolist()))  # noqa: B023
            return adapters

        found, usual = (kernel.rollout(rows, None, Decoding(), one) for one in (watch, None))
        assert found.texts == usual.texts
        np.testing.assert_allclose(found.log_probabilities, usual.log_probabilities, atol=1e-4)
        assert found.fed is not None
        assert [steps[row] - 1 for row in range(len(rows))] == found.fed.tolist()
    nothing = (None,) * len(kernel._decoder.sites)
    assert kernel.rollout(rows, None, Decoding(), lambda *_: nothing).texts != usual.texts
    monkeypatch.setattr(kernel, "encode", lambda prompts: [np.array([5])])
    with pytest.raises(HostError, match="two tokens or more"):
        kernel.rollout([Request("a", 0, 1)], None, Decoding(), watch)


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch has no grouped products"
)
@PATHS
def test_grouped_products_are_the_same_products(
    load: Load, prefer_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load(prefer_fused=prefer_fused)
    batch = lessons(kernel)
    texts = kernel.generate(PROMPTS, [index % 4 for index in range(len(PROMPTS))])
    reference = gradients(kernel, batch)
    monkeypatch.setattr(lowrank, "_is_grouped", lambda x, other: True)  # as on CUDA
    assert kernel.generate(PROMPTS, [index % 4 for index in range(len(PROMPTS))]) == texts
    for slot, gradient in gradients(kernel, batch).items():
        np.testing.assert_allclose(gradient, reference[slot], atol=1e-5)

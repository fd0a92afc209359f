"""Prompts that begin alike are read as a tree, and nobody notices: each row is what it is alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hosts import leave_torch_alone, make_host, random_weights
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.packing import MIN_SHARED, NEVER, Text, chunks, pack_texts, places_seen

CPU = torch.device("cpu")


def grown(draw: np.random.Generator, rows: int) -> list[str]:
    """Random texts of which each begins with a part of an earlier one."""
    texts = [""]
    for _ in range(rows):
        stem = texts[draw.integers(len(texts))]
        stem = stem[: int(draw.integers(len(stem) + 1))] if draw.random() < 0.3 else stem
        more = int(draw.choice([0, 1, 2, MIN_SHARED - 1, MIN_SHARED, 2 * MIN_SHARED]))
        texts.append((stem + "".join(draw.choice(list("ab"), size=more)))[:90])
    return [texts[index] for index in draw.permutation(len(texts))]


@pytest.fixture(scope="module", params=["qwen3", "gemma3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_host(tmp_path_factory.mktemp("host"), request.param, layers=3)


@pytest.fixture(params=["compiled", "torch"])
def kernel(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> HostKernel:
    if request.param == "torch":
        leave_torch_alone(monkeypatch)
    made = HostKernel.from_pretrained(folder, slots=3, rank=4)
    for slot in range(3):
        made.place(slot, random_weights(made.layout, slot, rank=2 + slot))
    return made


@pytest.mark.parametrize("least", [4, MIN_SHARED])
@pytest.mark.parametrize("seed", range(20))
def test_a_packing_holds_every_row_and_shares_what_is_long_enough(seed: int, least: int) -> None:
    draw = Draw(seed)("texts")
    texts = [
        Text(np.frombuffer(f"!{text}".encode(), dtype=np.uint8).astype(np.int64), np.arange(count))
        for text, count in zip(grown(draw, 20), draw.integers(0, 4, size=21), strict=True)
    ]
    owners = np.sort(draw.integers(-1, 2, size=len(texts))).tolist()
    packing = pack_texts(texts, owners, CPU, least=least)
    ids, positions = packing.ids.numpy(), packing.positions.numpy()
    stretches = packing.stretches
    prompts, rows = (
        places_seen(stretches, stretches[ends]) for ends in (packing.prompt_of, packing.end_of)
    )
    for row, (places, text) in enumerate(zip(rows, texts, strict=True)):
        here = places[: len(text.ids)]
        assert (ids[here] == text.ids).all()
        assert (positions[here] == np.arange(len(here))).all()
        borders = np.cumsum([0, *packing.counts])
        owner = packing.owners.index(owners[row])
        assert ((here >= borders[owner]) & (here < borders[owner + 1])).all()
    assert packing.read.sum() + sum(len(text.answer) for text in texts) == len(ids)
    assert len(ids) <= len(pack_texts(texts, owners, CPU, least=NEVER).ids)
    # No two prompts of one owner say the same for longer than the least that is shared.
    assert packing.is_tree == (stretches["parent"][: packing.segments] >= 0).any()
    for one, text in enumerate(texts):
        for other in range(one):
            size = min(len(text.prompt), len(texts[other].prompt))
            alike = np.cumprod(text.prompt[:size] == texts[other].prompt[:size]).sum()
            both = np.stack([prompts[row][:size] for row in (one, other)])
            same = int((both[0] == both[1]).sum())
            if owners[one] != owners[other]:
                assert same == 0
            else:
                assert alike - 2 * least < same <= alike
    for piece in chunks(texts, owners, 100, least=least):
        own = [owners[row] for row in piece]
        packed = pack_texts([texts[row] for row in piece], own, CPU, least=least)
        # A beginning that parts again too soon is not shared, which the pieces do not foresee.
        assert len(packed.ids) <= 100 + (least - 1) * (len(piece) - 1) or len(piece) == 1


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_tree_are_answered_and_scored_as_alone(kernel: HostKernel, seed: int) -> None:
    draw = Draw(seed)("rows")
    prompts = [f"{text}!" for text in grown(draw, 14)]
    owners = [int(one) for one in draw.integers(HOST_SLOT, 3, size=len(prompts))]
    rows = [Request(*one, 6) for one in zip(prompts, owners, strict=True)]
    together = kernel.rollout(rows, None, Decoding(min_new_tokens=6))
    assert together.read is not None
    assert together.read.sum() < together.prompt_lengths.sum()
    answers = [completion.token_ids for completion in together]
    scores = kernel.score(prompts, answers, owners)
    for number, row in enumerate(rows):
        alone = kernel.rollout([row], None, Decoding(min_new_tokens=6))[0]
        assert alone.token_ids == answers[number]
        score = kernel.score([row.prompt], [answers[number]], [row.slot])[0]
        torch.testing.assert_close(scores[number], score, atol=2e-5, rtol=0)
        said = together[number].log_probabilities
        np.testing.assert_allclose(said, score.numpy(), atol=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_lessons_of_a_tree_teach_what_they_teach_one_by_one(kernel: HostKernel, seed: int) -> None:
    draw = Draw(seed)("lessons")
    prompts = [f"{text}!" for text in grown(draw, 10)]
    lessons = [
        Lesson(prompt, tuple(draw.integers(5, 200, size=4).tolist()), int(draw.integers(2)))
        for prompt in prompts
    ]
    weights = {slot: kernel.weights_of(slot) for slot in {lesson.slot for lesson in lessons}}
    together = gradient(kernel, lessons, weights)
    for slot in weights:
        own = [lesson for lesson in lessons if lesson.slot == slot]
        alone = [gradient(kernel, [lesson], weights)[slot] for lesson in own]
        expected = np.mean(alone, axis=0)  # they have one number of tokens
        assert np.abs(together[slot] - expected).max() <= 1e-5 * np.abs(expected).max()


def gradient(kernel: HostKernel, lessons: list[Lesson], weights: dict) -> dict[int, np.ndarray]:
    """Of each slot's loss: from an empty memory, Adam's first moment is a tenth of it."""
    batch = LearningBatch(tuple(lessons), dict.fromkeys(weights, 0.0), clip=1e9)
    _, states, _ = kernel.learn(batch, weights, {})
    return {slot: 10 * state.first for slot, state in states.items() if state.first is not None}

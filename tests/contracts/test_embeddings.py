"""Embeddings: the bare host's hidden states at the end of an answer, on every kind of host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from hosts import PROMPTS, SMOLLM2, random_weights, smollm2
from symbiont_ecology.model.kernel import HostKernel

HOSTS = (
    ("qwen3", True),
    ("qwen3", False),
    ("gemma3", True),
    ("sliding mistral", False),
    ("gpt2", False),
    ("embedded", True),
)
ANSWERS = ("a b c", "d", "", "b b a c d", "c", "a")


@pytest.fixture(scope="module", params=HOSTS, ids=lambda host: f"{host[0]} {host[1]}")
def kernel(request: pytest.FixtureRequest, host_folders: dict[str, Path]) -> HostKernel:
    kind, is_fused = request.param
    return HostKernel.from_pretrained(host_folders[kind], slots=2, rank=4, prefer_fused=is_fused)


def expected(
    folder: str | Path, prompts: Sequence[np.ndarray], answers: Sequence[tuple[int, ...]]
) -> np.ndarray:
    """As transformers has them, text by text."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([[*prompt.tolist(), *answer]])
        with torch.no_grad():
            hidden = model(ids, output_hidden_states=True).hidden_states
        layers = model.config.num_hidden_layers
        rows.append(torch.cat([hidden[layers * part // 5][0, -1] for part in (3, 4)]).numpy())
    return np.array(rows)


def check(kernel: HostKernel, tolerance: float) -> None:
    prompts = list(PROMPTS[: len(ANSWERS)])
    prompts[1] = prompts[0]  # read once
    ids = kernel.encode_answers(ANSWERS)
    rows = kernel.embed(prompts, ids)
    truth = expected(kernel.name_or_path, kernel.encode(prompts), ids)
    assert rows.shape == (len(ANSWERS), 2 * kernel.shape.hidden)
    np.testing.assert_allclose(rows, truth, atol=tolerance * np.abs(truth).max())


def test_embeddings_are_those_of_transformers(kernel: HostKernel) -> None:
    check(kernel, 1e-5)


@smollm2
def test_embeddings_of_a_real_model_are_those_of_transformers() -> None:
    check(HostKernel.from_pretrained(SMOLLM2, slots=1, rank=2), 1e-5)


def test_an_embedding_depends_on_neither_neighbours_nor_slots(kernel: HostKernel) -> None:
    prompts, ids = PROMPTS[: len(ANSWERS)], kernel.encode_answers(ANSWERS)
    together, before = kernel.embed(prompts, ids), kernel.fingerprint(is_fresh=True)
    kernel.place(0, random_weights(kernel.layout, 3, rank=4))
    for row in range(len(ANSWERS)):
        alone = kernel.embed(prompts[row : row + 1], ids[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-3, atol=1e-4)
    assert kernel.fingerprint(is_fresh=True) == before

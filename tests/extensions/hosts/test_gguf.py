"""GGUF files of all architectures that are read, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gguf_models import TOKENS, tiny, write_gguf
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import find_folder, read_json

PROMPT = "the quick brown fox jumps over the lazy dog and runs"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def difference(model: Any, file: Path) -> float:
    """How far log-probabilities of the host in a file are from those of a model."""
    kernel = HostKernel.from_pretrained(file, slots=1, rank=2)
    (ids,) = kernel.encode([PROMPT])
    with torch.no_grad():
        scores = model(torch.tensor(ids)[None]).logits.log_softmax(-1)[0, :-1]
    wanted = scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    (found,) = kernel.score([ids[:1].tolist()], [ids[1:].tolist()], -1)
    return float((found - wanted).abs().max())


def rope(kind: str, **values: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 700.0, **values}}


FACTORS = [1.0 + 0.2 * place for place in range(8)]
LONG = {"short_factor": FACTORS, "long_factor": [2 * factor for factor in FACTORS]}
SLIDING = {"sliding_window": 8}
DIVIDED = {"head_dim": 32, "query_pre_attn_scalar": 16, "initializer_range": 0.1}
"""Of a model so large that its scores are scaled by hidden size ÷ heads."""


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": False, "rms_norm_eps": 0.01}),
        ("Llama", {"head_dim": 32}),
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", rope("linear", factor=4.0)),
        ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
        ("Qwen2", {}),
        ("Qwen2", {"tie_word_embeddings": False} | rope("default")),
        ("Qwen3", {"head_dim": 32}),
        ("Qwen3", rope("yarn", factor=2.0, original_max_position_embeddings=16)),
        ("Gemma2", SLIDING | {"head_dim": 32, "query_pre_attn_scalar": 32}),
        (
            "Gemma2",
            SLIDING
            | {
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "attn_logit_softcapping": 2.0,
                "final_logit_softcapping": 3.0,
            },
        ),
        ("Gemma3", SLIDING | {"head_dim": 32, "query_pre_attn_scalar": 32, "num_hidden_layers": 7}),
        (
            "Gemma3",
            {
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "rope_theta": 700.0, "factor": 8.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                },
            },
        ),
        ("Gemma2", DIVIDED | {"num_hidden_layers": 46}),
        ("Gemma3", DIVIDED | {"num_hidden_layers": 62}),
        ("Phi3", {}),
        ("Phi3", SLIDING),
        ("Phi3", rope("default", partial_rotary_factor=0.5)),
        ("Phi3", {"original_max_position_embeddings": 64} | rope("longrope", **LONG)),
        ("Starcoder2", rope("default")),
        ("Starcoder2", {"tie_word_embeddings": False, "norm_epsilon": 0.01}),
        ("GPT2", {}),
        ("GPT2", {"layer_norm_epsilon": 0.01}),
    ],
    ids=str,
)
def test_a_file_answers_as_the_model_that_it_was_made_of(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny(kind, **changes)
    assert difference(model, write_gguf(model, tmp_path / "tiny.gguf")) < 1e-4


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(factor=16.0, low=2.0, width=0.5, context=145, theta=100.0, head_dim=64)
@given(
    factor=st.floats(1.5, 64.0),
    low=st.floats(0.5, 4.0),
    width=st.floats(0.1, 8.0),
    context=st.integers(8, 512),
    theta=st.floats(100.0, 1e6),
    head_dim=st.sampled_from([4, 16, 64]),
)
def test_angles_that_are_slowed_by_llama_3s_rule_arrive(
    tmp_path: Path,
    factor: float,
    low: float,
    width: float,
    context: int,
    theta: float,
    head_dim: int,
) -> None:
    angles = {"rope_type": "llama3", "factor": factor, "rope_theta": theta}
    angles |= {"low_freq_factor": low, "high_freq_factor": low + width}
    angles |= {"original_max_position_embeddings": context}
    model = tiny("Llama", num_hidden_layers=1, head_dim=head_dim, rope_parameters=angles)
    assert difference(model, write_gguf(model, tmp_path / "tiny.gguf")) < 1e-3


def test_llama_3_1_gets_its_own_parameters_back(tmp_path: Path) -> None:
    own = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    own |= {"factor": 8.0, "original_max_position_embeddings": 8192}
    angles = {"rope_type": "llama3", "rope_theta": 500_000.0, **own}
    model = tiny("Llama", head_dim=128, max_position_embeddings=131_072, rope_parameters=angles)
    folder = find_folder(write_gguf(model, tmp_path / "tiny.gguf"))
    assert read_json(folder / "config.json")["rope_parameters"] == angles


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tiny(), tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(places=st.lists(st.integers(0, 7000), min_size=1, max_size=4), byte=st.integers(0, 255))
def test_a_file_with_other_bytes_answers_or_is_refused_in_one_line(
    tmp_path: Path, whole: bytes, places: list[int], byte: int
) -> None:
    damaged = bytearray(whole)
    for place in places:
        damaged[place] = byte
    (tmp_path / "a.gguf").write_bytes(damaged)
    said = ""
    try:
        HostKernel.from_pretrained(tmp_path / "a.gguf", slots=1).generate(["ab"], -1, 2)
    except HostError as error:
        said = str(error)
    assert "\n" not in said


def test_an_output_that_is_stored_twice_is_tied_again(tmp_path: Path) -> None:
    model = tiny()
    embedding = model.get_input_embeddings().weight.numpy(force=True)
    plain = find_folder(write_gguf(model, tmp_path / "a.gguf"))
    twice = find_folder(write_gguf(model, tmp_path / "b.gguf", {}, {"output.weight": embedding}))
    kernels = [HostKernel.from_pretrained(folder, slots=1) for folder in (plain, twice)]
    assert kernels[0].fingerprint() == kernels[1].fingerprint()


def test_a_host_of_longrope_reads_as_many_tokens_as_its_angles_stay_the_same(
    tmp_path: Path,
) -> None:
    changes = {"original_max_position_embeddings": 32} | rope("longrope", **LONG)
    kernel = HostKernel.from_pretrained(write_gguf(tiny("Phi3", **changes), tmp_path / "a.gguf"))
    assert kernel.shape.max_positions == 32


def test_neither_the_files_beside_a_file_nor_its_name_for_a_model_change_it(tmp_path: Path) -> None:
    file = write_gguf(tiny(), tmp_path / "tiny.gguf", {"general.name": "mistral"})
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    assert difference(tiny(), file) < 1e-4


def test_ends_of_turns_end_answers_as_ends_of_texts_do(tmp_path: Path) -> None:
    tokens = [*TOKENS, "<|odd|>", "<|im_end|>"]
    changes: dict[str, object] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, *[1] * 257, 3, 3],
        "tokenizer.ggml.eot_token_id": 260,
    }
    kernel = HostKernel.from_pretrained(
        write_gguf(tiny(vocab_size=262), tmp_path / "a.gguf", changes)
    )
    assert kernel.codec.end_tokens == (2, 260, 261)


VECTOR = np.ones(8, dtype=np.float32)
RISING = np.linspace(1, 2, 8, dtype=np.float32)


@pytest.mark.parametrize(
    ("kind", "changes", "tensors", "says"),
    [
        ("Falcon", {}, {}, "got 'falcon'"),
        ("Llama", {"llama.expert_count": 8}, {}, "llama.expert_count"),
        ("Llama", {"llama.logit_scale": 0.5}, {}, "llama.logit_scale"),
        ("Llama", {"llama.residual_scale": 0.5}, {}, "llama.residual_scale"),
        ("Llama", {"llama.attention.causal": False}, {}, "llama.attention.causal"),
        ("Llama", {"llama.attention.value_length": 8}, {}, "llama.attention.value_length"),
        ("Llama", {"llama.rope.dimension_count": 8}, {}, "llama.rope.dimension_count"),
        ("Llama", {"llama.attention.head_count_kv": [2, 1]}, {}, "attention.head_count_kv for all"),
        ("Llama", {"llama.feed_forward_length": None}, {}, "a field llama.feed_forward_length"),
        ("Llama", {"llama.feed_forward_length": 95}, {}, "blk.0.ffn_gate.weight"),
        ("Llama", {"llama.block_count": 1}, {}, "got 'blk.1."),
        ("Llama", {"llama.block_count": 3}, {}, "a tensor 'blk.2."),
        ("Llama", {"llama.rope.scaling.type": "yarn"}, {}, "got yarn"),
        ("Llama", {"llama.rope.scaling.type": "dynamic"}, {}, "got dynamic"),
        ("Llama", {"llama.rope.scaling.yarn_log_multiplier": 0.1}, {}, "yarn_log_multiplier"),
        ("Llama", {"llama.rope.scaling.attn_factor": 1.2}, {}, "attn_factor"),
        ("Llama", {"split.count": 3}, {}, "one of 3 parts"),
        ("Llama", {}, {"rope_freqs.weight": RISING}, "rope_freqs.weight"),
        ("Llama", {}, {"rope_freqs.weight": VECTOR[:3]}, "factors of 8 angles"),
        ("Llama", {}, {"rope_factors_long.weight": VECTOR}, "rope_factors_long.weight"),
        ("Llama", {}, {"blk.0.attn_q.bias": np.ones(64, np.float32)}, "blk.0.attn_q.bias"),
        ("Llama", {}, {"blk.0.attn_sinks.weight": VECTOR}, "blk.0.attn_sinks.weight"),
        ("Gemma2", {"gemma2.final_logit_softcapping": None}, {}, "final_logit_softcapping"),
        ("Qwen2", {"qwen2.attention.key_length": 32}, {}, "qwen2.attention.key_length"),
        ("Llama", {"tokenizer.ggml.model": "bert"}, {}, "got 'bert'"),
        ("Llama", {"tokenizer.ggml.pre": "kimi-k2"}, {}, "got 'kimi-k2'"),
        ("Llama", {"tokenizer.ggml.pre": None}, {}, "tokenizer.ggml.pre"),
        ("Llama", {"tokenizer.ggml.token_type": None}, {}, "tokenizer.ggml.token_type"),
        ("Llama", {"tokenizer.ggml.merges": None}, {}, "tokenizer.ggml.merges"),
        ("Llama", {"tokenizer.ggml.tokens": ["a"] * len(TOKENS)}, {}, "different tokens"),
        ("Llama", {"tokenizer.ggml.eos_token_id": None}, {}, "tokenizer.ggml.eos_token_id"),
        (
            "Llama",
            {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": None},
            {},
            "tokenizer.ggml.bos_token_id",
        ),
        ("Llama", {"tokenizer.ggml.model": "llama"}, {}, "tokenizer.ggml.scores"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_what_cannot_be_read_is_refused_by_name(
    kind: str, changes: dict[str, object], tensors: dict[str, np.ndarray], says: str, tmp_path: Path
) -> None:
    if kind == "Falcon":
        changes, kind = {"general.architecture": "falcon"}, "Llama"
    file = write_gguf(tiny(kind), tmp_path / "tiny.gguf", changes, tensors)
    with pytest.raises(HostError, match=r"^expected [^\n]+$") as caught:
        HostKernel.from_pretrained(file, slots=1)
    assert says in str(caught.value)

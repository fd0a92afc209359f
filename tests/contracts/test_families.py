"""Whatever the config of a Llama-like host says, the fused forward computes it exactly or leaves it
alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hosts import make_host, random_weights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request
from symbiont_ecology.model.architectures import read_blueprint
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.loading import read_model_config

PROMPTS = ("", "a", "x" * 15, "y" * 16, "the quick brown fox jumps", "12+7=" * 12, "12+7=" * 12)
SLOTS = (0, HOST_SLOT, 1, 1, 0, 1, 1)
LEFT_OUT = object()
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MIXED = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]


def changed(folder: Path, out: Path, changes: dict[str, Any]) -> Path:
    """A copy of a host whose config says something else."""
    shutil.copytree(folder, out, dirs_exist_ok=True)
    config = read_model_config(folder) | changes
    kept = {name: value for name, value in config.items() if value is not LEFT_OUT}
    (out / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return out


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen3", {"use_sliding_window": False, "sliding_window": 16, "layer_types": LEFT_OUT}),
        ("qwen2", {"rope_parameters": LEFT_OUT, "rope_theta": 500.0}),
        ("llama", {"rope_parameters": LEFT_OUT, "rope_scaling": {"type": "default"}}),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("llama", {"rope_scaling": LLAMA_3, "rope_theta": 500.0}),
        ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        (
            "gemma3",
            {"rope_parameters": LEFT_OUT, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        ),
        ("llama", {"tie_word_embeddings": True}),  # the file holds two different weights
        (
            "llama",
            {"query_pre_attn_scalar": 7, "rope_local_base_freq": 7.0, "max_window_layers": 1},
        ),
        ("mistral", {"sliding_window": LEFT_OUT}),
        (
            "sliding mistral",
            {"use_sliding_window": False, "max_window_layers": 2, "sliding_window": 2},
        ),
        ("gemma3", {"layer_types": LEFT_OUT, "sliding_window_pattern": 2}),
        ("gemma3", {"rope_parameters": LEFT_OUT}),
        ("gemma3", {"rope_parameters": LEFT_OUT, "rope_theta": 7e4, "rope_local_base_freq": 3e3}),
        (
            "gemma3",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 77.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 99.0},
                }
            },
        ),
        (
            "gemma3",
            dict.fromkeys(
                (
                    "tie_word_embeddings",
                    "hidden_activation",
                    "query_pre_attn_scalar",
                    "rope_parameters",
                ),
                LEFT_OUT,
            )
            | {"hidden_act": "silu"},
        ),
    ],
)
def test_what_a_config_says_is_what_is_computed(
    host_folders: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    folder = changed(host_folders[kind], tmp_path, changes)
    assert read_blueprint(read_model_config(folder))
    assert_fused_equals_transformers(folder)


def test_sizes_that_a_config_leaves_out_are_those_of_its_family(tmp_path: Path) -> None:
    made = make_host(tmp_path / "made", layers=1, head_dim=128)
    assert_fused_equals_transformers(changed(made, tmp_path / "changed", {"head_dim": LEFT_OUT}))


def assert_fused_equals_transformers(folder: Path) -> None:
    fused, wrapped = (
        HostKernel.from_pretrained(folder, slots=2, prefer_fused=prefer) for prefer in (True, False)
    )
    assert fused.shape == wrapped.shape
    assert fused.fingerprint() == wrapped.fingerprint()
    rows = [Request(prompt, slot, 20) for prompt, slot in zip(PROMPTS, SLOTS, strict=True)]
    found = []
    for kernel in (fused, wrapped):
        for slot in range(2):
            kernel.place(slot, random_weights(kernel.layout, slot))
        found.append(kernel.rollout(rows, None, Decoding(min_new_tokens=20)))
    np.testing.assert_array_equal(found[0].ids, found[1].ids)
    np.testing.assert_allclose(found[0].log_probabilities, found[1].log_probabilities, atol=1e-5)


@pytest.mark.parametrize("changes", [{"attention_bias": True}, {"tie_word_embeddings": False}])
@pytest.mark.parametrize("prefer_fused", [True, False])
def test_tensors_that_a_config_promises_must_be_there(
    host_folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any], prefer_fused: bool
) -> None:
    folder = changed(host_folders["qwen3"], tmp_path, changes)
    with pytest.raises(HostError, match="expected tensor"):
        HostKernel.from_pretrained(folder, prefer_fused=prefer_fused)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gpt2", {}),
        ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}),
        ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}}),
        (
            "qwen3",
            {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
        ),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("gemma3", {"final_logit_softcapping": 30.0}),
        ("gemma3", {"attn_logit_softcapping": 50.0}),
        ("gemma3", {"use_bidirectional_attention": True}),
        ("gemma3", {"hidden_activation": "gelu"}),
        ("gemma3", {"model_type": "gemma3"}),
        ("qwen3", {"is_causal": False}),
        ("qwen3", {"hidden_act": "gelu"}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 16, "layer_types": MIXED}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 7, "layer_types": LEFT_OUT}),
        ("gemma3", {"layer_types": MIXED, "sliding_window": None}),  # windows of no size
        ("qwen3", {"layer_types": ["chunked_attention"] * 4}),
        ("qwen3", {"layer_types": ["full_attention"]}),
        ("qwen3", {"quantization_config": {"quant_method": "fp8"}}),
        ("llama", {"sliding_window": 16}),
        ("mistral", {"layer_types": MIXED}),
        ("sliding mistral", {"sliding_window": 0}),
    ],
)
def test_what_it_would_not_compute_is_left_to_transformers(
    host_folders: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    assert (read_blueprint(read_model_config(host_folders[kind])) is None) == (kind == "gpt2")
    assert not read_blueprint(read_model_config(changed(host_folders[kind], tmp_path, changes)))

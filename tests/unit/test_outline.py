"""What a config alone says of a host is what the loaded host has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hosts import KINDS, SMOLLM2, make_host, smollm2
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.architectures import ModelConfig
from symbiont_ecology.host.decoder import Decoder, layout_of
from symbiont_ecology.host.loading import load_decoder, read_model_config
from symbiont_ecology.host.locating import EMBEDDED_FOLDER
from symbiont_ecology.host.outline import bytes_of, outline_of

CPU = torch.device("cpu")
QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "sliding_window": 32768,
    "use_sliding_window": False,
    "max_window_layers": 21,
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
    "max_position_embeddings": 32768,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rms_norm_eps": 1e-06,
}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(QWEN3, 596_049_920), (QWEN2, 494_032_768), (GEMMA3, 268_098_176)],
    ids=["Qwen3-0.6B", "Qwen2.5-0.5B", "Gemma 3 270M"],
)
def test_known_models_have_their_published_sizes(config: ModelConfig, parameters: int) -> None:
    outline = outline_of(config, torch.bfloat16)
    assert outline.shape.parameters == parameters
    assert bytes_of(outline) == 2 * parameters


def agree(outline: Decoder, decoder: Decoder) -> None:
    """They have the same sizes, tensor by tensor."""
    assert outline.shape == decoder.shape
    assert layout_of(outline) == layout_of(decoder)
    real = {name: (tensor.shape, tensor.dtype) for name, tensor in decoder.weights().items()}
    assert {n: (t.shape, t.dtype) for n, t in outline.weights().items()} == real
    assert bytes_of(outline) == bytes_of(decoder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_the_embedded_host_is_as_its_config_says(dtype: torch.dtype) -> None:
    config = read_model_config(EMBEDDED_FOLDER)
    agree(
        outline_of(config, dtype),
        load_decoder(EMBEDDED_FOLDER, config, CPU, dtype, prefer_fused=True),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_is_as_its_config_says(kind: str, tmp_path: Path) -> None:
    folder = make_host(tmp_path, kind)
    config = read_model_config(folder)
    outline = outline_of(config, torch.float32)
    agree(outline, load_decoder(folder, config, CPU, torch.float32, prefer_fused=True))
    assert {tensor.device.type for tensor in outline.weights().values()} == {"meta"}


@smollm2
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_smollm2_is_as_its_config_says(dtype: torch.dtype) -> None:
    config = read_model_config(SMOLLM2)
    agree(outline_of(config, dtype), load_decoder(SMOLLM2, config, CPU, dtype, prefer_fused=True))


@pytest.mark.parametrize(
    "damage",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "many"},
        {"hidden_size": -4},
        {"hidden_size": 10**18},
        {"vocab_size": None},
        {"model_type": "bert-of-nobody"},
    ],
    ids=json.dumps,
)
def test_a_config_of_no_decoder_is_one_line(damage: dict[str, object]) -> None:
    with pytest.raises(HostError, match=r"^expected"):
        outline_of(QWEN3 | damage, torch.float32)

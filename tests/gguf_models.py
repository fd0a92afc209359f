"""A tiny model as a GGUF file, and as a package that pip can bring."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import pre_tokenizers

SIZES: dict[str, int] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
WHEEL_FACTS = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def tiny(kind: str = "Llama", **changes: Any) -> Any:
    """A random model of transformers with tied embeddings, the same each time."""
    sizes: dict[str, object] = dict(SIZES)
    if kind == "GPT2":
        sizes = {"n_embd": 64, "n_inner": 96, "n_positions": 128, "n_layer": 2, "n_head": 4}
    ends = {"vocab_size": 260, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config".replace("Gemma3C", "Gemma3TextC"))
    spread = {"tie_word_embeddings": True, "initializer_range": 0.25}
    head = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, head)(config(**(sizes | ends | spread | changes))).eval()
    with torch.no_grad():  # biases and norms away from 0 and 1
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def fields_of(model: Any) -> dict[str, object]:
    """What llama.cpp's converter writes of a config, behind the name of the architecture."""
    config = model.config
    kind = config.model_type.removesuffix("_text")
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    facts: dict[str, object] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", None) or config.n_inner,
        "attention.head_count": heads,
    }
    if kind in ("gpt2", "starcoder2"):
        eps = getattr(config, "norm_epsilon", None) or config.layer_norm_epsilon
        facts["attention.layer_norm_epsilon"] = eps
    else:
        facts["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
    if kind == "gpt2":
        return facts
    facts["attention.head_count_kv"] = config.num_key_value_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    if kind != "gemma2":
        facts["rope.freq_base"] = float(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        facts |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if rope["rope_type"] == "yarn":
        facts["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if kind in ("qwen3", "gemma2", "gemma3"):
        facts |= {"attention.key_length": width, "attention.value_length": width}
    if kind == "llama":
        facts |= {"vocab_size": config.vocab_size, "rope.dimension_count": width}
        if width != config.hidden_size // heads:
            facts |= {"attention.key_length": width, "attention.value_length": width}
    if kind in ("gemma2", "gemma3", "phi3"):
        facts["attention.sliding_window"] = config.sliding_window or 0
    if kind == "gemma2":
        facts["attn_logit_softcapping"] = config.attn_logit_softcapping
        facts["final_logit_softcapping"] = config.final_logit_softcapping
    if kind == "phi3":
        part = rope.get("partial_rotary_factor", 1.0)
        facts["rope.dimension_count"] = int(width * part)
        context = rope.get("original_max_position_embeddings", config.max_position_embeddings)
        facts["rope.scaling.original_context_length"] = context
        if "long_factor" in rope:
            ratio = config.max_position_embeddings / context
            more = math.sqrt(1 + math.log(ratio) / math.log(context)) if ratio > 1 else 1.0
            facts["rope.scaling.attn_factor"] = more
    return facts


TOKENS = ["<pad>", "<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ"]
WORDS: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(TOKENS) - 3),
    "tokenizer.ggml.merges": ["Ġ Ġ"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 0,
}
"""Fields of a tokenizer of bytes that merges two blanks."""


def write_gguf(
    model: Any,
    file: Path,
    changes: Mapping[str, object] = MappingProxyType({}),
    tensors: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Path:
    """The model as a GGUF file in float32, as llama.cpp's converter writes it; some fields may be
    others, or None for none, and there may be tensors beside its own."""
    kind = model.config.model_type.removesuffix("_text")
    own = {f"{kind}.{name}": value for name, value in fields_of(model).items()}
    writer = gguf.GGUFWriter(file, kind)
    for name, value in (own | WORDS | dict(changes)).items():
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
            case list():
                writer.add_array(name, value)
    for name, weight in (_stored(model) | dict(tensors)).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def make_wheel(folder: Path, name: str, files: dict[str, bytes]) -> str:
    """A wheel of version 1.0 that holds these files; returns the requirement."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = name.replace("-", "_")
    facts = f"{plain}-1.0.dist-info"
    said = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    said |= {"WHEEL": WHEEL_FACTS, "RECORD": ""}
    with zipfile.ZipFile(folder / f"{plain}-1.0-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        for path, text in said.items():
            wheel.writestr(f"{facts}/{path}", text)
    return f"{name}==1.0"


def _stored(model: Any) -> dict[str, np.ndarray]:
    """The tensors of a model by their names in a file."""
    config = model.config
    kind = config.model_type.removesuffix("_text")
    architecture = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    tensors = {}
    angles = getattr(config, "rope_parameters", None) or {}
    for name in ("long", "short"):
        if factors := angles.get(f"{name}_factor"):
            tensors[f"rope_factors_{name}.weight"] = np.array(factors, dtype=np.float32)
    if angles.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = _llama_3(angles, config.head_dim)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, end = name.rpartition(".")
        heads = {"q_proj": config.num_attention_heads}
        if kind == "llama":
            heads["k_proj"] = config.num_key_value_heads
        count = heads.get(stem.rpartition(".")[2], 0) if kind == "llama" else 0
        if count:  # queries and keys lie interleaved
            half = weight.shape[0] // count // 2
            pairs = weight.reshape(count, 2, half, *weight.shape[1:])
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        if kind in ("gemma2", "gemma3") and name.endswith("norm.weight"):
            weight = weight + 1
        if kind == "gpt2" and end == "weight" and ".c_" in name:
            weight = weight.T
        tensors[f"{names.get_name(stem)}.{end}"] = weight.contiguous().numpy()
    return tensors


def _llama_3(angles: Mapping[str, float], size: int) -> np.ndarray:
    """What each angle is divided by, as the converter computes it."""
    factor, context = angles["factor"], angles["original_max_position_embeddings"]
    low, high = angles["low_freq_factor"], angles["high_freq_factor"]
    factors = []
    for place in range(0, size, 2):
        length = 2 * math.pi * angles["rope_theta"] ** (place / size)
        share = min(max((context / length - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - share) / factor + share))
    return np.array(factors, dtype=np.float32)

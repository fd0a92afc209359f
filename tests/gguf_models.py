"""A tiny model as a GGUF file, and as a package that pip can bring."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

SIZES: dict[str, int] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MEMBERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHEEL_FACTS = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def tiny_llama() -> Any:
    """A random Llama with tied embeddings, the same each time."""
    torch.manual_seed(0)
    ends = {"vocab_size": 260, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.LlamaConfig(**SIZES, **ends, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config).eval()


def write_gguf(model: Any, file: Path, *, digits: str = "default") -> Path:
    """The model as a GGUF file in float32, with a tokenizer of bytes that merges two blanks."""
    from tokenizers import pre_tokenizers

    writer, config = gguf.GGUFWriter(file, "llama"), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = ["<pad>", "<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(digits)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    for name, weight in model.state_dict().items():
        writer.add_tensor(_name(name), _as_stored(name, weight, config))
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


def _name(name: str) -> str:
    if name.startswith("model.layers."):
        number, _, rest = name.removeprefix("model.layers.").partition(".")
        return f"blk.{number}.{MEMBERS[rest.removesuffix('.weight')]}.weight"
    return {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }[name]


def _as_stored(name: str, weight: torch.Tensor, config: Any) -> Any:
    """Queries and keys lie interleaved in a GGUF file."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = next((heads[key] for key in heads if key in name), 0)
    if count:
        half = weight.shape[0] // count // 2
        weight = weight.reshape(count, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)
    return weight.contiguous().numpy()

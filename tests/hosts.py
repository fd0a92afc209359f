"""Tiny random hosts and PEFT adapters for tests: real folders, made in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights

PROMPTS = (
    "12+7=",
    "a",
    "the quick brown fox jumps",
    "réd",
    "x" * 40,
    "7*8",
    "rev abc",
    "count the words in this line",
)


def make_tokenizer(folder: Path) -> int:
    """A byte-level tokenizer that puts a beginning token in front; returns its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(names[:3])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    return len(names)


def make_host(folder: Path, kind: str = "qwen3", layers: int = 4, seed: int = 0, **changes: Any) -> Path:
    """A random host of that kind with its tokenizer in ``folder``; returns the folder."""
    import transformers

    make_tokenizer(folder)
    ends = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": 288,
        "initializer_range": 0.08,
    }
    llama_like = {
        "hidden_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 384,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    sizes = {
        "qwen3": ("Qwen3", llama_like),
        "qwen2": ("Qwen2", {name: value for name, value in llama_like.items() if name != "head_dim"}),
        "llama": (
            "Llama",
            llama_like | {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
        ),
        "mistral": ("Mistral", llama_like | {"sliding_window": None}),
        "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 512}),
    }
    name, arguments = sizes[kind]
    head = "GPT2LMHeadModel" if kind == "gpt2" else f"{name}ForCausalLM"
    torch.manual_seed(seed)
    model = getattr(transformers, head)(
        getattr(transformers, f"{name}Config")(**(arguments | ends | changes))
    )
    with torch.no_grad():  # biases and norms away from 0 and 1, so that forgetting one shows
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def random_weights(layout: AdapterLayout, seed: int, rank: int = 8, scaling: float = 2.0) -> AdapterWeights:
    """An adapter that clearly changes what the host says."""
    return AdapterWeights.random(layout, rank, scaling, np.random.default_rng(seed), b_std=0.05)

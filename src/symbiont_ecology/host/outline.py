"""A host without its weights: what a ``config.json`` alone says of sizes.

Tensors of the decoder are on torch's *meta* device: they have shapes and no numbers. So sizes come
from the code that computes the host, and nothing large is read or made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.architectures import Blueprint, ModelConfig, read_blueprint
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.layers import SITES, LlamaWeights
from symbiont_ecology.host.llama import LlamaDecoder

MOST_LAYERS = 1000
"""More than any host has: a config is data from anyone."""
_META = torch.device("meta")
_DAMAGED = (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError)


def outline_of(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    """The decoder that a config describes, without numbers. Its ``shape``, ``sites`` and the bytes
    of its ``weights()`` are those of the real one; it computes nothing.

    Raises:
        HostError: the config describes no decoder, or none that can be held in that dtype.
    """
    layers = config.get("num_hidden_layers") or config.get("n_layer")
    if not isinstance(layers, int) or not 0 < layers <= MOST_LAYERS:
        raise HostError(
            f"expected a config of a decoder with 1 to {MOST_LAYERS} layers, got {layers!r}: "
            "is this a config.json of a language model?"
        )
    plan = read_blueprint(config)
    if plan is None and dtype == torch.int8:
        raise HostError(
            "expected a Llama-like host for dtype=int8, got another: use float32 or bfloat16"
        )
    try:
        return _wrapped(config, dtype) if plan is None else _llama(plan, dtype)
    except _DAMAGED as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise HostError(
            f"expected the sizes of a decoder in the config: download it again ({line:.200})"
        ) from error


def _llama(plan: Blueprint, dtype: torch.dtype) -> LlamaDecoder:
    tensors = {
        name: torch.empty(shape, device=_META) for name, shape in weight_shapes(plan).items()
    }
    return LlamaDecoder(LlamaWeights(plan.config, tensors, _META, dtype))


def _wrapped(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    from transformers import AutoConfig, AutoModelForCausalLM

    from symbiont_ecology.host.wrapped import WrappedDecoder

    known = AutoConfig.for_model(**config)
    with _META:
        model = AutoModelForCausalLM.from_config(known, dtype=dtype, trust_remote_code=False)
    return WrappedDecoder(model, _META)


def weight_shapes(plan: Blueprint) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a Llama-like host by its Hugging Face name, tied ones once."""
    config, architecture = plan.config, plan.architecture
    hidden, vocab, feed = (
        int(config[name]) for name in ("hidden_size", "vocab_size", "intermediate_size")
    )
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    size = int(config.get("head_dim") or hidden // heads)
    linears = {
        "q_proj": (heads * size, hidden),
        "k_proj": (kv_heads * size, hidden),
        "v_proj": (kv_heads * size, hidden),
        "o_proj": (hidden, heads * size),
        "gate_proj": (feed, hidden),
        "up_proj": (feed, hidden),
        "down_proj": (hidden, feed),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not plan.is_tied:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(len(plan.views)):
        stem = f"model.layers.{layer}."
        for (block, members), has_bias in zip(SITES, plan.biases, strict=True):
            for name in members:
                shapes[f"{stem}{block}.{name}.weight"] = linears[name]
                if has_bias:
                    shapes[f"{stem}{block}.{name}.bias"] = linears[name][:1]
        for norm in filter(None, architecture.norms):
            shapes[f"{stem}{norm}.weight"] = (hidden,)
        if architecture.has_head_norms:
            shapes |= {f"{stem}self_attn.{name}_norm.weight": (size,) for name in "qk"}
    return shapes


def bytes_of(decoder: Decoder) -> int:
    """Bytes of all base weights, tied ones once, scales of eight-bit weights included."""
    weights: dict[str, Tensor] = decoder.weights()
    return sum(weight.nbytes for weight in weights.values())

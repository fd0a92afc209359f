"""A host without its weights: what a ``config.json`` alone says of sizes.

Tensors of the decoder are on torch's *meta* device: they have shapes and no numbers. So sizes come
from the code that computes the host, and nothing large is read or made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from symbiont_ecology.host.architectures import Blueprint, ModelConfig, read_blueprint
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.fields import HostFields, check_fields, expect, expected
from symbiont_ecology.host.layers import LlamaWeights, weight_shapes
from symbiont_ecology.host.llama import LlamaDecoder

_META = torch.device("meta")


def outline_of(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    """The decoder that a config describes, without numbers. Its ``shape``, ``sites`` and the bytes
    of its ``weights()`` are those of the real one; it computes nothing.

    Raises:
        HostError: the config describes no decoder, or none that can be held in that dtype.
    """
    fields = check_fields(HostFields, config, "config.json of the host")
    expect(
        fields.num_hidden_layers or fields.n_layer,
        "a number of layers in the config, found none: is this a config.json of a language model?",
    )
    plan = read_blueprint(config)
    expect(
        plan is not None or dtype != torch.int8,
        "a Llama-like host for dtype=int8, got another: use float32 or bfloat16",
    )
    # A stranger's sizes, in the hands of other libraries.
    with expected("the sizes of a decoder in the config: download it again", Exception):
        return _wrapped(config, dtype) if plan is None else _llama(plan, dtype)


def _llama(plan: Blueprint, dtype: torch.dtype) -> LlamaDecoder:
    tensors = {
        name: torch.empty(shape, device=_META) for name, shape in weight_shapes(plan).items()
    }
    return LlamaDecoder(LlamaWeights(plan.config, tensors, _META, dtype))


def _wrapped(config: ModelConfig, dtype: torch.dtype) -> Decoder:
    from transformers import AutoConfig, AutoModelForCausalLM

    from symbiont_ecology.host.wrapped import WrappedDecoder

    settings = AutoConfig.for_model(**config)
    with _META:
        model = AutoModelForCausalLM.from_config(settings, dtype=dtype, trust_remote_code=False)
    return WrappedDecoder(model, _META)


def bytes_of(decoder: Decoder) -> int:
    """Bytes of all base weights, tied ones once, scales of eight-bit weights included."""
    weights: dict[str, Tensor] = decoder.weights()
    return sum(weight.nbytes for weight in weights.values())

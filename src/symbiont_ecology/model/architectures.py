"""Llama-like architectures, and the meaning of their configs for the fused forward.

An architecture is Llama with other data: windows, biases, norms in other places. To add one, add an
entry to ``_ARCHITECTURES`` under the ``model_type`` of its configs. What the fields of
``Architecture`` cannot say is new code in ``llama`` (what a layer computes) or ``layers`` (which
weights it has). A field that a config leaves out has the default that transformers 5 gives it. A
config that asks for anything beyond these fields is not understood, and transformers computes that
host (``extensions.hosts.wrapped``). Models: arXiv:2302.13971 (Llama), arXiv:2310.06825 (Mistral),
arXiv:2505.09388 (Qwen3), arXiv:2503.19786 (Gemma 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.locating import MAX_HEAD, LlamaFields, check_fields, expect

ModelConfig = Mapping[str, Any]
"""What a host's ``config.json`` says."""

_FULL, _SLIDING = "full_attention", "sliding_attention"
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
_LLAMA_3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_NOT_COMPUTED = (
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "per_layer_config",
    "quantization_config",
    "use_bidirectional_attention",
)


@dataclass(frozen=True)
class Rope:
    """Rotary angles (arXiv:2104.09864): ``theta`` is their base; a ``factor`` slows them for long
    contexts.

    With ``low`` and ``high`` only the slow ones are slowed: those with fewer than ``low`` turns in
    the ``context`` of pre-training by all of the factor, those with more than ``high`` not at all
    (Llama 3, arXiv:2407.21783).
    """

    theta: float
    factor: float = 1.0
    low: float = 0.0
    high: float = 0.0
    context: int = 0

    def speeds(self, size: int) -> Tensor:
        """Return the angle per position (radians) of each pair of a head's numbers, ``(size ÷
        2,)``."""
        speeds = 1.0 / self.theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        if not self.context:
            return speeds / self.factor
        turns = self.context * speeds / (2 * math.pi)
        share = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return speeds * (share + (1.0 - share) / self.factor)


@dataclass(frozen=True)
class View:
    """Tokens that the attention of a layer looks at: ``window`` of them, the looking one included
    (None: all)."""

    window: int | None
    rope: Rope


@dataclass(frozen=True)
class Architecture:
    """Rules for reading the configs of one model type.

    ``defaults`` are the fields that a config may leave out. ``slides`` says of a layer's number
    whether its window slides when no ``layer_types`` say so, None where no layer's does. If it
    ``has_mixed_layers``, these types are read, and angles for each of them. A bias is
    a field's name, or always there, or never; they are those of a layer's sites (q, k and v;
    output; gate and up; down). ``norms`` are the names of those before attention, after it, before
    the feed-forward part and after it, None where there is none; they multiply by ``norm_offset`` +
    weight. ``activation`` is the name of a field; ``angles`` are the field and the default of theta
    by kind of layer.
    """

    defaults: ModelConfig = field(default_factory=dict)
    slides: Callable[[ModelConfig, int], bool] | None = None
    has_mixed_layers: bool = False
    biases: tuple[str | bool, ...] = (False, False, False, False)
    norms: tuple[str | None, ...] = ("input_layernorm", None, "post_attention_layernorm", None)
    norm_offset: float = 0.0
    has_head_norms: bool = False
    has_scaled_embedding: bool = False
    activation: str = "hidden_act"
    angles: Mapping[str, tuple[str, float]] = field(
        default_factory=lambda: dict.fromkeys((_FULL, _SLIDING), ("rope_theta", 10_000.0))
    )


@dataclass(frozen=True)
class Blueprint:
    """Facts of one host for the fused forward.

    ``shape`` are its sizes, without numbers of parameters; ``views`` has one entry per layer;
    ``biases`` says of each site of a layer whether it has one. The output head is the embedding if
    it ``is_tied``. Norms add ``eps`` to the mean square; embeddings and scores are multiplied.
    """

    architecture: Architecture
    shape: HostShape
    views: tuple[View, ...]
    biases: tuple[bool, ...]
    activation: Callable[[Tensor], Tensor]
    is_tied: bool
    eps: float
    embedding_scale: float
    attention_scale: float


_QWEN = {"num_key_value_heads": 32, "use_sliding_window": False}
_ARCHITECTURES = {
    "llama": Architecture(biases=("attention_bias", "attention_bias", "mlp_bias", "mlp_bias")),
    "mistral": Architecture(
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
        slides=lambda config, layer: True,
    ),
    "qwen2": Architecture(defaults=_QWEN, biases=(True, False, False, False)),
    "qwen3": Architecture(
        defaults=_QWEN | {"head_dim": 128},
        biases=("attention_bias", "attention_bias", False, False),
        has_head_norms=True,
    ),
    "gemma3_text": Architecture(
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        },
        slides=lambda config, layer: (layer + 1) % config["sliding_window_pattern"] != 0,
        has_mixed_layers=True,
        biases=("attention_bias", "attention_bias", False, False),
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ),
        norm_offset=1.0,
        has_head_norms=True,
        has_scaled_embedding=True,
        activation="hidden_activation",
        angles={_FULL: ("rope_theta", 1_000_000.0), _SLIDING: ("rope_local_base_freq", 10_000.0)},
    ),
}


def read_blueprint(config: ModelConfig) -> Blueprint | None:
    """Return the meaning of a ``config.json``, None if the fused forward would not compute that
    host exactly.

    Raises:
        HostError: a field holds what it cannot, or heads cannot be shared or turned.
    """
    architecture = _ARCHITECTURES.get(config.get("model_type", ""))
    if architecture is None:
        return None
    check_fields(LlamaFields, config, "config.json of the host")
    config = {**architecture.defaults, **config}
    shape = HostShape.from_config(config, linear_parameters=0, parameters=0)
    expect(
        shape.heads % shape.kv_heads == 0,
        "num_attention_heads in the host's config as a multiple of num_key_value_heads, got "
        f"{shape.heads} and {shape.kv_heads}: download it again",
    )
    expect(
        shape.head_dim % 2 == 0 and 2 <= shape.head_dim <= MAX_HEAD,
        f"heads of an even size up to {MAX_HEAD} in the host's config, got {shape.head_dim}: "
        "download it again",
    )
    kinds = _kinds(config, architecture, shape.layers)
    ropes = _ropes(config, architecture)
    activation = _ACTIVATIONS.get(config.get(architecture.activation, "silu"))
    is_odd = (
        any(config.get(name) not in (None, False) for name in _NOT_COMPUTED)
        or config.get("is_causal") is False
        or config.get("partial_rotary_factor") not in (None, 1.0)
    )
    if kinds is None or ropes is None or activation is None or is_odd:
        return None
    windows = {_FULL: None, _SLIDING: config.get("sliding_window")}
    views = tuple(View(windows[kind], ropes[kind]) for kind in kinds)
    biases = tuple(
        bool(config.get(bias)) if isinstance(bias, str) else bias for bias in architecture.biases
    )
    scalar = "query_pre_attn_scalar"
    return Blueprint(
        architecture,
        shape,
        views,
        biases,
        activation,
        is_tied=bool(config.get("tie_word_embeddings", False)),
        eps=float(config.get("rms_norm_eps", 1e-6)),
        embedding_scale=shape.hidden**0.5 if architecture.has_scaled_embedding else 1.0,
        attention_scale=(config[scalar] if scalar in architecture.defaults else shape.head_dim)
        ** -0.5,
    )


def _kinds(config: ModelConfig, architecture: Architecture, layers: int) -> list[str] | None:
    """Return the kind of every layer, None where it is not clear."""
    window = config.get("sliding_window")
    slides = architecture.slides
    if "use_sliding_window" in architecture.defaults and not config["use_sliding_window"]:
        window = None
    derived = [_FULL] * layers
    if window is not None:
        if slides is None:
            return None  # the models ignore it, or no known host has it
        derived = [_SLIDING if slides(config, layer) else _FULL for layer in range(layers)]
    kinds = config.get("layer_types") or derived
    is_known = set(kinds) <= {_FULL, _SLIDING} and len(kinds) == layers
    is_allowed = is_known and (architecture.has_mixed_layers or kinds == derived)
    return kinds if is_allowed and (_SLIDING not in kinds or window) else None


def _ropes(config: ModelConfig, architecture: Architecture) -> dict[str, Rope] | None:
    """Return the rotary angles by kind of layer, None where they are of a kind that is not known
    here."""
    scaling = config.get("rope_scaling") or {}
    parameters = config.get("rope_parameters") or {}
    ropes = {}
    for kind, (name, default) in architecture.angles.items():
        values: ModelConfig = scaling or parameters
        if architecture.has_mixed_layers:
            values = (parameters.get(kind) or {}) | (scaling if kind == _FULL else {})
        ropes[kind] = _rope(values, float(values.get("rope_theta", config.get(name, default))))
    readable = {kind: rope for kind, rope in ropes.items() if rope is not None}
    return readable if len(readable) == len(ropes) else None


def _rope(values: ModelConfig, theta: float) -> Rope | None:
    """Return the angles of one set of rope parameters, None if they are not known here."""
    kind = values.get("rope_type", values.get("type", "default"))
    fields = {"default": (), "linear": ("factor",), "llama3": _LLAMA_3}.get(
        kind, ("",)
    )  # which nothing has
    numbers: list[Any] = [values.get(name) for name in fields]
    is_odd = values.get("partial_rotary_factor", 1.0) != 1.0 or any(
        isinstance(value, dict) for value in values.values()
    )
    if is_odd or not all(isinstance(number, int | float) for number in numbers):
        return None
    rope = Rope(theta, *numbers)
    return rope if kind != "llama3" or rope.high > rope.low else None

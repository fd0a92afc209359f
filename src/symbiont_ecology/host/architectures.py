"""Which Llama-like hosts there are, and what a config of theirs means to the fused forward.

A family is Llama with other data: windows, biases, norms in other places. A field that a config
leaves out has the default that transformers 5 gives it. A config that asks for anything beyond
these fields is not understood, and transformers computes that host. Models: arXiv:2302.13971
(Llama), arXiv:2310.06825 (Mistral), arXiv:2505.09388 (Qwen3), arXiv:2503.19786 (Gemma 3).
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

_FULL, _SLIDING = "full_attention", "sliding_attention"
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
_LLAMA_3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")
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
        """Angle per position (radians) of each pair of a head's numbers, ``(size ÷ 2,)``."""
        speeds = 1.0 / self.theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        if not self.context:
            return speeds / self.factor
        turns = self.context * speeds / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return speeds * (kept + (1.0 - kept) / self.factor)


@dataclass(frozen=True)
class View:
    """What the attention of a layer looks at: ``window`` tokens, the looking one included (None:
    all)."""

    window: int | None
    rope: Rope


@dataclass(frozen=True)
class Blueprint:
    """What the fused forward needs to know of one host.

    ``config`` is the host's with all defaults filled in; ``views`` has one entry per layer;
    ``biases`` says of each site of a layer (q, k and v; output; gate and up; down) whether it has
    one; ``norms`` are the names of those before attention, after it, before the feed-forward part
    and after it, None where there is none. Norms multiply by ``norm_offset`` + weight; scores are
    divided by the root of ``query_scalar`` (None: the size of a head).
    """

    config: Mapping[str, Any]
    views: tuple[View, ...]
    biases: tuple[bool, ...]
    norms: tuple[str | None, ...]
    norm_offset: float
    has_head_norms: bool
    activation: Callable[[Tensor], Tensor]
    embedding_scale: float
    query_scalar: float | None

    @property
    def is_tied(self) -> bool:
        """Whether the output head is the embedding."""
        return bool(self.config.get("tie_word_embeddings", False))

    @property
    def eps(self) -> float:
        """What norms add to the mean square."""
        return float(self.config.get("rms_norm_eps", 1e-6))


@dataclass(frozen=True)
class _Family:
    """How the configs of one model type are read; a bias is a field's name, or always there, or
    never.

    ``slides`` says of a layer's number whether its window slides when no ``layer_types`` say so,
    None where no layer's does; ``angles`` are the field and the default of theta by kind of layer.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    slides: Callable[[Mapping[str, Any], int], bool] | None = None
    has_layer_types: bool = False
    biases: tuple[str | bool, ...] = (False, False, False, False)
    norms: tuple[str | None, ...] = ("input_layernorm", None, "post_attention_layernorm", None)
    norm_offset: float = 0.0
    has_head_norms: bool = False
    has_scaled_embedding: bool = False
    activation: str = "hidden_act"
    angles: Mapping[str, tuple[str, float]] = field(
        default_factory=lambda: dict.fromkeys((_FULL, _SLIDING), ("rope_theta", 10_000.0))
    )
    has_angles_by_kind: bool = False


_QWEN = {
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
_FAMILIES = {
    "llama": _Family(biases=("attention_bias", "attention_bias", "mlp_bias", "mlp_bias")),
    "mistral": _Family(
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
        slides=lambda config, layer: True,
    ),
    "qwen2": _Family(
        defaults=_QWEN,
        slides=lambda config, layer: layer >= config["max_window_layers"],
        has_layer_types=True,
        biases=(True, False, False, False),
    ),
    "qwen3": _Family(
        defaults=_QWEN | {"head_dim": 128},
        slides=lambda config, layer: layer >= config["max_window_layers"],
        has_layer_types=True,
        biases=("attention_bias", "attention_bias", False, False),
        has_head_norms=True,
    ),
    "gemma3_text": _Family(
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
        has_layer_types=True,
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
        has_angles_by_kind=True,
    ),
}


def read_blueprint(config: Mapping[str, Any]) -> Blueprint | None:
    """What a ``config.json`` means, None if the fused forward would not compute that host
    exactly."""
    family = _FAMILIES.get(config.get("model_type", ""))
    if family is None or not all(isinstance(config.get(name), int) for name in _SIZES):
        return None
    config = {**family.defaults, **config}
    kinds, ropes = _kinds(config, family), _ropes(config, family)
    activation = _ACTIVATIONS.get(config.get(family.activation, "silu"))
    is_odd = (
        any(config.get(name) not in (None, False) for name in _NOT_COMPUTED)
        or config.get("is_causal") is False
        or config.get("partial_rotary_factor") not in (None, 1.0)
    )
    if kinds is None or ropes is None or activation is None or is_odd:
        return None
    windows = {_FULL: None, _SLIDING: config.get("sliding_window")}
    return Blueprint(
        config,
        tuple(View(windows[kind], ropes[kind]) for kind in kinds),
        tuple(bool(config.get(one)) if isinstance(one, str) else one for one in family.biases),
        family.norms,
        family.norm_offset,
        family.has_head_norms,
        activation,
        config["hidden_size"] ** 0.5 if family.has_scaled_embedding else 1.0,
        config["query_pre_attn_scalar"] if "query_pre_attn_scalar" in family.defaults else None,
    )


def _kinds(config: Mapping[str, Any], family: _Family) -> list[str] | None:
    """The kind of every layer, None where it is not clear."""
    has_switch = "use_sliding_window" in family.defaults
    window = (
        config.get("sliding_window") if not has_switch or config["use_sliding_window"] else None
    )
    layers = range(config["num_hidden_layers"])
    if family.slides is None and window is not None:
        return None  # the models ignore it, their caches do not
    slides = family.slides if window is not None else None
    derived = [
        _SLIDING if slides is not None and slides(config, layer) else _FULL for layer in layers
    ]
    kinds = config.get("layer_types") or derived
    is_known = set(kinds) <= {_FULL, _SLIDING} and len(kinds) == len(layers)
    has_window = _SLIDING not in kinds or (window is not None and window > 0)
    return (
        kinds if is_known and has_window and (family.has_layer_types or kinds == derived) else None
    )


def _ropes(config: Mapping[str, Any], family: _Family) -> dict[str, Rope] | None:
    """The rotary angles by kind of layer, None where they are of a kind that is not known here."""
    scaling, parameters = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    found = {}
    for kind, (name, default) in family.angles.items():
        if family.has_angles_by_kind:
            said = (parameters.get(kind) or {}) | (scaling if kind == _FULL else {})
        else:
            said = scaling or parameters
        rope = _rope(said, float(said.get("rope_theta", config.get(name, default))))
        if rope is None:
            return None
        found[kind] = rope
    return found


def _rope(said: Mapping[str, Any], theta: float) -> Rope | None:
    """What one set of rope parameters says."""
    kind = said.get("rope_type", said.get("type", "default"))
    is_odd = said.get("partial_rotary_factor", 1.0) != 1.0 or any(
        isinstance(v, dict) for v in said.values()
    )
    fields = {"default": (), "linear": ("factor",), "llama3": _LLAMA_3}.get(kind)
    if (
        is_odd
        or fields is None
        or not all(isinstance(said.get(one), int | float) for one in fields)
    ):
        return None
    if kind == "llama3" and not said["high_freq_factor"] > said["low_freq_factor"]:
        return None
    return Rope(theta, *(said[one] for one in fields))

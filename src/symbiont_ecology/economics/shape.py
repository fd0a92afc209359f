"""The sizes of a host: all that closed-form FLOPs and memory formulas need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symbiont_ecology.errors import HostError


@dataclass(frozen=True, slots=True)
class HostShape:
    """Sizes of a decoder-only transformer, in elements.

    ``linear_parameters`` counts the weights of all linear modules inside ONE decoder layer (biases
    and norms left out): one token costs 2 · layers · linear_parameters FLOPs there, 2 · hidden ·
    vocab in the output head, and 4 · layers · heads · head_dim · context in attention (Kaplan et
    al. 2020, arXiv:2001.08361). ``parameters`` counts every base weight once, tied weights once.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    max_positions: int
    linear_parameters: int
    parameters: int

    @classmethod
    def from_config(
        cls, config: Mapping[str, object], *, linear_parameters: int, parameters: int
    ) -> HostShape:
        """Reads a Hugging Face ``config.json`` (Llama or GPT-2 field names).

        Raises:
            HostError: a size is named by none of the known fields.
        """
        hidden = _first(config, "hidden_size", "n_embd", "d_model")
        heads = _first(config, "num_attention_heads", "n_head")
        return cls(
            layers=_first(config, "num_hidden_layers", "n_layer"),
            hidden=hidden,
            heads=heads,
            kv_heads=_first(config, "num_key_value_heads", default=heads),
            head_dim=_first(config, "head_dim", default=hidden // heads),
            feed_forward=_first(
                config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden
            ),
            vocab=_first(config, "vocab_size"),
            max_positions=_first(config, "max_position_embeddings", "n_positions", default=1 << 30),
            linear_parameters=linear_parameters,
            parameters=parameters,
        )


def _first(config: Mapping[str, object], *names: str, default: int | None = None) -> int:
    """The first of the fields that is there and is not null."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float):
            return int(value)
    if default is None:
        raise HostError(
            f"expected one of {', '.join(names)} in the host's config, found none: is it a decoder?"
        )
    return default

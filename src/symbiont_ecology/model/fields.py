"""What the JSON files of a host may say. They are data from anyone, so whatever is read of them is
described here, and checked before a weight is read.

The sizes have bounds that no host reaches: a number of layers is looped over, and a head lies on a
stack of the compiled passes. A field with ``None`` among its types may be null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from symbiont_ecology.base.errors import ConfigError, EcologyError, HostError, lines_of
from symbiont_ecology.base.registry import validate

Fields = TypeVar("Fields", bound=BaseModel)

MOST_LAYERS, MOST_HEADS, LARGEST_HEAD, LARGEST_SIZE = 1000, 1024, 4096, 1 << 30
"""Of a host: layers, heads of a layer, numbers of a head, and whatever else is counted."""
_Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
_Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
_Heads = Annotated[int, Field(ge=1, le=MOST_HEADS)]
_Head = Annotated[int, Field(ge=2, le=LARGEST_HEAD, multiple_of=2)]  # its halves turn
_Window = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
_Moderate = Annotated[float, Field(ge=1e-3, le=1e12)]  # what angles are made of stays finite
_Tokens = int | list[int] | None


class DecoderFields(BaseModel):
    """Of any ``config.json``, by the names of Llama and of GPT-2."""

    num_hidden_layers: _Layers | None = None
    n_layer: _Layers | None = None
    vocab_size: _Size | None = None
    eos_token_id: _Tokens = None


class HostFields(DecoderFields):
    """Of the ``config.json`` of a host, which may hold that of its decoder."""

    model_type: str
    text_config: DecoderFields | None = None


class RopeFields(BaseModel):
    """Of ``rope_parameters`` and ``rope_scaling``, which may be there for each kind of layer."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: _Moderate = 1.0
    factor: _Moderate | None = None
    low_freq_factor: _Moderate | None = None
    high_freq_factor: _Moderate | None = None
    original_max_position_embeddings: _Moderate | None = None
    full_attention: RopeFields | None = None
    sliding_attention: RopeFields | None = None


class LlamaFields(BaseModel):
    """Of the ``config.json`` of a Llama-like host: all that ``architectures`` reads."""

    num_hidden_layers: _Layers | None = None
    hidden_size: _Size | None = None
    intermediate_size: _Size | None = None
    vocab_size: _Size | None = None
    max_position_embeddings: _Size | None = None
    num_attention_heads: _Heads | None = None
    num_key_value_heads: _Heads | None = None
    head_dim: _Head | None = None
    rms_norm_eps: Annotated[float, Field(ge=0, le=1)] = 0.0
    query_pre_attn_scalar: _Moderate = 1.0
    sliding_window: _Window | None = None
    sliding_window_pattern: _Size = 1
    max_window_layers: _Window = 0
    use_sliding_window: bool | None = None
    layer_types: list[str] | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    tie_word_embeddings: bool | None = None
    hidden_act: str | None = None
    hidden_activation: str | None = None
    rope_theta: _Moderate = 1.0
    rope_local_base_freq: _Moderate = 1.0
    rope_scaling: RopeFields | None = None
    rope_parameters: RopeFields | None = None


class TokenFields(BaseModel):
    """Of a special token that is written with its properties."""

    content: str


class TokenizerFields(BaseModel):
    """Of ``tokenizer_config.json``."""

    tokenizer_class: str | None = None
    eos_token: str | TokenFields | None = None


class GenerationFields(BaseModel):
    """Of ``generation_config.json``."""

    eos_token_id: _Tokens = None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file.

    Raises:
        HostError: it cannot be read, or is something else.
    """
    if not path.is_file():
        return {}
    errors = OSError, ValueError, RecursionError
    with expected(f"JSON in {path}, got damaged text: download it again", *errors):
        value = json.loads(path.read_text(encoding="utf-8"))
    expect(isinstance(value, dict), f"a JSON object in {path}, got another value")
    return dict(value)


def check_fields(fields: type[Fields], values: Mapping[str, object], file: str) -> Fields:
    """What a file says in these fields, whatever else it says.

    Raises:
        HostError: one of them holds what it cannot.
    """
    facts = {name: values[name] for name in fields.model_fields if name in values}
    try:
        return validate(fields, facts, f"expected a sound {file}")
    except ConfigError as error:
        raise HostError(str(error)) from error


def expect(is_so: object, what: str) -> None:
    """Refuses a host that is otherwise.

    Raises:
        HostError: it is not so; ``what`` was expected.
    """
    if not is_so:
        raise HostError(f"expected {what}")


@contextmanager
def expected(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Says what was expected where another library fails, with its own words in one line.

    Raises:
        HostError: in place of one of these errors; an error of ours stays as it is.
    """
    try:
        yield
    except errors as error:
        if isinstance(error, EcologyError):
            raise
        raise HostError(f"expected {what} ({' '.join(lines_of(error)):.300})") from error

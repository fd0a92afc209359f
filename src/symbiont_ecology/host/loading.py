"""From a name or a folder to a decoder and a text codec, with one clear line when something is
amiss.

Everything that can be checked by looking at files is checked before a weight is read. Llama-like
hosts and plain tokenizers are read without transformers, which alone costs more time to import than
a short run takes; everything else goes through it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.architectures import ModelConfig, read_blueprint
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.int8 import adds_exactly
from symbiont_ecology.host.layers import LlamaWeights
from symbiont_ecology.host.llama import LlamaDecoder
from symbiont_ecology.host.locating import MODEL_CONFIG_FILE
from symbiont_ecology.types import turns, without_turns

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,  # of the linear weights; the rest is in float32
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_PLAIN_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
_INCIDENTAL = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
)
"""Keys of a ``config.json`` that say nothing about what is computed."""
_MOST_KNOWN, _LONGEST_KNOWN = 4096, 8192
"""Texts whose token ids are remembered, and letters of the longest of them: 250 MB at most."""


def find_dtype(name: str) -> torch.dtype:
    """The precision of that name.

    Raises:
        HostError: it is none in which a host can be held.
    """
    _expect(name in _DTYPES, f"dtype {', '.join(_DTYPES)}, got {name!r}: choose one of them")
    return _DTYPES[name]


def find_device(name: str) -> torch.device:
    """The device of that name, its index included.

    Raises:
        HostError: torch cannot use it here.
    """
    what = f"a device that torch can use here, got {name!r}: try cpu"
    with _expected(what, RuntimeError, AssertionError):
        device = torch.zeros(1, device=name).device
    _expect(device.type != "meta", what)  # which holds shapes and no numbers
    return device


def read_model_config(folder: Path) -> ModelConfig:
    """The host's ``config.json``, after a look at which files are there.

    Raises:
        HostError: no or unreadable config, no weights, no tokenizer.
    """
    config = read_config_file(folder / MODEL_CONFIG_FILE)
    _expect(
        any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir()),
        f"weights (*.safetensors) in {folder}, found none: download them again",
    )
    _expect(
        any((folder / file).is_file() for file in _TOKENIZER_FILES),
        f"a tokenizer (tokenizer.json) in {folder}, found none: copy the model's own there",
    )
    return config


def read_config_file(path: Path) -> ModelConfig:
    """What a ``config.json`` says.

    Raises:
        HostError: there is none, or it is of no model.
    """
    _expect(
        path.is_file(),
        f"a model folder with config.json, found none in {path.parent}: check the path",
    )
    config = _read_json(path)
    _expect(
        "model_type" in config,
        f"a transformers config with model_type in {path}: is this a model folder?",
    )
    return config


def load_decoder(
    folder: Path,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    *,
    prefer_fused: bool,
    is_checkpointing: bool = False,
) -> Decoder:
    """The fastest decoder that computes this host exactly.

    Raises:
        HostError: the weights are damaged or incomplete, or no causal language model can be made of
            them.
    """
    files = sorted(folder.glob("*.safetensors"))
    if dtype == torch.int8:
        is_fused = prefer_fused and files and read_blueprint(config) is not None
        what = "a Llama-like host with safetensors on a CPU for dtype=int8, got another"
        _expect(is_fused and device.type == "cpu", f"{what}: use float32 or bfloat16")
        _expect(adds_exactly(), "exact integer products for dtype=int8, got others: use float32")
    if prefer_fused and files and read_blueprint(config) is not None:
        tensors: dict[str, torch.Tensor] = {}
        for path in files:
            with _expected(f"safetensors in {path}, got a damaged file", SafetensorError, OSError):
                tensors.update(load_file(path))
        with _expected(f"tensors in {folder} as its config says: download them again", KeyError):
            weights = LlamaWeights(config, tensors, device, dtype)
        return LlamaDecoder(weights, is_checkpointing=is_checkpointing)
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from symbiont_ecology.host.wrapped import WrappedDecoder

    logging.disable_progress_bar()  # the command line has its own
    errors = OSError, ValueError, KeyError, RuntimeError, SafetensorError
    with _expected(f"a causal language model in {folder} that transformers can load", *errors):
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    missing = min(report["missing_keys"], default=None)
    _expect(
        missing is None, f"tensor {missing!r} in {folder}, found none: download the weights again"
    )
    return WrappedDecoder(model, device, is_checkpointing=is_checkpointing)


class TextCodec:
    """Text to token ids and back.

    ``end_tokens`` are the ids that end an answer; the first is the tokenizer's own.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._folder = folder
        self._config = {key: value for key, value in config.items() if key not in _INCIDENTAL}
        settings = _read_json(folder / "tokenizer_config.json")
        is_plain = settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
        has_file = (folder / "tokenizer.json").is_file()
        self._backend = (
            self._plain_backend() if is_plain and has_file else self.tokenizer.backend_tokenizer
        )
        self._backend.no_padding()
        self._backend.no_truncation()
        self._known: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
        self.end_tokens = self._find_ends(settings, config)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The transformers tokenizer, loaded when first asked for (importing it takes most of a
        second)."""
        from transformers import AutoTokenizer

        errors = OSError, ValueError, KeyError, TypeError
        with _expected(f"a tokenizer in {self._folder} that transformers can load", *errors):
            tokenizer = AutoTokenizer.from_pretrained(
                str(self._folder), local_files_only=True, trust_remote_code=False
            )
        _expect(
            hasattr(tokenizer, "backend_tokenizer"),
            f"a fast tokenizer (tokenizer.json) in {self._folder}: convert it first",
        )
        return tokenizer

    def identity(self, *, is_chat: bool) -> bytes:
        """Everything beside the weights that decides an answer: config, tokenizer, ends, chat
        template."""
        path = next(
            self._folder / name for name in _TOKENIZER_FILES if (self._folder / name).is_file()
        )
        # Parsed, where it can be: a copy that another library saved differs in white space.
        tokenizer = _read_json(path) if path.suffix == ".json" else path.read_bytes().hex()
        template = self.tokenizer.chat_template if is_chat else None
        facts = [self._config, tokenizer, self.end_tokens, template]
        return json.dumps(facts, sort_keys=True, default=str).encode()

    def encode(self, texts: Sequence[str], *, special: bool) -> list[np.ndarray]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it;
        read only.

        What was encoded lately is remembered: a prompt is priced, answered and learned from.
        """
        known = self._known[special]
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if len(known) + len(new) > _MOST_KNOWN:
            known.clear()
            new = list(dict.fromkeys(texts))
        encodings, found = self._backend.encode_batch_fast(new, add_special_tokens=special), {}
        for text, encoding in zip(new, encodings, strict=True):
            found[text] = np.array(encoding.ids, dtype=np.int64)
            found[text].setflags(write=False)
        known.update((text, ids) for text, ids in found.items() if len(text) <= _LONGEST_KNOWN)
        return [found[text] if text in found else known[text] for text in texts]

    def chat(self, prompt: str) -> str:
        """The turns of a prompt in the host's chat template, up to where the answer begins.

        Raises:
            HostError: the host has no chat template, or one that has no room for such turns.
        """
        _expect(
            self.tokenizer.chat_template,
            f"a chat template in {self._folder}, found none: set tasks.style.is_chat=false",
        )
        said = turns(prompt)
        roles = ["user", "assistant"] * ((len(said) - 1) // 2) + ["user"]
        if len(said) % 2 == 0:
            roles = ["system", *roles]
        messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]
        from jinja2 import TemplateError

        what = f"a chat template in {self._folder} for turns of {', '.join(dict.fromkeys(roles))}"
        with _expected(f"{what}: leave tasks.style.system out", TemplateError):
            # Hosts that can think aloud are asked not to: the reply limits leave no room for it.
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        return str(text)

    def texts(self, prompts: Sequence[str], *, is_chat: bool) -> list[str]:
        """What the host reads of prompts: their turns in its chat template, or one after the
        other."""
        return list(map(self.chat if is_chat else without_turns, prompts))

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of token ids, special tokens and the end of the answer left out."""
        shown = [list(row[:-1] if row and row[-1] in self.end_tokens else row) for row in rows]
        texts: list[str] = self._backend.decode_batch(shown, skip_special_tokens=True)
        return texts

    def _plain_backend(self) -> Tokenizer:
        from tokenizers import Tokenizer

        path = self._folder / "tokenizer.json"
        with _expected(f"a tokenizer in {path}, got a damaged file", ValueError, TypeError):
            text = path.read_text(encoding="utf-8")
            if "model" not in json.loads(text):
                raise ValueError("it names no model")
        return Tokenizer.from_str(text)

    def _find_ends(self, settings: ModelConfig, config: ModelConfig) -> tuple[int, ...]:
        token = settings.get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        named = [] if text is None else [self._backend.token_to_id(text)]
        generation = _read_json(self._folder / "generation_config.json")
        for value in (generation.get("eos_token_id"), config.get("eos_token_id")):
            named += value if isinstance(value, list) else [value]
        # A config may carry another vocabulary's default, which no logit stands for.
        vocab = int(config.get("vocab_size") or 1 << 30)
        numbers = [int(number) for number in named if number is not None]
        ends = tuple(dict.fromkeys(number for number in numbers if number < vocab))
        path = self._folder / "tokenizer_config.json"
        _expect(ends, f"an end token (eos_token) in {path}, found none")
        return ends


def _read_json(path: Path) -> ModelConfig:
    """A JSON object, empty if there is no such file."""
    if not path.is_file():
        return {}
    with _expected(f"JSON in {path}, got damaged text: download it again", ValueError):
        value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else {}


def _expect(is_so: object, what: str) -> None:
    if not is_so:
        raise HostError(f"expected {what}")


@contextmanager
def _expected(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Says what was expected where another library fails, with the first line of its error."""
    try:
        yield
    except errors as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise HostError(f"expected {what} ({line})") from error

"""From a name or a folder to a decoder and a text codec, with one clear line when something is
amiss.

Everything that can be checked by looking at files is checked before a weight is read. Llama-like
hosts and plain tokenizers are read without transformers, which alone costs more time to import than
a short run takes; everything else goes through it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import messages, without_turns
from symbiont_ecology.model.architectures import ModelConfig, read_blueprint
from symbiont_ecology.model.decoder import Decoder
from symbiont_ecology.model.fields import (
    LARGEST_SIZE,
    GenerationFields,
    HostFields,
    TokenFields,
    TokenizerFields,
    check_fields,
    expect,
    expected,
    read_json,
)
from symbiont_ecology.model.layers import LlamaWeights
from symbiont_ecology.model.llama import LlamaDecoder
from symbiont_ecology.model.locating import MODEL_CONFIG_FILE
from symbiont_ecology.model.memory import check_memory

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
    expect(name in _DTYPES, f"dtype {', '.join(_DTYPES)}, got {name!r}: choose one of them")
    return _DTYPES[name]


def find_device(name: str) -> torch.device:
    """The device of that name, its index included.

    Raises:
        HostError: torch cannot use it here, or it keeps no numbers.
    """
    what = f"a device that torch can use here, got {name!r:.100}: try cpu"
    with expected(what, Exception):  # every kind of device has its own way to be missing
        probe = torch.zeros(1, device=name)
        probe.item()
        return probe.device


def read_model_config(folder: Path) -> ModelConfig:
    """The host's ``config.json``, after a look at which files are there.

    Raises:
        HostError: no or unreadable config, no weights or pickled ones, no tokenizer.
    """
    config = read_config_file(folder / MODEL_CONFIG_FILE)
    if not weight_files(folder) and any(folder.glob("*.bin")):
        raise HostError(
            f"expected weights (*.safetensors) in {folder}, found pickled ones (*.bin), which can "
            "run code: save the model again with safe_serialization=True"
        )
    expect(
        weight_files(folder),
        f"weights (*.safetensors) in {folder}, found none: download them again",
    )
    expect(
        any((folder / file).is_file() for file in _TOKENIZER_FILES),
        f"a tokenizer (tokenizer.json) in {folder}, found none: copy the model's own there",
    )
    return config


def read_config_file(path: Path) -> ModelConfig:
    """What a ``config.json`` says.

    Raises:
        HostError: there is none, or it is of no model.
    """
    expect(
        path.is_file(),
        f"a model folder with config.json, found none in {path.parent}: check the path",
    )
    config = read_json(path)
    expect(
        "model_type" in config,
        f"a transformers config with model_type in {path}: is this a model folder?",
    )
    check_fields(HostFields, config, str(path))
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
        HostError: the weights are damaged, incomplete, of other sizes than the config says or not
            finite, or no causal language model can be made of them.
    """
    is_fused = prefer_fused and read_blueprint(config) is not None
    if dtype == torch.int8:
        what = "a Llama-like host on a CPU for dtype=int8, got another"
        expect(is_fused and device.type == "cpu", f"{what}: use float32 or bfloat16")
    check_memory(weight_files(folder), device, dtype)
    decoder: Decoder
    if is_fused:
        tensors: dict[str, torch.Tensor] = {}
        for path in weight_files(folder):
            with expected(f"safetensors in {path}, got a damaged file", Exception):
                tensors.update(load_file(path))
        weights = LlamaWeights(config, tensors, device, dtype)
        decoder = LlamaDecoder(weights, is_checkpointing=is_checkpointing)
    else:
        decoder = _load_wrapped(folder, device, dtype, is_checkpointing=is_checkpointing)
    for name, weight in decoder.weights().items():
        expect(
            weight.dtype == torch.int8 or weight.sum(dtype=torch.float32).isfinite(),
            f"finite numbers in tensor {name!r} of {folder}, found others: download the weights "
            "again, or use dtype=float32",
        )
    return decoder


def weight_files(folder: Path) -> list[Path]:
    """The files with a host's weights."""
    return sorted(path for path in folder.glob("*.safetensors") if path.is_file())


def _load_wrapped(
    folder: Path, device: torch.device, dtype: torch.dtype, *, is_checkpointing: bool
) -> Decoder:
    """A host as transformers reads and computes it: another library, with files from anyone."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from symbiont_ecology.model.wrapped import WrappedDecoder

    logging.disable_progress_bar()  # the command line has its own
    with expected(f"a causal language model in {folder} that transformers can load", Exception):
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    missing = min(report["missing_keys"], default=None)
    expect(
        missing is None, f"tensor {missing!r} in {folder}, found none: download the weights again"
    )
    with expected(f"a model in {folder} that transformers can compute", Exception):
        decoder = WrappedDecoder(model, device, is_checkpointing=is_checkpointing)
        ids = torch.zeros(1, 8, dtype=torch.int64, device=device)
        with torch.no_grad():  # a prompt, and a token behind it
            output = model(input_ids=ids, use_cache=True)
            model(input_ids=ids[:, :1], past_key_values=output.past_key_values, use_cache=True)
    return decoder


class TextCodec:
    """Text to token ids and back.

    ``end_tokens`` are the ids that end an answer; the first is the tokenizer's own.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._folder = folder
        self._config = {key: value for key, value in config.items() if key not in _INCIDENTAL}
        path = folder / "tokenizer_config.json"
        settings = check_fields(TokenizerFields, read_json(path), str(path))
        is_plain = settings.tokenizer_class in _PLAIN_TOKENIZERS
        has_file = (folder / "tokenizer.json").is_file()
        self._backend = (
            self._plain_backend() if is_plain and has_file else self.tokenizer.backend_tokenizer
        )
        self._backend.no_padding()
        self._backend.no_truncation()
        self._known: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
        self.end_tokens = self._find_ends(settings, check_fields(HostFields, config, "config.json"))

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The transformers tokenizer, loaded when first asked for (importing it takes most of a
        second)."""
        from transformers import AutoTokenizer

        with expected(f"a tokenizer in {self._folder} that transformers can load", Exception):
            tokenizer = AutoTokenizer.from_pretrained(
                str(self._folder), local_files_only=True, trust_remote_code=False
            )
        expect(
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
        tokenizer = read_json(path) if path.suffix == ".json" else path.read_bytes().hex()
        template = self.tokenizer.chat_template if is_chat else None
        facts = [self._config, tokenizer, self.end_tokens, template]
        with expected(f"files in {self._folder} that are not nested so deep", RecursionError):
            return json.dumps(facts, sort_keys=True, default=str).encode()

    def encode(self, texts: Sequence[str], *, special: bool) -> list[np.ndarray]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it;
        read only.

        What was encoded lately is remembered: a prompt is priced, answered and learned from.
        """
        cache = self._known[special]
        missing = [text for text in dict.fromkeys(texts) if text not in cache]
        if len(cache) + len(missing) > _MOST_KNOWN:
            cache.clear()
            missing = list(dict.fromkeys(texts))
        encodings, ids_of = self._backend.encode_batch_fast(missing, add_special_tokens=special), {}
        for text, encoding in zip(missing, encodings, strict=True):
            ids_of[text] = np.array(encoding.ids, dtype=np.int64)
            ids_of[text].setflags(write=False)
        cache.update((text, ids) for text, ids in ids_of.items() if len(text) <= _LONGEST_KNOWN)
        return [ids_of[text] if text in ids_of else cache[text] for text in texts]

    def chat(self, prompt: str) -> str:
        """The turns of a prompt in the host's chat template, up to where the answer begins.

        Raises:
            HostError: the host has no chat template, or one that has no room for such turns.
        """
        expect(
            self.tokenizer.chat_template,
            f"a chat template in {self._folder}, found none: set tasks.style.is_chat=false",
        )
        turns = messages(prompt)
        roles = dict.fromkeys(turn["role"] for turn in turns)
        what = f"a chat template for turns of {', '.join(roles)}"  # without paths: clients read it
        # A template is a stranger's program.
        with expected(f"{what}: leave tasks.style.system out", Exception):
            # Hosts that can think aloud are asked not to: the reply limits leave no room for it.
            text = self.tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        return str(text)

    def texts(self, prompts: Sequence[str], *, is_chat: bool) -> list[str]:
        """What the host reads of prompts: their turns in its chat template, or one after the
        other."""
        return list(map(self.chat if is_chat else without_turns, prompts))

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of token ids, special tokens and the end of the answer left out."""
        answers = (list(row[:-1] if row and row[-1] in self.end_tokens else row) for row in rows)
        # One by one: a batch would wake a pool of threads, which takes longer than short rows do.
        return [self._backend.decode(row, skip_special_tokens=True) for row in answers]

    def _plain_backend(self) -> Tokenizer:
        from tokenizers import Tokenizer

        path = self._folder / "tokenizer.json"
        expect("model" in read_json(path), f"a tokenizer in {path}, got one that names no model")
        with expected(f"a tokenizer in {path}, got a damaged file", Exception):
            return Tokenizer.from_str(path.read_text(encoding="utf-8"))

    def _find_ends(self, settings: TokenizerFields, config: HostFields) -> tuple[int, ...]:
        token = settings.eos_token
        text = token.content if isinstance(token, TokenFields) else token
        ids = [] if text is None else [self._backend.token_to_id(text)]
        path = self._folder / "generation_config.json"
        generation = check_fields(GenerationFields, read_json(path), str(path))
        for value in (generation.eos_token_id, config.eos_token_id):
            ids += value if isinstance(value, list) else [value]
        # A config may carry another vocabulary's default, which no logit stands for.
        vocab = range(config.vocab_size or LARGEST_SIZE)
        ends = tuple(dict.fromkeys(value for value in ids if value is not None and value in vocab))
        path = self._folder / "tokenizer_config.json"
        expect(ends, f"an end token (eos_token) in {path}, found none")
        return ends

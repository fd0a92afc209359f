"""From a name or a folder to a decoder and a text codec, with one clear line when something is
amiss.

Everything that can be checked by looking at files is checked before a weight is read. Llama-like
hosts and plain tokenizers are read without transformers, which alone costs more time to import than
a short run takes; everything else goes through it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.architectures import read_blueprint
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.layers import LlamaWeights
from symbiont_ecology.host.llama import LlamaDecoder

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
EMBEDDED = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "embedded" / "model"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_PLAIN_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
_INCIDENTAL = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
)
_MOST_KNOWN = 4096
"""Keys of a ``config.json`` that say nothing about what is computed."""


def find_dtype(name: str) -> torch.dtype:
    """The precision of that name.

    Raises:
        HostError: it is none in which a host can be held.
    """
    if name not in _DTYPES:
        raise HostError(f"expected dtype {', '.join(_DTYPES)}, got {name!r}: choose one of them")
    return _DTYPES[name]


def find_device(name: str) -> torch.device:
    """The device of that name, its index included.

    Raises:
        HostError: torch cannot use it here.
    """
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise HostError(
            f"expected a device that torch can use here, got {name!r}: try cpu"
        ) from error


def find_folder(name_or_path: str | Path) -> Path:
    """The local folder of a host: the shipped one, a folder, or a download from the Hugging Face
    hub.

    Raises:
        HostError: there is no such folder and no such model on the hub (or the hub is out of
        reach).
    """
    name = str(name_or_path)
    folder = EMBEDDED_FOLDER if name == EMBEDDED else Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name == EMBEDDED:
        raise HostError(
            f"expected the embedded host in {folder}, found no such folder: reinstall the package"
        )
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise HostError(f"expected a host model folder, found no folder {name!r}: check the path")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"])
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError) as error:
        raise HostError(
            f"expected a folder or a model of the Hugging Face hub, got {name!r} ({_line(error)}): "
            "check the name, or download it first and give its folder"
        ) from error


def read_model_config(folder: Path) -> dict[str, Any]:
    """The host's ``config.json``, after a look at which files are there.

    Raises:
        HostError: no or unreadable config, no weights, no tokenizer.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise HostError(
            f"expected a model folder with config.json, found none in {folder}: check the path"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HostError(
            f"expected JSON in {path}, got damaged text ({_line(error)}): download it again"
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise HostError(
            f"expected a transformers config with model_type in {path}: is this a model folder?"
        )
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise HostError(
            f"expected weights (*.safetensors) in {folder}, found none: download them again"
        )
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise HostError(
            f"expected a tokenizer (tokenizer.json) in {folder}, found none: copy the model's own there"
        )
    return config


def load_decoder(
    folder: Path,
    config: Mapping[str, Any],
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
    if prefer_fused and read_blueprint(config) and any(folder.glob("*.safetensors")):
        try:
            weights = LlamaWeights(config, _read_tensors(folder), device, dtype)
            return LlamaDecoder(weights, is_checkpointing=is_checkpointing)
        except KeyError as error:
            raise HostError(
                f"expected tensor {error} in {folder}, found none: download the weights again"
            ) from error
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from symbiont_ecology.host.wrapped import WrappedDecoder

    logging.disable_progress_bar()  # the command line has its own
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise HostError(
            f"expected a causal language model in {folder}, transformers could not load it ({_line(error)})"
        ) from error
    if report["missing_keys"]:
        missing = min(report["missing_keys"])
        raise HostError(
            f"expected tensor {missing!r} in {folder}, found none: download the weights again"
        )
    return WrappedDecoder(model, device, is_checkpointing=is_checkpointing)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of all safetensors files of a folder."""
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors.update(load_file(path))
        except (SafetensorError, OSError) as error:
            raise HostError(
                f"expected safetensors in {path}, got a damaged file ({_line(error)})"
            ) from error
    return tensors


class TextCodec:
    """Text to token ids and back.

    ``end_tokens`` are the ids that end an answer; the first is the tokenizer's own.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._folder = folder
        self._config = {key: value for key, value in config.items() if key not in _INCIDENTAL}
        self._tokenizer: Any = None
        settings = _read_json(folder / "tokenizer_config.json")
        is_plain = (
            settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
            and (folder / "tokenizer.json").is_file()
        )
        self._backend = self._plain_backend() if is_plain else self.tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        self._known: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
        self.end_tokens = self._find_ends(settings, config)

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer, loaded when first asked for (importing it takes most of a
        second)."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            try:
                self._tokenizer = AutoTokenizer.from_pretrained(
                    str(self._folder), local_files_only=True, trust_remote_code=False
                )
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise HostError(
                    f"expected a tokenizer in {self._folder}, transformers could not load it ({_line(error)})"
                ) from error
            if not hasattr(self._tokenizer, "backend_tokenizer"):
                raise HostError(
                    f"expected a fast tokenizer (tokenizer.json) in {self._folder}: convert it first"
                )
        return self._tokenizer

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
        for text, found in zip(
            new, self._backend.encode_batch_fast(new, add_special_tokens=special), strict=True
        ):
            known[text] = np.array(found.ids, dtype=np.int64)
            known[text].setflags(write=False)
        return [known[text] for text in texts]

    def chat(self, prompt: str) -> str:
        """The prompt as a user's only turn in the host's chat template, up to where the answer
        begins.

        Raises:
            HostError: the host has no chat template.
        """
        if not self.tokenizer.chat_template:
            raise HostError(
                f"expected a chat template in {self._folder}, found none: set tasks.style.is_chat=false"
            )
        turns = [{"role": "user", "content": prompt}]
        # Hosts that can think aloud are asked not to: the reply limits leave no room for it.
        text = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return str(text)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of token ids, special tokens and the end of the answer left out."""
        shown = [list(row[:-1] if row and row[-1] in self.end_tokens else row) for row in rows]
        texts: list[str] = self._backend.decode_batch(shown, skip_special_tokens=True)
        return texts

    def _plain_backend(self) -> Any:
        from tokenizers import Tokenizer

        path = self._folder / "tokenizer.json"
        try:
            text = path.read_text(encoding="utf-8")
            if "model" not in json.loads(text):
                raise ValueError("it names no model")
        except (ValueError, TypeError) as error:
            raise HostError(
                f"expected a tokenizer in {path}, got a damaged file ({_line(error)})"
            ) from error
        return Tokenizer.from_str(text)

    def _find_ends(self, settings: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
        token = settings.get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        named = [] if text is None else [self._backend.token_to_id(text)]
        generation = _read_json(self._folder / "generation_config.json")
        for value in (generation.get("eos_token_id"), config.get("eos_token_id")):
            named += value if isinstance(value, list) else [value]
        # A config may carry another vocabulary's default, which no logit stands for.
        vocab = int(config.get("vocab_size") or 1 << 30)
        ends = tuple(
            dict.fromkeys(int(one) for one in named if one is not None and int(one) < vocab)
        )
        if not ends:
            raise HostError(
                f"expected an end token (eos_token) in {self._folder}/tokenizer_config.json, found none"
            )
        return ends


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HostError(f"expected JSON in {path}, got damaged text ({_line(error)})") from error
    return value if isinstance(value, dict) else {}


def _line(error: BaseException) -> str:
    """The first line of a foreign error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

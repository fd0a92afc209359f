"""GGUF files as host folders: weights in float32, tokenizer and chat template beside them.

transformers reads the file and gguf dequantises it. The folder has ``config.json``,
``model.safetensors`` and the tokenizer, as any other host.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from symbiont_ecology.extensions.hosts.packages import FACTS_FILE, made_once, sha256_of
from symbiont_ecology.model.locating import MAX_LAYERS, Tell, expected, host_sources

_LONE_DIGITS = ("smollm",)
"""Kinds of pre-tokenizer that part every digit, which the reader of transformers does not know."""
_UNTRUE = frozenset({"quantization_config", "_name_or_path", "_model_name_or_path"})
"""Keys of a config that are not true of what is written."""
_TEXT, _LIST = 8, 9
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Kinds of values in a header: texts, lists, and the bytes of all others."""


@host_sources.register("gguf")
@dataclass(frozen=True)
class GgufFiles:
    """GGUF files by path, converted when they are first used, once for equal files."""

    names = ()

    def knows(self, name: str) -> bool:
        return name.endswith(".gguf")

    def missing(self, name: str) -> str:
        is_here = Path(name).expanduser().is_file()
        return "" if is_here else f"a GGUF file, found none in {name!r:.300}: check the path"

    def folder(self, name: str) -> Path | None:
        return None

    def bring(self, name: str, tell: Tell) -> Path:
        file = Path(name).expanduser()
        sha256 = sha256_of(file)
        facts = {"name": f"{file.stem}-{sha256[:12]}", "about": file.name, "sha256": sha256}
        return made_once(facts["name"], partial(convert, file, tell=tell, facts=facts))


def convert(file: Path, folder: Path, tell: Tell, facts: Mapping[str, object]) -> None:
    """Write the host of a GGUF file into a folder; ``facts`` go into ``host.json``.

    Raises:
        HostError: the file is damaged, or of an architecture that transformers does not read.
    """
    from safetensors.torch import save_file

    tell(f"converting {file.name} …")
    model, tokenizer = _read(file)
    tensors = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    config = {key: fact for key, fact in model.config.to_diff_dict().items() if key not in _UNTRUE}
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    for name, values in (("config.json", config), (FACTS_FILE, facts)):
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _read(file: Path) -> tuple[Any, Any]:
    """Return the model in float32 and its tokenizer.

    Three libraries read a file from anywhere. They fail on damage in any way, and tokenizers raises
    ``Exception`` itself.
    """
    import gguf
    import torch
    import transformers
    from tokenizers import pre_tokenizers

    source: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    readable = f"a causal language model in {file} that transformers can read"
    with expected(readable, Exception):
        _check_header(file)
        fields = gguf.GGUFReader(file).fields
        for name, field in fields.items():  # which become modules one by one
            if name.endswith(".block_count") and not 0 < field.contents() <= MAX_LAYERS:
                raise ValueError(f"a number of layers from 1 to {MAX_LAYERS}")
        with redirect_stderr(io.StringIO()):  # their bars
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(file.parent), dtype=torch.float32, **source
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), **source)
        kind = fields.get("tokenizer.ggml.pre")
    if kind is not None and kind.contents() in _LONE_DIGITS:
        # Read digits one by one, then bytes: as the model was trained (arXiv:2502.02737).
        digits = pre_tokenizers.Digits(individual_digits=True)
        rest = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
    return model, tokenizer


def _check_header(file: Path) -> None:
    """Walk through all that stands before the weights. The readers follow every length that is
    written there, however far beyond the end of the file.

    Raises:
        ValueError, OverflowError, struct.error: the file ends before its header does.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:

        def number(form: str) -> int:
            return int(struct.unpack(form, stream.read(struct.calcsize(form)))[0])

        def skip(kind: int, count: int) -> None:
            if kind == _TEXT:
                for _ in range(count):
                    stream.seek(number("<Q"), io.SEEK_CUR)
            else:
                stream.seek(count * _BYTES[kind], io.SEEK_CUR)
            if stream.tell() > size:
                raise ValueError("a header that ends within the file")

        if stream.read(8)[:4] != b"GGUF":  # and a version
            raise ValueError("another kind of file")
        tensors, fields = number("<Q"), number("<Q")
        for _ in range(fields):
            skip(_TEXT, 1)
            kind = number("<I")
            skip(*((number("<I"), number("<Q")) if kind == _LIST else (kind, 1)))
        for _ in range(tensors):
            skip(_TEXT, 1)
            stream.seek(8 * number("<I") + 12, io.SEEK_CUR)  # axes, kind of numbers and their place

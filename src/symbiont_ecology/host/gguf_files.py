"""GGUF files as host folders: weights in float32, tokenizer and chat template beside them.

transformers reads the file and gguf dequantises it. The folder has ``config.json``,
``model.safetensors`` and the tokenizer, as any other host.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import struct
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from symbiont_ecology.errors import HostError, lines_of
from symbiont_ecology.host.fields import MOST_LAYERS
from symbiont_ecology.host.packaged import FACTS_FILE, Tell, building, hosts_folder

_LONE_DIGITS = ("smollm",)
"""Kinds of pre-tokenizer that part every digit, which the reader of transformers does not know."""
_LEFT = frozenset({"quantization_config", "_name_or_path", "_model_name_or_path"})
"""Keys of a config that are not true of what is written."""
_FIRST, _TEXT, _LIST, _AXIS = 4, 8, 9, 10
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""In a GGUF header: where it begins behind the magic word; the kinds that texts, lists and sizes of
axes are; bytes of the other kinds."""


def converted(file: Path, tell: Tell) -> Path:
    """The host folder of a GGUF file, made when it is first asked for; one for equal files.

    Raises:
        HostError: the file is damaged, or of an architecture that transformers does not read.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    sha256 = digest.hexdigest()
    target = hosts_folder() / f"{file.stem}-{sha256[:12]}"
    if not (target / FACTS_FILE).is_file():
        with building(target) as place:
            if place is not None:
                facts = {"name": target.name, "about": file.name, "sha256": sha256}
                convert(file, place, tell, facts)
    return target


def convert(file: Path, folder: Path, tell: Tell, facts: Mapping[str, object]) -> None:
    """Writes the host of a GGUF file into a folder; ``facts`` go into ``host.json``.

    Raises:
        HostError: the file is damaged, or of an architecture that transformers does not read.
    """
    from safetensors.torch import save_file
    from transformers import __version__

    tell(f"converting {file.name} …")
    model, tokenizer = _read(file)
    tell("writing weights in float32 …")
    tensors = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    config = {name: fact for name, fact in model.config.to_diff_dict().items() if name not in _LEFT}
    config |= {"architectures": [type(model).__name__], "dtype": "float32"}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    tokenizer.save_pretrained(folder)
    _write_json(folder / FACTS_FILE, {**facts, "made_by": f"transformers {__version__}"})


def _read(file: Path) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer. Three libraries read a file from anywhere here."""
    import gguf
    import torch
    import transformers

    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise HostError(f"expected a GGUF file in {file}, got another kind: check the file")
    source: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        _check_header(file)
        fields = gguf.GGUFReader(file).fields
        for name, field in fields.items():  # which become modules one by one
            if name.endswith(".block_count") and not 0 < field.contents() <= MOST_LAYERS:
                raise ValueError(f"a number of layers from 1 to {MOST_LAYERS}")
        with redirect_stderr(io.StringIO()):  # their bars
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(file.parent), dtype=torch.float32, **source
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), **source)
        kind = fields.get("tokenizer.ggml.pre")
    except Exception as error:
        raise HostError(
            f"expected a causal language model in {file} that transformers can read, got: "
            f"{lines_of(error)[0]:.200}"
        ) from error
    if kind is not None and kind.contents() in _LONE_DIGITS:
        _part_digits(tokenizer)
    return model, tokenizer


def _check_header(file: Path) -> None:
    """Walks through all that stands before the weights. The readers follow every length that is
    written there, however far beyond the end of the file.

    Raises:
        ValueError, struct.error: the file ends before its header does.
    """
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = _FIRST

        def number(form: str) -> int:
            """The next number."""
            nonlocal place
            (value,) = struct.unpack_from(form, data, place)
            place += struct.calcsize(form)
            return int(value)

        def skip(kind: int, count: int) -> None:
            """Leaves out so many values of a kind."""
            nonlocal place
            if kind in _BYTES:
                place += count * _BYTES[kind]
            elif kind == _TEXT:
                for _ in range(count):
                    length = number("<Q")
                    place += length
            else:
                raise ValueError(f"no values of kind {kind}")
            if place > len(data):
                raise ValueError("a header that ends within the file")

        _, tensors, fields = number("<I"), number("<Q"), number("<Q")
        for _ in range(fields):
            skip(_TEXT, 1)
            kind = number("<I")
            kind, count = (number("<I"), number("<Q")) if kind == _LIST else (kind, 1)
            skip(kind, count)
        for _ in range(tensors):
            skip(_TEXT, 1)
            skip(_AXIS, number("<I"))
            place += 12  # of what kind its numbers are, and where


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _part_digits(tokenizer: Any) -> None:
    """Digits one by one, then bytes: as the model was trained (SmolLM2, arXiv:2502.02737)."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )

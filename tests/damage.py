"""All ways in which the fuzzer damages one thing in the folder of a host."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TOKENIZER, SETTINGS, ENDS = "tokenizer.json", "tokenizer_config.json", "generation_config.json"

SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "half of it": lambda one: one[: len(one) // 2],
    "half of each row": lambda one: one[..., : one.shape[-1] // 2],
    "one number": lambda one: one[(slice(1),) * one.ndim],
    "no number": lambda one: one[:0],
    "an axis more": lambda one: one[None],
    "an axis less": lambda one: one.reshape(-1) if one.ndim > 1 else one[0],
    "transposed": lambda one: one.T,
    "twice": lambda one: np.concatenate([one, one]),
}
CONTENTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "integers": lambda one: one.astype(np.int64),
    "truths": lambda one: one > 0,
    "NaN": lambda one: np.where(np.arange(one.size).reshape(one.shape) == 0, np.nan, one),
    "infinity": lambda one: np.where(np.arange(one.size).reshape(one.shape) == 0, np.inf, one),
    "enormous": lambda one: one * np.float32(1e30),
}
GONE = "\0gone"
"""Stands for a field that is left out."""
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 3, 2.5, 10**9, 2**63, 10**30, math.nan, math.inf),
    *(True, "1", [1], {}, None, GONE),
)
OTHERS: tuple[Any, ...] = (0, -1, 10**30, "x", "", [], ["x"], {}, {"x": 1}, True, None, GONE)
TOKENS: tuple[Any, ...] = (
    *(5, -1, [], [5], "", "no such token", {}, {"content": 5}, {"content": "<eos>"}, None, GONE),
)
IDS: tuple[Any, ...] = (
    *(0, -1, 287, 288, 10**30, 1.5, "2", [], ["x"], [-1], [None], [2, 10**9]),
    *({}, True, None, GONE),
)
TEXTS = {
    "empty": "",
    "a list": "[]",
    "a number": "7",
    "a text": '"model"',
    "nothing": "null",
    "an empty object": "{}",
    "deep lists": "[" * 100_000,
    "deep objects": '{"model":' * 800 + "1" + "}" * 800,
    "half": '{"model_type": "qwen3", ',
    "no text": "\udcff\udcfe",
    "a long number": '{"model_type": ' + "9" * 5000 + "}",
}


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong in a folder: what stands at ``place`` in a file becomes ``how``.

    ``must_fail`` says that no host can work with it.
    """

    group: str
    file: str
    place: tuple[str, ...]
    how: Any
    must_fail: bool = False

    def __str__(self) -> str:
        return f"{self.file} {'.'.join(self.place)}: {self.how!r:.60}"

    def do(self, folder: Path) -> None:
        """Damages a folder."""
        path = folder / self.file
        if self.group in ("shapes", "contents"):
            tensors, (name,) = load_file(path), self.place
            one = tensors.pop(name)
            if self.how != GONE:
                tensors[name] = np.ascontiguousarray((SHAPES | CONTENTS)[self.how](one))
            save_file(tensors, path, metadata={"format": "pt"})
        elif self.group == "fields":
            value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            inner, (*outer, last) = value, self.place
            for key in outer:
                inner = inner[key]
            inner.pop(last, None)
            if self.how != GONE:
                inner[last] = self.how
            path.write_text(json.dumps(value), encoding="utf-8")
        else:
            path.unlink(missing_ok=True)
            if self.how == "a folder":
                path.mkdir()
            elif self.how == "cut":
                path.write_bytes(b"\x10\x27\0\0\0\0\0\0{")
            elif self.how == "a large header":
                path.write_bytes(b"\xff" * 7 + b"\x7f{}")
            elif self.how != GONE:
                text = TEXTS[self.how].encode("utf-8", "surrogateescape")
                path.write_bytes(text)


def damages(folder: Path) -> Iterator[Damage]:
    """Every damage of the folder of a whole host."""
    for name, tensor in load_file(folder / WEIGHTS).items():
        yield Damage("shapes", WEIGHTS, (name,), GONE, must_fail=True)
        for how, change in SHAPES.items():
            if change(tensor).shape != tensor.shape:
                yield Damage("shapes", WEIGHTS, (name,), how, must_fail=True)
        for how in CONTENTS:
            yield Damage("contents", WEIGHTS, (name,), how, how in ("NaN", "infinity"))
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    for place, held in _fields(config):
        is_id = place[-1].endswith("_token_id")
        is_number = not isinstance(held, bool) and isinstance(held, int | float | None)
        for value in IDS if is_id else NUMBERS if is_number else OTHERS:
            yield Damage("fields", CONFIG, place, value)
    for file, name, values in (
        (SETTINGS, "eos_token", TOKENS),
        (SETTINGS, "tokenizer_class", OTHERS),
        (ENDS, "eos_token_id", IDS),
    ):
        for value in values:
            yield Damage("fields", file, (name,), value)
    for file in (CONFIG, TOKENIZER, SETTINGS, ENDS):
        for how in (*TEXTS, "a folder", GONE):
            yield Damage("files", file, (), how)
    for how in ("empty", "cut", "a large header", "a folder", GONE):
        yield Damage("files", WEIGHTS, (), how, must_fail=True)


def damaged(folder: Path, out: Path, found: list[Damage]) -> Path:
    """A copy of a host with some damages, as far as each still finds what it damages."""
    shutil.copytree(folder, out)
    for one in found:
        try:
            one.do(out)
        except (KeyError, TypeError, ValueError, AttributeError, OSError):
            continue  # another one was there before
    return out


def _fields(config: dict[str, Any], *outer: str) -> Iterator[tuple[tuple[str, ...], object]]:
    """The place of every value in a config, and what it is."""
    for key, value in config.items():
        yield (*outer, key), value
        if isinstance(value, dict):
            yield from _fields(value, *outer, key)

"""From a name or a folder to a decoder and a text codec, with one clear line when something is
amiss.

A folder may hold more than a host: what is loaded is ``model.safetensors`` or, where that is
missing, what ``model.safetensors.index.json`` names, as transformers chooses; any other weights are
named in a warning and not read. Everything that can be checked by looking at files is checked
before a weight is read. Llama-like hosts and plain tokenizers are read without transformers, which
alone costs more time to import than a short run takes; everything else goes through it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from symbiont_ecology.base.errors import EcologyWarning, HostError
from symbiont_ecology.base.process import machine_memory
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.model.architectures import ModelConfig, read_blueprint
from symbiont_ecology.model.decoder import Decoder
from symbiont_ecology.model.layers import LlamaWeights
from symbiont_ecology.model.llama import LlamaDecoder
from symbiont_ecology.model.locating import (
    HostFields,
    IndexFields,
    check_fields,
    expect,
    expected,
    read_json,
)

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,  # of the linear weights; the rest is in float32
}
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


class HostLoader(ABC):
    """Loads hosts that the fused forward does not compute; an extension registers it."""

    @abstractmethod
    def load(
        self,
        config: ModelConfig,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> Decoder:
        """Return the decoder of a model, of its config and its tensors by name."""


other_hosts: Registry[HostLoader] = Registry("host loader", __name__)


def find_dtype(name: str) -> torch.dtype:
    """Return the precision of that name.

    Raises:
        HostError: it is none in which a host can be held.
    """
    expect(name in _DTYPES, f"dtype {', '.join(_DTYPES)}, got {name!r}: choose one of them")
    return _DTYPES[name]


def find_device(name: str) -> torch.device:
    """Return the device of that name, its index included.

    Raises:
        HostError: torch cannot use it here, or it keeps no numbers.
    """
    what = f"a device that torch can use here, got {name!r:.100}: try cpu"
    with expected(what, Exception):  # every kind of device has its own way to be missing
        probe = torch.zeros(1, device=name)
        probe.item()
        return probe.device


def read_model_config(folder: Path) -> ModelConfig:
    """Return the host's ``config.json``, after a look at which files are there.

    Raises:
        HostError: no or unreadable config, no weights or pickled ones, no tokenizer.
    """
    path = folder / "config.json"
    expect(
        path.is_file(), f"a model folder with config.json, found none in {folder}: check the path"
    )
    config = read_json(path)
    expect(
        "model_type" in config,
        f"a transformers config with model_type in {path}: is this a model folder?",
    )
    check_fields(HostFields, config, str(path))
    weight_files(folder)
    expect(
        any((folder / file).is_file() for file in TOKENIZER_FILES),
        f"a tokenizer (tokenizer.json) in {folder}, found none: copy the model's own there",
    )
    return config


def load_decoder(
    folder: Path,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    *,
    prefer_fused: bool,
) -> Decoder:
    """Return the fastest decoder that computes this host exactly.

    Raises:
        HostError: the weights are damaged, incomplete, of other sizes than the config says or not
            finite, or no causal language model can be made of them.
    """
    plan = read_blueprint(config) if prefer_fused else None
    if dtype == torch.int8:
        what = "a Llama-like host on a CPU for dtype=int8, got another: use float32 or bfloat16"
        expect(plan and device.type == "cpu", what)
    files = weight_files(folder)
    check_memory(files, device, dtype)
    others = [path.name for path in _safetensors(folder) if path not in files]
    if others:
        text = f"weights in {folder} that are no part of the host are not read: {', '.join(others)}"
        warnings.warn(text, EcologyWarning, stacklevel=2)
    tensors: dict[str, torch.Tensor] = {}
    for path, names in files.items():
        what = f"safetensors in {path}, got a damaged file"
        with expected(what, Exception), safe_open(path, framework="pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in names}
    decoder: Decoder
    if plan is not None:
        if "embed_tokens.weight" in tensors:  # saved without its head, which is tied
            tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
        decoder = LlamaDecoder(LlamaWeights(plan, tensors, device, dtype))
    else:
        expect(other_hosts.names(), "an extension that computes such hosts, found none")
        loader = other_hosts.build(other_hosts.names()[0])
        decoder = loader.load(config, tensors, device, dtype)
    for name, weight in decoder.weights().items():
        expect(
            weight.dtype == torch.int8 or weight.sum(dtype=torch.float32).isfinite(),
            f"finite numbers in tensor {name!r} of {folder}, found others: download the weights "
            "again, or use dtype=float32",
        )
    return decoder


def weight_files(folder: Path) -> dict[Path, list[str]]:
    """Return the files with a host's weights, and the tensors that each of them gives.

    Raises:
        HostError: there are none, or one that the index names is missing, damaged or elsewhere.
    """
    if (path := folder / WEIGHTS).is_file():
        return {path: list(_shapes(path))}
    found = ", ".join(path.name for path in _safetensors(folder)) or "none"
    expect(
        (folder / INDEX).is_file(),
        f"weights ({WEIGHTS}, or {INDEX}) in {folder}, found {found}: download them again, or "
        "rename the right ones. Pickled ones (*.bin) can run code: save such a model with "
        "safe_serialization=True",
    )
    index = check_fields(IndexFields, read_json(folder / INDEX), str(folder / INDEX))
    expect(index.weight_map, f"tensors in weight_map of {folder / INDEX}, found none")
    files: dict[Path, list[str]] = {}
    for tensor, name in index.weight_map.items():
        is_plain = name.endswith(".safetensors") and not set(name) & set("/\\:\0")
        expect(is_plain, f"names of files *.safetensors in {folder / INDEX}, got {name!r:.100}")
        files.setdefault(folder / name, []).append(tensor)
    for path, names in files.items():
        again = "download the weights again"
        expect(path.is_file(), f"the weights {path} that {INDEX} names, found none: {again}")
        lost = min(set(names) - _shapes(path).keys(), default=None)
        expect(lost is None, f"tensor {lost!r} in {path}, where {INDEX} has it: {again}")
    return files


def _safetensors(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.safetensors") if path.is_file())


def _shapes(path: Path) -> dict[str, list[int]]:
    what = f"safetensors in {path}, got a damaged file"
    with expected(what, Exception), safe_open(path, framework="np") as tensors:
        return {name: tensors.get_slice(name).get_shape() for name in list(tensors.keys())}


def describe() -> str:
    """Return torch's version, its CPU threads and GPUs, in one line."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    names = ", ".join(gpus) or "no GPU"
    return f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, {names}"


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory(threshold: int = 1 << 30) -> None:
    """Keeps blocks below ``threshold`` bytes inside the process, where the allocator can."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):  # musl has none
        for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            library.mallopt(name, threshold)


ENDS = ("embed_tokens.weight", "wte.weight", "wpe.weight", "lm_head.weight")
"""Endings of matrices that carry no adapter, and are not held in eight bits."""


def weight_bytes(files: Mapping[Path, Sequence[str]], dtype: torch.dtype) -> int:
    """Return the bytes that the weights of the host in some files (``weight_files``) take, by their
    headers.

    Raises:
        HostError: a file is damaged.
    """
    linear = rest = 0
    for path, names in files.items():
        shapes = _shapes(path)
        for name in names:
            if len(shapes[name]) == 2 and not name.endswith(ENDS):
                linear += math.prod(shapes[name])
            else:
                rest += math.prod(shapes[name])
    other = torch.float32 if dtype == torch.int8 else dtype
    return linear * dtype.itemsize + rest * other.itemsize


def check_memory(
    files: Mapping[Path, Sequence[str]], device: torch.device, dtype: torch.dtype
) -> None:
    """Refuse a host whose weights alone are larger than the memory of the device.

    Raises:
        HostError: they are.
    """
    name = str(dtype).removeprefix("torch.")
    total = total_memory(device)
    need = weight_bytes(files, dtype)
    if need > total:
        smaller = "bfloat16" if name == "float32" else "int8"
        raise HostError(
            f"expected a host that fits the {total / 1e9:.1f} GB of {device}, got "
            f"{need / 1e9:.1f} GB of weights in {name}: try host.dtype={smaller}, or a smaller host"
        )


def total_memory(device: torch.device) -> int:
    """Return the bytes of a device: its own memory, or the machine's RAM."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return machine_memory()[0]

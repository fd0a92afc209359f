"""Memory that a host and its adapters take, told by the sizes of its tensors before any is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.process import machine_memory
from symbiont_ecology.model.fields import expected

ENDS = ("embed_tokens.weight", "wte.weight", "wpe.weight", "lm_head.weight")
"""Endings of matrices that carry no adapter, and are not held in eight bits."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Of a number, by the names of dtypes."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes: ``weights`` of a host, and one ``adapter`` in float32 on all of its matrices.

    A living adapter takes up to three times its own bytes: its optimizer has two numbers for each.
    """

    weights: int
    adapter: int

    @classmethod
    def of(cls, files: Sequence[Path], dtype: str, rank: int = 1) -> MemoryNeed:
        """Return what the host in some files takes, by their headers.

        Raises:
            HostError: a file is damaged.
        """
        numbers = linear = sides = 0
        for path in files:
            what = f"safetensors in {path}, got a damaged file"
            with expected(what, Exception), safe_open(path, framework="np") as tensors:
                names = list(tensors.keys())
                shapes = {name: tensors.get_slice(name).get_shape() for name in names}
            for name, shape in shapes.items():
                numbers += math.prod(shape)
                if len(shape) == 2 and not name.endswith(ENDS):
                    linear += math.prod(shape)
                    sides += sum(shape)
        rest = BYTES["float32" if dtype == "int8" else dtype]
        return cls(linear * BYTES[dtype] + (numbers - linear) * rest, 4 * rank * sides)


def check_memory(files: Sequence[Path], device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a host whose weights alone are larger than the memory of the device.

    Raises:
        HostError: they are.
    """
    name, total = str(dtype).removeprefix("torch."), total_memory(device)
    need = MemoryNeed.of(files, name).weights
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

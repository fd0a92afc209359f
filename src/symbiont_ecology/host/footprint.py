"""How much memory a host and its adapters take, by the headers of its files: nothing is loaded."""

from __future__ import annotations

import math
import re
from pathlib import Path

from safetensors import safe_open

PROCESS_BYTES = 400_000_000
"""What Python and torch take in a process that has loaded no host."""
COPIES = 6
"""Of an adapter, while it is learned: in the slots, as factors, gradients, two moments and the new
numbers."""
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
_IN_A_LAYER = re.compile(r"\.\d+\.")


def host_bytes(folder: Path, dtype: str) -> int:
    """Bytes of all base weights in a precision."""
    return ITEM_BYTES[dtype] * sum(map(math.prod, _shapes(folder).values()))


def adapter_bytes(folder: Path, rank: int) -> int:
    """Bytes of one adapter of that rank on all linear modules of the layers, in float32."""
    widths = [
        sum(shape)
        for name, shape in _shapes(folder).items()
        if len(shape) == 2 and _IN_A_LAYER.search(name)
    ]
    return 4 * rank * sum(widths)


def process_bytes(folder: Path, dtype: str, *, slots: int, rank: int, memory_mb: float) -> int:
    """Bytes that a process takes with a host, so many slots, and a batch of ``memory_mb``."""
    adapters = COPIES * slots * adapter_bytes(folder, rank)
    return PROCESS_BYTES + host_bytes(folder, dtype) + adapters + int(memory_mb * 1e6)


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in the safetensors files of a folder."""
    shapes = dict[str, tuple[int, ...]]()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            names = list(file.keys())
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
    return shapes

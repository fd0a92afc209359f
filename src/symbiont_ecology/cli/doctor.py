"""``doctor``: can this machine run the package, and a host on it?"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
from typing import Annotated

import typer

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.cli.options import option

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pydantic")
LITTLE_SPACE = 1e9
"""Bytes: a demo run takes a few million, a real model several thousand million."""


def doctor(
    host: Annotated[str, option("Host to check.")] = "embedded",
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    device: Annotated[str, option("A torch device.")] = "cpu",
    dtype: Annotated[str, option("float32, bfloat16, float16 or int8.")] = "float32",
) -> None:
    """Print versions, threads and space, and let a host answer. Exits with 1 if it cannot."""
    versions = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"ok    python {platform.python_version()}, {', '.join(versions)}")
    free = shutil.disk_usage(".").free
    mark = "ok" if free > LITTLE_SPACE else "warn"
    print(f"{mark:4s}  {free / 1e9:.1f} GB free here; a run needs some 100 MB", flush=True)
    import torch

    from symbiont_ecology.model.backend.torch_backend import back_ends
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.model.loading import describe

    torch.set_num_threads(threads)
    print(f"ok    {describe()}")
    for back_end in map(back_ends.__getitem__, back_ends.names()):
        for mark, line in back_end.checks():
            print(f"{mark:4s}  {line}")
    try:
        kernel = HostKernel.from_pretrained(host, device=device, dtype=dtype)
        (reply,) = kernel.generate(["math.add: 47+8\n"], slots=-1)
    except EcologyError as error:
        print(f"fail  host {host!r}: {' '.join(str(error).split())}")
        raise typer.Exit(1) from error
    print(f"ok    host {host!r} answers {reply[:20]!r}, fingerprint {kernel.fingerprint()}")

"""``doctor``: whether this machine can run the package, and a host on it."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.cli.console import report
from symbiont_ecology.cli.options import JsonOption, option

if TYPE_CHECKING:
    from symbiont_ecology.run.config import HostConfig

CORE = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy"),
    *("scipy", "pydantic", "omegaconf", "typer", "rich"),
)
LITTLE_SPACE = 1e9  # bytes; a demo run takes a few million, a real model several thousand million

CheckResult = tuple[str, str]
"""``ok``, ``warn`` or ``fail``, and a line."""


def doctor(
    host: Annotated[str, option("Host to check.")] = "embedded",
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    device: Annotated[str, option("A torch device.")] = "cpu",
    dtype: Annotated[str, option("float32, bfloat16, float16 or int8.")] = "float32",
    json_file: JsonOption = None,
) -> None:
    """Check python, packages, torch, a host and the disk. Exits with 1 if something fails."""
    from symbiont_ecology.base.registry import validate
    from symbiont_ecology.run.config import HostConfig

    knobs = {"model": host, "threads": threads, "device": device, "dtype": dtype}
    settings, results = validate(HostConfig, knobs, "doctor"), list[CheckResult]()
    with report(json_file) as write_json:
        for check in (_python(), _packages(), _host(settings), _disk()):
            for mark, line in check:
                print(f"{mark:4s}  {line}", flush=True)
                results.append((mark, line))
        write_json({"schema": 2, "host": host, "checks": results})
    if any(mark == "fail" for mark, _ in results):
        raise typer.Exit(1)


def _python() -> Iterator[CheckResult]:
    line = "python " + ".".join(map(str, sys.version_info[:3]))
    is_new = sys.version_info >= (3, 11)
    yield ("ok", line) if is_new else ("fail", f"{line}: install 3.11 or newer")


def _packages() -> Iterator[CheckResult]:
    """Compare versions with those of constraints.txt: of a source checkout, or its copy in the
    wheel."""
    package, tested = Path(__file__).parents[1], dict[str, str]()
    for path in (package / "constraints.txt", package.parents[1] / "constraints.txt"):
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            tested = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    for name in CORE:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield "fail", f"{name} is missing: pip install symbiont-ecology"
            continue
        if tested.get(name) in (None, version.partition("+")[0]):
            yield "ok", f"{name} {version}"
        else:
            mend = f"if something breaks: pip install {name}=={tested[name]}"
            yield "warn", f"{name} {version}: tested with {tested[name]}; {mend}"


def _host(settings: HostConfig) -> Iterator[CheckResult]:
    """Load the host and let it answer."""
    try:
        import torch

        from symbiont_ecology.model.backend.torch_backend import back_ends
        from symbiont_ecology.model.kernel import HostKernel
        from symbiont_ecology.model.loading import describe
    except ImportError as error:
        yield "fail", f"torch cannot be imported ({error}): reinstall it"
        return
    torch.set_num_threads(settings.threads)
    yield "ok", describe()
    for back_end in map(back_ends.__getitem__, back_ends.names()):
        yield from back_end.checks()
    try:
        knobs = settings.model_dump(exclude={"model", "threads", "engine"})
        kernel = HostKernel.from_pretrained(settings.model, **knobs)
        reply, fingerprint = (
            kernel.generate(["math.add: 47+8\n"], slots=-1)[0],
            kernel.fingerprint(),
        )
    except EcologyError as error:
        yield "fail", f"host {settings.model!r}: {' '.join(str(error).split())}"
    else:
        yield "ok", f"host {settings.model!r} answers {reply[:20]!r}, fingerprint {fingerprint}"


def _disk() -> Iterator[CheckResult]:
    free = shutil.disk_usage(".").free
    line = f"{free / 1e9:.1f} GB free here"
    warning = f"{line}: a run needs some 100 MB, choose --out elsewhere"
    yield ("ok", line) if free > LITTLE_SPACE else ("warn", warning)

"""``doctor``: whether this machine can run the package, and what to do where it cannot."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.errors import EcologyError

CORE = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy"),
    *("scipy", "pydantic", "omegaconf", "typer", "rich"),
)
LITTLE_SPACE = 1e9  # bytes; a demo run takes a few million, a real model several thousand million

CheckResult = tuple[str, str]
"""``ok``, ``warn`` or ``fail``, and a line."""


def doctor(host: Annotated[str, typer.Option(help="Host to try.")] = "embedded") -> None:
    """Check python, packages, torch, the host and the disk. Exits with 1 if something fails."""
    has_failed = False
    for check in (_python(), _packages(), _host(host), _disk()):
        for mark, line in check:
            print(f"{mark:4s}  {line}", flush=True)
            has_failed |= mark == "fail"
    if has_failed:
        raise typer.Exit(1)


def _python() -> Iterator[CheckResult]:
    line = "python " + ".".join(map(str, sys.version_info[:3]))
    is_new = sys.version_info >= (3, 11)
    yield ("ok", line) if is_new else ("fail", f"{line}: install 3.11 or newer")


def _packages() -> Iterator[CheckResult]:
    tested = _tested()
    for name in CORE:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield "fail", f"{name} is missing: pip install symbiont-ecology"
            continue
        wanted, line = tested.get(name), f"{name} {version}"
        if wanted in (None, version.partition("+")[0]):
            yield "ok", line
        else:
            mend = f"if something breaks: pip install {name}=={wanted}"
            yield "warn", f"{line}: tested with {wanted}; {mend}"


def _tested() -> dict[str, str]:
    """The tested versions: constraints.txt of a source checkout, or its copy in the wheel."""
    package = Path(__file__).parents[1]
    for path in (package.parents[1] / "constraints.txt", package / "constraints.txt"):
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    return {}


def _host(name: str) -> Iterator[CheckResult]:
    try:
        from symbiont_ecology.host.backend import passes
        from symbiont_ecology.host.kernel import HostKernel
        from symbiont_ecology.host.machine import describe
    except ImportError as error:
        yield "fail", f"torch cannot be imported ({error}): reinstall it"
        return
    yield "ok", describe()
    if passes.library() is None:
        mend = "so torch does their work, more slowly: install a C compiler, then this"
        yield "warn", f"no compiled passes, {mend}"
    else:
        yield "ok", f"compiled passes, version {passes.digest()}"
    try:
        kernel = HostKernel.from_pretrained(name, slots=1, rank=1)
        reply = kernel.generate(["math.add: 47+8\n"], slots=-1)[0]
    except EcologyError as error:
        yield "fail", f"host {name!r}: {' '.join(str(error).split())}"
        return
    yield "ok", f"host {name!r} answers {reply[:20]!r}, fingerprint {kernel.fingerprint()}"


def _disk() -> Iterator[CheckResult]:
    free = shutil.disk_usage(".").free
    line, warning = (
        f"{free / 1e9:.1f} GB free here",
        "a run needs some 100 MB, choose --out elsewhere",
    )
    yield ("ok", line) if free > LITTLE_SPACE else ("warn", f"{line}: {warning}")

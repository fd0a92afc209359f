"""``doctor``: checks that this machine can run the package."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import report
from symbiont_ecology.cli.options import JsonOption, option
from symbiont_ecology.errors import EcologyError

if TYPE_CHECKING:
    from symbiont_ecology.config import HostConfig

CORE = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy"),
    *("scipy", "pydantic", "omegaconf", "typer", "rich"),
)
LITTLE_SPACE = 1e9  # bytes; a demo run takes a few million, a real model several thousand million

CheckResult = tuple[str, str]
"""``ok``, ``warn`` or ``fail``, and a line."""


def doctor(
    host: Annotated[str, option("Host to load and ask.")] = "embedded",
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    device: Annotated[str, option("A torch device.")] = "cpu",
    dtype: Annotated[str, option("float32, bfloat16, float16 or int8.")] = "float32",
    json_file: JsonOption = None,
) -> None:
    """Check python, packages, torch, the host and the disk. Exits with 1 if something fails."""
    from symbiont_ecology.config import HostConfig
    from symbiont_ecology.registry import validate

    knobs = {"model": host, "threads": threads, "device": device, "dtype": dtype}
    settings = validate(HostConfig, knobs, "doctor")
    with report(json_file) as write_json:
        marks = _tell((*_python(), *_packages(), *_opened(settings), *_disk()))
        write_json({"schema": 2, "host": settings.model, "checks": marks})
    if any(mark == "fail" for mark, _ in marks):
        raise typer.Exit(1)


def _tell(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """Print lines as they come."""
    results = []
    for mark, line in checks:
        print(f"{mark:4s}  {line}", flush=True)
        results.append((mark, line))
    return results


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
        tested_version, line = tested.get(name), f"{name} {version}"
        if tested_version in (None, version.partition("+")[0]):
            yield "ok", line
        else:
            mend = f"if something breaks: pip install {name}=={tested_version}"
            yield "warn", f"{line}: tested with {tested_version}; {mend}"


def _tested() -> dict[str, str]:
    """The tested versions: constraints.txt of a source checkout, or its copy in the wheel."""
    package = Path(__file__).parents[1]
    for path in (package.parents[1] / "constraints.txt", package / "constraints.txt"):
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    return {}


def _opened(settings: HostConfig) -> Iterator[CheckResult]:
    """Load the host, and ask it something."""
    try:
        import torch

        from symbiont_ecology.host.backend import passes
        from symbiont_ecology.host.backend.compiling import digest
        from symbiont_ecology.host.kernel import HostKernel
        from symbiont_ecology.host.machine import describe
    except ImportError as error:
        yield "fail", f"torch cannot be imported ({error}): reinstall it"
        return
    torch.set_num_threads(settings.threads)
    yield "ok", describe()
    library, why_not = passes.find_library()
    if library is None:
        reason = " ".join(why_not.split())
        line = f"no compiled passes ({reason}), so torch does their work, more slowly"
        yield "warn", line
    else:
        yield "ok", f"compiled passes, version {digest()}"
    name, knobs = settings.model, settings.model_dump(exclude={"model", "threads", "engine"})
    try:
        kernel = HostKernel.from_pretrained(name, **knobs)
        reply = kernel.generate(["math.add: 47+8\n"], slots=-1)[0]
        yield "ok", f"host {name!r} answers {reply[:20]!r}, fingerprint {kernel.fingerprint()}"
    except EcologyError as error:
        yield "fail", f"host {name!r}: {' '.join(str(error).split())}"


def _disk() -> Iterator[CheckResult]:
    free = shutil.disk_usage(".").free
    line = f"{free / 1e9:.1f} GB free here"
    warning = f"{line}: a run needs some 100 MB, choose --out elsewhere"
    yield ("ok", line) if free > LITTLE_SPACE else ("warn", warning)

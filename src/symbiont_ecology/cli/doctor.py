"""``doctor``: whether this machine can run the package, and what a host would take on it."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import report
from symbiont_ecology.cli.forecast import HostWork, PriceOption, check_price, tell_host
from symbiont_ecology.cli.options import JsonOption, option
from symbiont_ecology.errors import EcologyError, HostError

if TYPE_CHECKING:
    from symbiont_ecology.config import HostConfig
    from symbiont_ecology.host.kernel import HostKernel

CORE = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy"),
    *("scipy", "pydantic", "omegaconf", "typer", "rich"),
)
LITTLE_SPACE = 1e9  # bytes; a demo run takes a few million, a real model several thousand million

CheckResult = tuple[str, str]
"""``ok``, ``warn`` or ``fail``, and a line."""


def doctor(
    host: Annotated[
        str | None,
        option("Host to check; a config.json is read alone.", default="embedded, no forecast"),
    ] = None,
    organelles: Annotated[int, option("Living organelles.", least=1)] = 16,
    rows: Annotated[int, option("Prompts for every organelle at a time.", least=1)] = 4,
    rank: Annotated[int, option("Rank of the adapters.", least=1)] = 8,
    prompt_tokens: Annotated[int, option("Length of prompts.", least=2)] = 128,
    new_tokens: Annotated[int, option("Length of answers.", least=1)] = 16,
    memory_mb: Annotated[int, option("host.memory_mb: megabytes for a batch.", least=1)] = 2048,
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    device: Annotated[str, option("A torch device.")] = "cpu",
    dtype: Annotated[str, option("float32, bfloat16, float16 or int8.")] = "float32",
    rollouts: Annotated[int, option("Rollouts whose time is told.", least=1)] = 100_000,
    tflops: Annotated[
        float | None, option("Achieved rate in 10¹² FLOP/s, from which times are computed.")
    ] = None,
    price_per_hour: PriceOption = None,
    json_file: JsonOption = None,
) -> None:
    """Check python, packages, torch, the host and the disk; with --host also tell memory, speed and
    money. Exits with 1 if something fails."""
    from symbiont_ecology.config import HostConfig
    from symbiont_ecology.registry import validate

    check_price(price_per_hour, tflops)
    settings = validate(
        HostConfig,
        {
            "model": host or "embedded",
            "slots": organelles,
            "rank": rank,
            "memory_mb": memory_mb,
            "threads": threads,
            "device": device,
            "dtype": dtype,
        },
        "doctor",
    )
    with report(json_file) as write_json:
        marks = _tell((*_python(), *_packages()))
        kernel, checks = _opened(settings, is_tried=host is None)
        marks += _tell((*checks, *_disk()))
        facts: dict[str, object] = {"schema": 1, "host": settings.model, "checks": marks}
        has_failed = any(mark == "fail" for mark, _ in marks)
        if host is not None and not has_failed:
            work = HostWork(organelles, rows, prompt_tokens, new_tokens, rollouts)
            facts |= tell_host(settings, kernel, work, tflops=tflops, price=price_per_hour)
        write_json(facts)
    if has_failed:
        raise typer.Exit(1)


def _tell(checks: Iterable[CheckResult]) -> list[CheckResult]:
    """Prints lines as they come."""
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


def _opened(settings: HostConfig, *, is_tried: bool) -> tuple[HostKernel | None, list[CheckResult]]:
    """The host, if its weights and its device are here, and what was found; one that ``is_tried``
    has to be here."""
    try:
        import torch

        from symbiont_ecology.host.backend.torch_backend import back_ends
        from symbiont_ecology.host.kernel import HostKernel
        from symbiont_ecology.host.locating import config_file
        from symbiont_ecology.host.machine import describe
    except ImportError as error:
        return None, [("fail", f"torch cannot be imported ({error}): reinstall it")]
    torch.set_num_threads(settings.threads)
    checks = [("ok", describe())]
    for back_end in map(back_ends.__getitem__, back_ends.names()):
        checks += back_end.checks()
    name = settings.model
    try:
        missing = "" if is_tried else _missing(settings)
        if missing:
            file = config_file(name, may_fetch=True)
            return None, [*checks, ("ok", f"host {name!r}: {file} is read alone, {missing}")]
        knobs = settings.model_dump(exclude={"model", "threads", "engine"})
        kernel = HostKernel.from_pretrained(name, **knobs)
        reply = kernel.generate(["math.add: 47+8\n"], slots=-1)[0]
    except EcologyError as error:
        return None, [*checks, ("fail", f"host {name!r}: {' '.join(str(error).split())}")]
    line = f"host {name!r} answers {reply[:20]!r}, fingerprint {kernel.fingerprint()}"
    return kernel, [*checks, ("ok", line)]


def _missing(settings: HostConfig) -> str:
    """Why the host cannot be loaded on this machine, empty if it can."""
    from symbiont_ecology.host.loading import find_device
    from symbiont_ecology.host.locating import weights_folder

    if weights_folder(settings.model) is None:
        return "for its weights are not here"
    try:
        find_device(settings.device)
    except HostError:
        return f"for {settings.device} is not here"
    return ""


def _disk() -> Iterator[CheckResult]:
    free = shutil.disk_usage(".").free
    line = f"{free / 1e9:.1f} GB free here"
    warning = f"{line}: a run needs some 100 MB, choose --out elsewhere"
    yield ("ok", line) if free > LITTLE_SPACE else ("warn", warning)

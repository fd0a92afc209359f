"""Fair timing: sides that take turns in one process, ratios of their medians, floors and goals.

A ratio divides two medians of process time that were taken in one process, on one thread, turn
about, so machines and their moods cancel out as far as they can. The allocator setting of
``host.malloc`` holds for every side. Nothing here knows what is timed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

CHEAP_REPEATS = 6
"""A side that takes a small part of the slowest one's time runs up to so many times per turn."""


@dataclass(frozen=True)
class Side:
    """Something to time. ``scale``: how many times what ``run`` does goes into the whole of the
    case."""

    run: Callable[[], object]
    scale: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Median seconds of every side, already scaled, and what each one returned at first."""

    seconds: dict[str, float]
    outputs: dict[str, Any]


def timed(
    sides: Mapping[str, Side], turns: int, clock: Callable[[], float] = time.process_time
) -> Timing:
    """Runs all sides once to warm up, then ``turns`` times, taking turns; cheap ones more often."""
    outputs: dict[str, Any] = {}
    first: dict[str, float] = {}
    for name, side in sides.items():
        start = clock()
        outputs[name] = side.run()
        first[name] = clock() - start
    slowest = max(first.values())
    repeats = {
        name: min(CHEAP_REPEATS, max(1, int(0.6 * slowest / spent)))
        for name, spent in first.items()
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns * max(repeats.values())):
        for name, side in sides.items():
            if turn % max(repeats.values()) < repeats[name]:
                start = clock()
                side.run()
                times[name].append(clock() - start)
    return Timing(
        {name: side.scale * statistics.median(times[name]) for name, side in sides.items()}, outputs
    )


@dataclass(frozen=True)
class Ratio:
    """A measured number against what must hold (``floor``) and what to reach for (``goal``).

    ``at_most``: the number must stay below its floor, as costs must; otherwise above it, as gains
    must.
    """

    what: str
    measured: float
    floor: float | None = None
    goal: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the floor does; None when there is none."""
        return self._passes(self.floor)

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is; None when there is none."""
        return self._passes(self.goal)

    def _passes(self, bound: float | None) -> bool | None:
        if bound is None:
            return None
        return self.measured <= bound if self.at_most else self.measured >= bound


@dataclass(frozen=True)
class Result:
    """One case: what was run, the ratios, median seconds of every side, remarks, and other
    ``numbers``."""

    title: str
    ratios: list[Ratio]
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, verdicts included."""
        ratios = [asdict(r) | {"holds": r.holds, "is_reached": r.is_reached} for r in self.ratios]
        return asdict(self) | {"ratios": ratios}


def arguments(description: str, cases: Iterable[str] = ()) -> argparse.ArgumentParser:
    """The options that all benchmarks share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer turns: rough numbers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    names = list(cases)
    if names:
        parser.add_argument(
            "--only",
            choices=names,
            metavar="CASE",
            help=f"one case, others in FILE stay: {', '.join(names)}",
        )
    return parser


def settle() -> None:
    """One thread on the CPU, and no progress bars or advice from transformers."""
    from transformers.utils import logging

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def machine() -> dict[str, str]:
    """What this was measured on, and when."""
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        lines = [line for line in facts.read_text().splitlines() if line.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {
        "cpu": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def matmul_rate(
    size: int = 1536,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    clock: Callable[[], float] = time.process_time,
    products: int = 1,
) -> float:
    """Best FLOP/s of a large square matrix product on random numbers: what the machine can do."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(9):
        start = clock()
        for _ in range(products):
            torch.mm(left, right)
        best = min(best, clock() - start)
    return products * 2 * size**3 / best


def save(
    file: Path | None, results: Mapping[str, Result], only: str | None = None, **more: Any
) -> None:
    """Writes results by case; with ``only``, into what the file already holds of other cases."""
    if file is None:
        return
    report: dict[str, Any] = {"machine": machine(), "cases": {}}
    if only is not None and file.is_file():
        report["cases"] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    report["cases"] |= {name: result.to_json() for name, result in results.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report | more, indent=1) + "\n", encoding="utf-8")


def show(result: Result, console: Console) -> None:
    """Prints one case."""
    table = Table(title=result.title, title_justify="left", width=min(console.width, 110))
    table.add_column("ratio", ratio=1)
    for name in ("floor", "goal", "measured", "holds"):
        table.add_column(name, justify="right", no_wrap=True)
    for ratio in result.ratios:
        table.add_row(
            ratio.what,
            bound(ratio.floor, ratio.at_most),
            bound(ratio.goal, ratio.at_most),
            number(ratio.measured),
            verdict(ratio.holds, ratio.is_reached),
        )
    console.print(table if result.ratios else result.title)
    if result.seconds:
        line = ", ".join(f"{name} {1e3 * value:.4g}" for name, value in result.seconds.items())
        console.print(f"[dim]ms: {line}[/dim]")
    if result.numbers:
        line = ", ".join(f"{name} {value:.4g}" for name, value in result.numbers.items())
        console.print(f"[dim]{line}[/dim]")
    for note in result.notes:
        console.print(f"[dim]{note}[/dim]")
    console.print()


def all_hold(results: Iterable[Result]) -> bool:
    """Whether no floor fails."""
    return all(ratio.holds is not False for result in results for ratio in result.ratios)


def bound(value: float | None, at_most: bool) -> str:
    """A floor or a goal as text."""
    return "" if value is None else f"{'≤' if at_most else '≥'} {value:g}"


def number(value: float) -> str:
    """Three digits, or more where a bound may be near."""
    if value >= 2:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{value:.3f}" if value >= 0.01 or value == 0 else f"{value:.1e}"


def verdict(holds: bool | None, is_reached: bool | None) -> str:
    """``yes``, ``NO``, and whether the goal is reached as well."""
    if holds is None:
        return ""
    return "NO" if not holds else "goal" if is_reached else "yes"

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
import re
import statistics
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MAX_REPEATS = 6
"""Times that a side runs in a turn if it takes a small part of the slowest one's time."""


@dataclass(frozen=True)
class Side:
    """Something to time; its time is scaled, for a side that does a part of a case alone."""

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
    """Run all sides once to warm up, then ``turns`` times, taking turns; cheap ones more often."""
    outputs: dict[str, Any] = {}
    first: dict[str, float] = {}
    for name, side in sides.items():
        start = clock()
        outputs[name] = side.run()
        first[name] = clock() - start
    slowest = max(first.values())
    repeats = {
        name: min(MAX_REPEATS, max(1, int(0.6 * slowest / spent))) for name, spent in first.items()
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns * max(repeats.values())):
        for name, side in sides.items():
            if turn % max(repeats.values()) < repeats[name]:
                start = clock()
                side.run()
                times[name].append(clock() - start)
    medians = {name: side.scale * statistics.median(times[name]) for name, side in sides.items()}
    return Timing(medians, outputs)


@dataclass(frozen=True)
class Ratio:
    """A measured number against what must hold (``floor``) and what to reach for (``goal``).

    ``at_most``: the number must stay below them, as costs must; otherwise above, as gains must.
    """

    what: str
    measured: float
    floor: float | None = None
    goal: float | None = None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """``holds``, ``goal`` if that is reached too, ``missed``, or nothing without a floor."""
        if self.floor is None:
            return ""
        if not self._passes(self.floor):
            return "**missed**"
        return "goal" if self.goal is not None and self._passes(self.goal) else "holds"

    def _passes(self, bound: float) -> bool:
        return self.measured <= bound if self.at_most else self.measured >= bound


@dataclass(frozen=True)
class Result:
    """One case: ratios, median seconds of every side, other ``numbers``, remarks."""

    title: str
    ratios: list[Ratio] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: Result) -> Result:
        """Two parts of one case."""
        return Result(
            self.title,
            self.ratios + other.ratios,
            self.seconds | other.seconds,
            self.numbers | other.numbers,
            [*dict.fromkeys(self.notes + other.notes)],
        )


def arguments(description: str, cases: Collection[str], file: Path) -> argparse.ArgumentParser:
    """Return the options that all benchmarks share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer turns: rough numbers")
    parser.add_argument("--json", type=Path, default=file, metavar="FILE", help="of the numbers")
    help = f"these alone, others in FILE stay: {', '.join(cases)}"
    parser.add_argument(
        "--only", nargs="+", choices=cases, default=cases, metavar="CASE", help=help
    )
    return parser


def measured(cases: Mapping[str, Callable[[], Result]], file: Path, **more: Any) -> bool:
    """Run cases, print each and write it into a file; return False where a floor does not hold."""
    settle()
    report: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"cases": {}}
    held = True
    for name, run in cases.items():
        result = run()
        held = held and all(ratio.verdict != "**missed**" for ratio in result.ratios)
        report["cases"][name] = {"machine": machine(), **asdict(result)}
        print(f"\n{name}\n" + "\n".join(rendered({name: report["cases"][name]})), flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(report | more, indent=1) + "\n", encoding="utf-8")
    return held


def settle() -> None:
    """Take one thread on the CPU, and no progress bars or advice from transformers."""
    from transformers.utils import logging

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def machine() -> dict[str, str]:
    """Return what this was measured on, and when."""
    facts = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", facts.read_text()) if facts.is_file() else []
    return {
        "cpu": (models or [platform.processor() or platform.machine()])[0],
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
    """Return the best FLOP/s of large square matrix products: the limit of the machine."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(9):
        start = clock()
        for _ in range(products):
            torch.mm(left, right)
        best = min(best, clock() - start)
    return products * 2 * size**3 / best


def rendered(cases: Mapping[str, Any]) -> Iterator[str]:
    """Yield cases of a file as Markdown: when and where, ratios with their bounds, milliseconds."""
    places = dict.fromkeys(
        f"{facts['date']}, {facts['cpu']}, torch {facts['torch']}, Python {facts['python']}."
        for facts in (case["machine"] for case in cases.values())
    )
    yield from (*places, "", "| ratio | floor | goal | measured | |", "|---|---|---|---|---|")
    for case in cases.values():
        yield f"| **{case['title']}** | | | | |"
        for ratio in (Ratio(**ratio) for ratio in case["ratios"]):
            sign = "≤" if ratio.at_most else "≥"
            bounds = ("" if b is None else f"{sign} {b:g}" for b in (ratio.floor, ratio.goal))
            value = f"{ratio.measured:.3g}" if ratio.measured >= 0.01 else f"{ratio.measured:.1e}"
            yield f"| {ratio.what} | {' | '.join(bounds)} | {value} | {ratio.verdict} |"
    yield from ("", "Milliseconds, other numbers and remarks:", "")
    for case in cases.values():
        parts = [f"{name} {_number(1e3 * value)}" for name, value in case["seconds"].items()]
        parts += [f"{name} {_number(value)}" for name, value in case["numbers"].items()]
        yield f"- {case['title']}: {'; '.join([*parts, *case['notes']])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_page(file: Path) -> None:
    """Write the tables of a file of cases into a page beside it."""
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    lines = [
        f"# Timings: {file.stem}",
        "",
        "[Performance](../performance.md) explains the words.",
        "",
        *rendered(cases),
        "",
    ]
    file.with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")


def report(figures: Mapping[str, Any], file: Path | None) -> None:
    """Print figures with the machine that they are of, and write them into a file."""
    text = json.dumps({"machine": machine(), **figures}, indent=1)
    print(text)
    if file is not None:
        file.write_text(text + "\n", encoding="utf-8")

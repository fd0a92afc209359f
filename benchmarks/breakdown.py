"""Where the time goes: kinds of operations in reading prompts, writing answers and learning.

    python benchmarks/breakdown.py [--quick] [--json FILE]

16 organelles of rank 8 with 4 rows each, ours and the bare host side by side. A kind's time is the
least of two profiled runs, the whole is the median without profiler, and what lies between is
Python. Writing is the difference between 17 new tokens and one. The matmul rate counts the products
that were really computed, attention's fused ones left out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from populations import RANK, Population, host_folder
from sides import Side, arguments, machine, matmul_rate, settle, timed
from symbiont_ecology.extensions.native import native_ops

ORGANELLES, ROWS_EACH, NEW_TOKENS = 16, 4, 16
PROFILED_RUNS, HEAP_MB = 2, 900
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Matrix products and where their first factor stands among the inputs."""
MOVES = (
    "copy",
    "cat",
    "index",
    "gather",
    "embedding",
    "fill",
    "zero",
    "clone",
    "scatter",
    "stack",
    "slice_backward",
)
VIEWS = (
    *(
        "view",
        "strided",
        "select",
        "split",
        "transpose",
        "narrow",
        "slice",
        "unbind",
        "expand",
        "empty",
        "resolve",
    ),
    *("detach", "flatten", "permute", "reshape", "unsqueeze", "chunk", "item", "alias", "to", "t"),
)
BASE, PYTHON = "base matrix products", "views, Python and the rest"
PASSES = {
    "add_low_rank": "low-rank terms",
    "decode_attention": "attention",
    "attention": "attention",
    "write_kv": "moving data",
    "normalize": "norms and elementwise",
    "swiglu": "norms and elementwise",
    "rope": "norms and elementwise",
}
"""What the compiled passes are for."""
KINDS = (
    BASE,
    "low-rank terms",
    "attention",
    "norms and elementwise",
    "moving data",
    "optimizer",
    PYTHON,
)


@dataclass(frozen=True)
class Spent:
    """Seconds of one phase on one side: the whole, by kind, and FLOPs of matrix products by
    kind."""

    seconds: float
    kinds: dict[str, float]
    flops: dict[str, float]

    def __sub__(self, other: Spent) -> Spent:
        kinds, flops = (
            {kind: a[kind] - b[kind] for kind in KINDS}
            for a, b in ((self.kinds, other.kinds), (self.flops, other.flops))
        )
        return Spent(self.seconds - other.seconds, kinds, flops)


def phases(folder: Path, turns: int) -> dict[str, dict[str, Spent]]:
    """``{phase: {side: what it spent}}`` of one host."""
    short, long = (
        Population(folder, ORGANELLES, ROWS_EACH, new_tokens=count) for count in (1, 1 + NEW_TOKENS)
    )
    runs: dict[str, Callable[[], object]] = {
        "reading ours": short.ours,
        "reading bare": short.bare,
        "both ours": long.ours,
        "both bare": long.bare,
        "learning ours": short.learn,
        "learning bare": short.bare_learn,
    }
    seconds = timed({name: Side(run) for name, run in runs.items()}, turns).seconds
    adapter = short.kernel.layout.size(RANK)
    results = {name: spent(run, seconds[name], adapter, turns) for name, run in runs.items()}
    sides = ("ours", "bare")
    return {
        "reading prompts": {side: results[f"reading {side}"] for side in sides},
        "writing answers": {
            side: results[f"both {side}"] - results[f"reading {side}"] for side in sides
        },
        "learning": {side: results[f"learning {side}"] for side in sides},
    }


def spent(run: Callable[[], object], seconds: float, adapter: int, turns: int) -> Spent:
    """Profiles a call and sorts what it did into kinds."""
    least: dict[Any, Any] = {}
    flops = dict.fromkeys(KINDS, 0.0)
    for _ in range(min(turns, PROFILED_RUNS)):
        # The profiler's records lie between activations, so the heap grows: its pages are touched
        # beforehand.
        torch.ones(HEAP_MB << 18)
        with (
            named_passes() as counted,
            profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler,
        ):
            run()
        flops["low-rank terms"] = counted["flops"]
        for event in profiler.key_averages(group_by_input_shape=True):
            key = (event.key, json.dumps(event.input_shapes))
            if key not in least or event.self_cpu_time_total < least[key].self_cpu_time_total:
                least[key] = event
    kinds = dict.fromkeys(KINDS, 0.0)
    for event in least.values():
        name, shapes = event.key.removeprefix("aten::").rstrip("_"), event.input_shapes
        kind = kind_of(name, shapes, adapter)
        kinds[kind] += event.self_cpu_time_total / 1e6
        flops[kind] += event.count * product_flops(name, shapes)
    kinds[PYTHON] += seconds - sum(kinds.values())
    return Spent(seconds, kinds, flops)


@contextmanager
def named_passes() -> Iterator[dict[str, float]]:
    """Lets the profiler see the compiled passes, by kind, and counts the FLOPs of the low-rank
    ones."""
    counted = {"flops": 0.0}

    def named(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            with record_function(kind):
                return function(*arguments, **options)

        return called

    def add_low_rank(x: Any, y: Any, pointers: Any, counts: Any, **options: Any) -> Any:
        width = pointers.site[0] * x.shape[1] + y.shape[1]  # every member is adapted here
        counted["flops"] += 2.0 * RANK * len(x) * width
        return before["add_low_rank"](x, y, pointers, counts, **options)

    before = {name: getattr(native_ops, name) for name in PASSES}
    for name, kind in PASSES.items():
        setattr(
            native_ops, name, named(kind, add_low_rank if name == "add_low_rank" else before[name])
        )
    try:
        yield counted
    finally:
        for name, function in before.items():
            setattr(native_ops, name, function)


def kind_of(name: str, shapes: Sequence[Sequence[int]], adapter: int) -> str:
    """What an operation is for, told by its name and the shapes of its inputs.

    What is as wide as a whole ``adapter`` (parameters) is the optimizer's.
    """
    if name in KINDS:
        return name
    if any(len(shape) and shape[-1] >= adapter for shape in shapes):
        return "optimizer"
    if name in PRODUCTS:
        place = PRODUCTS[name]
        inner = {size for shape in shapes[place : place + 2] for size in shape[-2:]}
        if inner & {RANK, 2 * RANK, 3 * RANK}:
            return "low-rank terms"
        return "attention" if name.startswith("b") else BASE
    if name.startswith("_LowRank"):
        return "low-rank terms"
    if "scaled_dot_product" in name or name in ("_softmax", "_softmax_backward_data"):
        return "attention"
    if any(word in name for word in MOVES):
        return "moving data"
    is_view = name in VIEWS or any(word in name for word in VIEWS if len(word) > 2)
    return PYTHON if is_view else "norms and elementwise"


def product_flops(name: str, shapes: Sequence[Sequence[int]]) -> float:
    """Of one matrix product; a multiply-add is two."""
    if name not in PRODUCTS:
        return 0.0
    left, right = shapes[PRODUCTS[name] : PRODUCTS[name] + 2]
    flops = 2.0
    for size in (*left, right[-1]):
        flops *= size
    return flops


def show(name: str, found: dict[str, dict[str, Spent]], rate: float, console: Console) -> None:
    """Prints milliseconds by kind, ours and bare."""
    title = f"{name} host, {ORGANELLES} organelles × {ROWS_EACH} rows: ms ours / bare"
    table = Table("kind", *found, title=title, title_justify="left")
    for kind in KINDS:
        table.add_row(
            kind,
            *(pair(part["ours"].kinds[kind], part["bare"].kinds[kind]) for part in found.values()),
        )
    table.add_row(
        "all", *(pair(part["ours"].seconds, part["bare"].seconds) for part in found.values())
    )
    console.print(table)
    for phase, sides in found.items():
        ours = sides["ours"]
        total = sum(ours.flops.values()) / ours.seconds / rate
        inside = ours.flops[BASE] / ours.kinds[BASE] / rate
        console.print(
            f"{phase}: {total:.0%} of the machine's matmul rate, {inside:.0%} inside base products"
        )
    console.print()


def pair(ours: float, bare: float) -> str:
    """Milliseconds of both."""
    return f"{1e3 * ours:.1f} / {1e3 * bare:.1f}"


def main() -> int:
    """Command line."""
    options = arguments(__doc__ or "").parse_args()
    settle()
    console, rate = Console(), matmul_rate()
    console.print(f"float32 matrix products, one thread: {rate / 1e9:.0f} GFLOP/s")
    report: dict[str, Any] = {"machine": machine(), "matmul_rate": rate, "hosts": {}}
    with tempfile.TemporaryDirectory() as workplace:
        for name, turns in {"embedded": 4, "small": 2}.items():
            results = phases(host_folder(name, Path(workplace)), 1 if options.quick else turns)
            show(name, results, rate, console)
            report["hosts"][name] = {
                phase: {side: asdict(value) for side, value in sides.items()}
                for phase, sides in results.items()
            }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A real model's shape on a GPU: against the bare host, against PEFT, against what the hardware can
do.

    python benchmarks/gpu.py [--shape Qwen3-0.6B] [--folder docs/results] [--minutes 9]

Qwen3-0.6B's sizes with random weights in bf16, 64 organelles of rank 8 with 4 rows each: 256 rows
of 40 to 56 prompt tokens and 16 new ones, greedy. Times are wall time, the device waited for before
and after. Runs anywhere: without CUDA it measures a tiny shape on one CPU thread in float32 and
says what it could not measure; a part that fails or no longer fits in the time is named, and the
others are measured all the same. Writes ``kernel_gpu_<device>_<date>.json`` after every part.
PEFT's parts need the extra ``peers``.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from populations import RANK, PeftPopulation, Population, host_folder
from sides import Ratio, Result, Side, all_hold, matmul_rate, save, settle, show, timed
from symbiont_ecology.host.machine import describe

PRESETS = ("Qwen3-0.6B", "Qwen2.5-0.5B", "Gemma3-1B")
"""Hosts of the presets for a GPU; floors are meant for the first."""
STEPS = 48
"""Decoding steps between a short answer and a long one: what one step takes is their difference."""


@dataclass(frozen=True)
class Plan:
    """What is measured where. ``has_bounds``: whether floors are meant for this shape and
    device."""

    device: str
    dtype: str
    host: str
    organelles: int
    rows_each: int
    peft_seconds: float  # for loading adapters; PEFT's sequential sides are timed on two of them
    batch_mb: float
    matmul_size: int
    turns: int
    has_bounds: bool

    @classmethod
    def here(cls, shape: str = "Qwen3-0.6B") -> Plan:
        """The real thing on CUDA, a small subset elsewhere; only the first shape has floors."""
        if not torch.cuda.is_available():
            return cls(
                device="cpu",
                dtype="float32",
                host="tiny",
                organelles=8,
                rows_each=2,
                peft_seconds=30,
                batch_mb=2048,
                matmul_size=1024,
                turns=2,
                has_bounds=False,
            )
        free, _ = torch.cuda.mem_get_info()
        return cls(
            device="cuda",
            dtype="bfloat16",
            host=f"{shape} shape",
            organelles=64,
            rows_each=4,
            peft_seconds=120,
            batch_mb=free / 1e6 / 3,
            matmul_size=8192,
            turns=4,
            has_bounds=shape == PRESETS[0],
        )

    def clock(self) -> float:
        """Seconds, everything that was asked of the device done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def bounds(self, floor: float, goal: float | None = None) -> tuple[float | None, float | None]:
        """The same, or nothing where no floor is meant."""
        return (floor, goal) if self.has_bounds else (None, None)


class NotMeasuredError(Exception):
    """This machine cannot tell."""


class Bench:
    """One population, made when first needed, and the hardware's own rates."""

    def __init__(self, plan: Plan, workplace: Path) -> None:
        self.plan, self.workplace = plan, workplace

    @cached_property
    def population(self) -> Population:
        plan = self.plan
        return Population(
            host_folder(plan.host, self.workplace),
            plan.organelles,
            plan.rows_each,
            device=plan.device,
            dtype=plan.dtype,
            memory_mb=plan.batch_mb,
        )

    @cached_property
    def peft(self) -> PeftPopulation:
        plan = self.plan
        return PeftPopulation(
            self.population,
            self.workplace,
            2,
            device=plan.device,
            dtype=plan.dtype,
            seconds=plan.peft_seconds,
        )

    @cached_property
    def matmul_rate(self) -> float:
        """FLOP/s in the host's precision."""
        plan = self.plan
        return matmul_rate(
            plan.matmul_size, getattr(torch, plan.dtype), plan.device, plan.clock, products=10
        )

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second that a large copy reads and writes."""
        source = torch.ones(
            1 << (28 if self.plan.device == "cuda" else 24), device=self.plan.device
        )
        target, best = torch.empty_like(source), float("inf")
        for _ in range(9):
            start = self.plan.clock()
            for _ in range(10):
                target.copy_(source)
            best = min(best, self.plan.clock() - start)
        return 10 * 2 * source.nbytes / best

    def timed(self, sides: dict[str, Callable[[], object]], turns: int = 0) -> dict[str, float]:
        """Seconds of each side."""
        return timed(
            {name: Side(run) for name, run in sides.items()},
            turns or self.plan.turns,
            self.plan.clock,
        ).seconds


def hardware(bench: Bench) -> Result:
    """What the machine can do at most."""
    numbers = {
        "matrix products, TFLOP/s": bench.matmul_rate / 1e12,
        "copy, GB/s": bench.bandwidth / 1e9,
    }
    return Result("the machine", [], numbers=numbers)


def answers(bench: Bench) -> Result:
    """A whole batch from text to text, against the bare host."""
    seconds = bench.timed({"ours": bench.population.ours, "bare": bench.population.bare})
    ratio = seconds["ours"] / seconds["bare"]
    rows = len(bench.population.slots)
    return Result(
        f"answers, {rows} rows",
        [Ratio("ours ÷ bare host, own loop", ratio, *bench.plan.bounds(1.2), at_most=True)],
        seconds,
        numbers={"rows per second": rows / seconds["ours"]},
    )


def writing(bench: Bench) -> Result:
    """One decoding step against the time that reading the frozen weights once takes."""
    some, rows = bench.population, len(bench.population.slots)
    short, long = [1] * rows, [1 + STEPS] * rows
    times = bench.timed(
        {
            "ours long": lambda: some.ours(long),
            "ours short": lambda: some.ours(short),
            "bare long": lambda: some.bare(long),
            "bare short": lambda: some.bare(short),
        }
    )
    step = {
        side: (times[f"{side} long"] - times[f"{side} short"]) / STEPS for side in ("ours", "bare")
    }
    weights = some.kernel.shape.parameters * getattr(torch, bench.plan.dtype).itemsize
    limit = weights / bench.bandwidth
    adapters = (
        bench.plan.organelles
        * some.kernel.layout.size(RANK)
        * getattr(torch, bench.plan.dtype).itemsize
    )
    return Result(
        f"writing, {rows} rows",
        [
            Ratio(
                "frozen weights read once ÷ our decoding step",
                limit / step["ours"],
                *bench.plan.bounds(0.4),
            ),
            Ratio("frozen weights read once ÷ bare decoding step", limit / step["bare"]),
            Ratio("our decoding step ÷ bare", step["ours"] / step["bare"], at_most=True),
        ],
        times | {f"{side} step": value for side, value in step.items()},
        numbers={"frozen weights, MB": weights / 1e6, "adapters, MB": adapters / 1e6},
    )


def reading(bench: Bench) -> Result:
    """Prompts, one new token each, against the matmul rate."""
    some = bench.population
    ones = [1] * len(some.slots)
    seconds = bench.timed({"ours": lambda: some.ours(ones), "bare": lambda: some.bare(ones)})
    tokens = [len(prompt) + 1 for prompt in some.prompts]
    flops = sum(
        some.kernel.shape.rollout_flops(some.kernel.layout.size(RANK), count, 1) for count in tokens
    )
    return Result(
        f"reading, {sum(tokens)} prompt tokens",
        [
            Ratio("ours ÷ bare host", seconds["ours"] / seconds["bare"], at_most=True),
            Ratio("share of the matmul rate, ours", flops / seconds["ours"] / bench.matmul_rate),
        ],
        seconds,
        numbers={"prompt tokens per second": sum(tokens) / seconds["ours"]},
    )


def learning(bench: Bench) -> Result:
    """One step for everyone, against forward and backward through the bare host."""
    some = bench.population
    seconds = bench.timed({"ours": some.learn, "bare": some.bare_learn}, turns=3)
    lora = some.kernel.layout.size(RANK)
    flops = sum(
        some.kernel.shape.learning_flops(lora, 9, len(prompt) - 8) for prompt in some.prompts
    )
    return Result(
        f"learning, {len(some.slots)} rows",
        [
            Ratio(
                "our step ÷ bare forward and backward",
                seconds["ours"] / seconds["bare"],
                at_most=True,
            ),
            Ratio("share of the matmul rate, ours", flops / seconds["ours"] / bench.matmul_rate),
        ],
        seconds,
    )


def gpu_share(bench: Bench) -> Result:
    """How long the GPU computes within a batch, and on what: the rest of the time it waits for
    Python."""
    if bench.plan.device != "cuda":
        raise NotMeasuredError("there is no CUDA device")
    some = bench.population
    start = bench.plan.clock()
    some.ours()
    wall = bench.plan.clock() - start
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        some.ours()
        torch.cuda.synchronize()
    kernels: dict[str, float] = {}
    for event in profiler.key_averages():
        if event.device_type.name == "CUDA":
            name = event.key[:60]
            kernels[name] = kernels.get(name, 0.0) + event.self_device_time_total / 1e6
    longest = sorted(kernels.items(), key=lambda entry: -entry[1])[:15]
    peak = torch.cuda.max_memory_allocated() / 1e6
    return Result(
        "what the GPU does during a batch of answers",
        [Ratio("time in GPU kernels ÷ wall time", sum(kernels.values()) / wall)],
        {"wall": wall} | {f"kernel {name}": value for name, value in longest},
        numbers={"peak memory, MB": peak},
    )


def peft_answers(bench: Bench) -> Result:
    """PEFT one by one, with each adapter's prompts batched, and mixed."""
    peft, some = bench.peft, bench.population
    sides = {
        "ours": Side(some.ours),
        "PEFT, one by one": Side(peft.one_by_one, peft.scale),
        "PEFT, own prompts batched": Side(peft.batched, peft.scale),
    }
    if peft.loaded == some.organelles:
        sides["PEFT, mixed batch"] = Side(peft.mixed)
    timing = timed(sides, 2, bench.plan.clock)
    seconds = timing.seconds
    floors = {"PEFT, one by one": bench.plan.bounds(30)}
    agreement = peft.agreement(timing.outputs["ours"], timing.outputs["PEFT, one by one"])
    notes = [
        f"sequential sides: {len(peft.asked)} of {some.organelles} adapters, {peft.loaded} "
        "loaded; scaled"
    ]
    if "PEFT, mixed batch" not in sides:
        notes.append("mixed batch left out: not all adapters were loaded in time")
    return Result(
        "answers against PEFT",
        [
            *(
                Ratio(f"{name} ÷ ours", value / seconds["ours"], *floors.get(name, ()))
                for name, value in seconds.items()
                if name != "ours"
            ),
            Ratio("share of answers equal to PEFT's, one by one", agreement),
        ],
        seconds,
        notes,
    )


def peft_exactness(bench: Bench) -> Result:
    """Token log-probabilities against PEFT's in the same precision."""
    slot = bench.peft.asked[-1]
    differences = abs(bench.population.log_probabilities(slot) - bench.peft.log_probabilities(slot))
    return Result(
        "log-probabilities against PEFT's, nats",
        [
            Ratio("mean difference", float(differences.mean()), at_most=True),
            Ratio("largest difference", float(differences.max()), at_most=True),
        ],
    )


PARTS: dict[str, Callable[[Bench], Result]] = {
    "hardware": hardware,
    "answers": answers,
    "writing": writing,
    "reading": reading,
    "learning": learning,
    "kernels": gpu_share,
    "peft": peft_answers,
    "exactness": peft_exactness,
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[1] / "docs/results")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="parts that begin later are left out"
    )
    parser.add_argument("--shape", choices=PRESETS, default=PRESETS[0], help="of the presets")
    options = parser.parse_args()
    settle()
    plan, console, begun = Plan.here(options.shape), Console(), time.monotonic()
    shape = "" if options.shape == PRESETS[0] else f"_{options.shape.lower()}"
    day = datetime.date.today().isoformat()
    file = options.folder / f"kernel_gpu_{plan.device}{shape}_{day}.json"
    results: dict[str, Result] = {}
    missing = (
        {} if plan.device == "cuda" else {f"{options.shape} in bf16, 256 rows": "no CUDA device"}
    )
    with tempfile.TemporaryDirectory() as workplace:
        bench = Bench(plan, Path(workplace))
        for name, part in PARTS.items():
            if time.monotonic() - begun > 60 * options.minutes:
                missing[name] = f"{options.minutes:g} minutes were over"
                continue
            try:
                results[name] = part(bench)
                show(results[name], console)
            except NotMeasuredError as why:
                missing[name] = str(why)
            # Time on a GPU is borrowed: whatever fails in one part must not take the others with
            # it.
            except Exception as error:
                missing[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                console.print_exception()
            save(
                file, results, device=describe(), host=plan.host, dtype=plan.dtype, missing=missing
            )
    for name, reason in missing.items():
        console.print(f"not measured: {name} ({reason})")
    console.print(f"{time.monotonic() - begun:.0f} s, written to {file}")
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

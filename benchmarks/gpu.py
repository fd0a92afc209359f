"""A real model's shape on a GPU: against the bare host, against PEFT, against what the hardware can
do.

    python benchmarks/gpu.py [--quick] [--only PART…] [--json FILE]

Qwen3-0.6B's sizes with random weights in bf16, 64 organelles of rank 8 with 4 rows each: 256 rows
of 40 to 56 prompt tokens and 16 new ones, greedy. Times are wall time, the device waited for before
and after. Without CUDA it measures a tiny shape on one CPU thread in float32 and says so. Writes
its file after every part. PEFT's parts need the extra ``peers``.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from populations import RANK, PeftPopulation, Population, host_folder
from symbiont_ecology.model.loading import describe
from timing import Ratio, Result, Side, arguments, matmul_rate, measured, timed, write_page

RESULTS = Path(__file__).parents[1] / "docs" / "results"
STEPS = 48
"""Decoding steps between a short answer and a long one: what one step takes is their difference."""


@dataclass(frozen=True)
class Plan:
    """What is measured where; floors are meant for the GPU."""

    device: str = "cpu"
    dtype: str = "float32"
    host: str = "tiny"
    organelles: int = 8
    rows_each: int = 2
    peft_seconds: float = 30  # for loading; PEFT's sequential sides are timed on two adapters
    batch_mb: float = 2048
    matmul_size: int = 1024
    turns: int = 2

    @classmethod
    def here(cls) -> Plan:
        """Return the plan for this machine's GPU, or the one for a CPU."""
        if not torch.cuda.is_available():
            return cls()
        megabytes = torch.cuda.mem_get_info()[0] / 1e6 / 3
        shape = "Qwen3-0.6B shape"
        return cls("cuda", "bfloat16", shape, 64, 4, 120, megabytes, 8192, 4)

    def clock(self) -> float:
        """Return seconds, once everything that was asked of the device is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def floor(self, bound: float) -> float | None:
        """Return the bound, or none where no floor is meant."""
        return bound if self.device == "cuda" else None


class Bench:
    """One population, made when first needed, and the hardware's own rates."""

    def __init__(self, plan: Plan, workplace: Path) -> None:
        self.plan = plan
        self.workplace = workplace

    @cached_property
    def population(self) -> Population:
        plan = self.plan
        folder = host_folder(plan.host, self.workplace)
        return Population(
            folder,
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
        dtype = getattr(torch, plan.dtype)
        return matmul_rate(plan.matmul_size, dtype, plan.device, plan.clock, products=10)

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second that a large copy reads and writes."""
        count = 1 << (28 if self.plan.device == "cuda" else 24)
        source = torch.ones(count, device=self.plan.device)
        target = torch.empty_like(source)
        best = float("inf")
        for _ in range(9):
            start = self.plan.clock()
            for _ in range(10):
                target.copy_(source)
            best = min(best, self.plan.clock() - start)
        return 10 * 2 * source.nbytes / best

    @property
    def adapter_size(self) -> int:
        """Parameters of an adapter."""
        return self.population.kernel.layout.size(RANK)

    def timed(self, sides: dict[str, Callable[[], object]], turns: int = 0) -> dict[str, float]:
        """Return the seconds of each side."""
        named = {name: Side(run) for name, run in sides.items()}
        return timed(named, turns or self.plan.turns, self.plan.clock).seconds


def hardware(bench: Bench) -> Result:
    """Measure the limits of the machine."""
    rates = {"TFLOP/s": bench.matmul_rate / 1e12, "copy, GB/s": bench.bandwidth / 1e9}
    return Result("the machine", numbers=rates)


def answers(bench: Bench) -> Result:
    """Time a whole batch from text to text, against the bare host."""
    some = bench.population
    seconds = bench.timed({"ours": some.ours, "bare": some.bare})
    ratio = seconds["ours"] / seconds["bare"]
    floor = bench.plan.floor(1.2)
    rows = len(some.slots)
    numbers = {"rows per second": rows / seconds["ours"]}
    ratios = [Ratio("ours ÷ bare host, own loop", ratio, floor, at_most=True)]
    return Result(f"answers, {rows} rows", ratios, seconds, numbers)


def writing(bench: Bench) -> Result:
    """Time one decoding step against reading the frozen weights once."""
    some = bench.population
    rows = len(bench.population.slots)
    short = [1] * rows
    long = [1 + STEPS] * rows
    times = bench.timed(
        {
            "ours long": lambda: some.ours(long),
            "ours short": lambda: some.ours(short),
            "bare long": lambda: some.bare(long),
            "bare short": lambda: some.bare(short),
        }
    )
    ours, bare = (
        (times[f"{side} long"] - times[f"{side} short"]) / STEPS for side in ("ours", "bare")
    )
    itemsize = getattr(torch, bench.plan.dtype).itemsize
    weights = some.kernel.shape.parameters * itemsize
    adapters = bench.plan.organelles * bench.adapter_size * itemsize
    limit = weights / bench.bandwidth
    ratios = [
        Ratio("frozen weights read once ÷ our decoding step", limit / ours, bench.plan.floor(0.4)),
        Ratio("frozen weights read once ÷ bare decoding step", limit / bare),
        Ratio("our decoding step ÷ bare", ours / bare, at_most=True),
    ]
    numbers = {"frozen weights, MB": weights / 1e6, "adapters, MB": adapters / 1e6}
    seconds = times | {"ours step": ours, "bare step": bare}
    return Result(f"writing, {rows} rows", ratios, seconds, numbers)


def reading(bench: Bench) -> Result:
    """Time prompts with one new token each, against the matmul rate."""
    some = bench.population
    ones = [1] * len(some.slots)
    tokens = [len(prompt) + 1 for prompt in some.prompts]
    seconds = bench.timed({"ours": lambda: some.ours(ones), "bare": lambda: some.bare(ones)})
    shape = some.kernel.shape
    size = bench.adapter_size
    flops = sum(shape.rollout_flops(size, count, 1) for count in tokens)
    return shared_rate(bench, f"reading, {sum(tokens)} prompt tokens", seconds, flops)


def learning(bench: Bench) -> Result:
    """Time a step for everyone, against forward and backward through the bare host."""
    some = bench.population
    seconds = bench.timed({"ours": some.learn, "bare": some.bare_learn}, turns=3)
    shape = some.kernel.shape
    size = bench.adapter_size
    flops = sum(shape.learning_flops(size, 9, len(prompt) - 8) for prompt in some.prompts)
    return shared_rate(bench, f"learning, {len(some.slots)} rows", seconds, flops)


def shared_rate(bench: Bench, title: str, seconds: dict[str, float], flops: float) -> Result:
    """Compare ours with the bare host, and with the matmul rate."""
    ratios = [
        Ratio("ours ÷ bare host", seconds["ours"] / seconds["bare"], at_most=True),
        Ratio("share of the matmul rate, ours", flops / seconds["ours"] / bench.matmul_rate),
    ]
    return Result(title, ratios, seconds)


def gpu_share(bench: Bench) -> Result:
    """Measure what the GPU computes within a batch; the rest of the time it waits for Python."""
    if bench.plan.device != "cuda":
        return Result("what the GPU does", notes=["there is no CUDA device"])
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
            name = f"kernel {event.key[:60]}"
            kernels[name] = kernels.get(name, 0.0) + event.self_device_time_total / 1e6
    longest = dict(sorted(kernels.items(), key=lambda entry: -entry[1])[:15])
    return Result(
        "what the GPU does during a batch of answers",
        [Ratio("time in GPU kernels ÷ wall time", sum(kernels.values()) / wall)],
        {"wall": wall, **longest},
        {"peak memory, MB": torch.cuda.max_memory_allocated() / 1e6},
    )


def peft_answers(bench: Bench) -> Result:
    """Time PEFT one by one, with each adapter's prompts batched, and mixed."""
    peft = bench.peft
    some = bench.population
    sides = {
        "ours": Side(some.ours),
        "PEFT, one by one": Side(peft.one_by_one, peft.scale),
        "PEFT, own prompts batched": Side(peft.batched, peft.scale),
    }
    if peft.loaded == some.organelles:  # all of them were loaded in time
        sides["PEFT, mixed batch"] = Side(peft.mixed)
    timing = timed(sides, 2, bench.plan.clock)
    seconds = timing.seconds
    agreement = peft.agreement(timing.outputs["ours"], timing.outputs["PEFT, one by one"])
    floors = {"PEFT, one by one": bench.plan.floor(30)}
    ratios = [
        Ratio(f"{name} ÷ ours", value / seconds["ours"], floors.get(name))
        for name, value in seconds.items()
        if name != "ours"
    ]
    ratios.append(Ratio("share of answers equal to PEFT's, one by one", agreement))
    notes = [f"{len(peft.asked)} of {some.organelles} adapters, {peft.loaded} loaded; scaled"]
    return Result("answers against PEFT", ratios, seconds, notes=notes)


def peft_exactness(bench: Bench) -> Result:
    """Compare token log-probabilities with PEFT's in the same precision."""
    slot = bench.peft.asked[-1]
    apart = abs(bench.population.log_probabilities(slot) - bench.peft.log_probabilities(slot))
    ratios = [
        Ratio("mean difference", float(apart.mean())),
        Ratio("largest difference", float(apart.max())),
    ]
    return Result("log-probabilities against PEFT's, nats", ratios)


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


def attempt(part: Callable[[Bench], Result], bench: Bench) -> Result:
    """Measure a part; time on a GPU is borrowed, so what fails must not take the others with it."""
    try:
        return part(bench)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        return Result(part.__name__, notes=[f"failed: {type(error).__name__}: {reason}"])


def main() -> int:
    """Measure the parts, and write the page where there is a GPU."""
    plan = Plan.here()
    day = datetime.date.today().isoformat()
    file = RESULTS / f"kernel_gpu_{plan.device}_{day}.json"
    options = arguments(__doc__ or "", list(PARTS), file).parse_args()
    with tempfile.TemporaryDirectory() as workplace:
        bench = Bench(plan, Path(workplace))
        parts = {name: partial(attempt, PARTS[name], bench) for name in options.only}
        facts = {"device": describe(), "host": plan.host, "dtype": plan.dtype}
        held = measured(parts, options.json, **facts)
    if plan.device == "cuda" and options.json == file:
        write_page(file)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

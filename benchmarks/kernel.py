"""Speed of the kernel on a CPU: against PEFT and the bare host, as populations grow, and the part
of a generation that is not the host's.

    python benchmarks/kernel.py [--quick] [--only CASE…] [--json FILE]

Everything runs in one process, on one thread, sides in turn; a number is the median of process
time, a ratio divides two of them. All sides start from text and end with text. PEFT's sequential
sides are timed on some of the adapters, with all of them loaded, and scaled. Ends of answers are
imitated by limits, which nothing looks ahead to. Writes docs/results/kernel.md. Leaves with 1 when
a floor does not hold. Needs the extra ``peers`` (PEFT).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from populations import (
    NEW_TOKENS,
    PROMPT_TOKENS,
    RANK,
    Answer,
    PeftPopulation,
    Population,
    ends,
    generate,
    host_folder,
)
from symbiont_ecology import Run
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.process import memory_mb
from symbiont_ecology.run.build import build_host
from symbiont_ecology.run.config import load_config
from timing import Ratio, Result, Side, arguments, measured, timed, write_page

FILE = Path(__file__).parents[1] / "docs" / "results" / "kernel.json"
OURS, BARE, ONE_BY_ONE = "ours", "bare host, own loop", "PEFT, one by one"
STEP, BARE_STEP, COMPILED = "our learning step", "bare forward and backward", "bare, compiled"
ATTACH, LOAD = "our attach and detach", "PEFT's load_adapter and delete_adapter"
Bounds = tuple[float | None, float | None]
"""Floor and goal."""
NONE: Bounds = (None, None)
SIZES, BARE_SIZES, LEARNING_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 4, 16, 64, 256), (1, 16)
SLOTS, RESIDENT, VISITORS, ROWS_EACH = 256, 1024, 4096, 4
FLAT, NOISE = 1.15, 1.05
"""Rows of a full machine cost at most so many times the cheapest; until then every doubling makes
rows cheaper, but for so much."""
MAX_OVERHEAD = 0.10


@dataclass(frozen=True)
class BesidePeft:
    """A population on both sides, and the bounds of its ratios.

    ``asked`` adapters are timed on PEFT's sequential sides. ``theirs`` are bounds of PEFT one by
    one, batched and mixed ÷ ours; None: no answers are timed. ``step`` bounds our learning step ÷
    the bare one, ``sequential`` PEFT's steps ÷ ours; None: no learning is timed.
    """

    title: str
    host: str
    organelles: int
    rows: int
    asked: int
    theirs: tuple[Bounds, Bounds, Bounds] | None = (NONE, NONE, NONE)
    bare: Bounds = NONE
    step: Bounds | None = None
    sequential: Bounds = NONE
    is_exact: bool = False
    has_visits: bool = False
    lengths: tuple[int, int] = PROMPT_TOKENS
    new_tokens: int = NEW_TOKENS


BESIDE_PEFT = {
    "embedded-16": BesidePeft(
        "embedded host, 16 organelles × 4 rows",
        host="embedded",
        organelles=16,
        rows=4,
        asked=16,
        theirs=((25, 28), (8, 10), (5, 6)),
        bare=(1.22, 1.15),
        step=(1.45, 1.30),
        is_exact=True,
    ),
    "embedded-64": BesidePeft(
        "embedded host, 64 organelles × 4 rows",
        host="embedded",
        organelles=64,
        rows=4,
        asked=8,
        theirs=((30, 35), (10, 13), (5, 6)),
        bare=(1.22, 1.15),
        step=(1.45, 1.30),
        sequential=(3, 3.5),
        has_visits=True,
    ),
    "embedded-64x1": BesidePeft(
        "embedded host, 64 organelles × 1 row",
        host="embedded",
        organelles=64,
        rows=1,
        asked=8,
        theirs=None,
        step=NONE,
        sequential=(4.5, 5),
    ),
    "small-16": BesidePeft(
        "small host (random, hidden 384, 8 layers), 16 organelles × 4 rows",
        host="small",
        organelles=16,
        rows=4,
        asked=4,
        theirs=((9, 11), (3.4, 4), (2, 2.4)),
        bare=(1.18, 1.10),
        step=(1.28, 1.20),
        is_exact=True,
    ),
    "0.6B": BesidePeft(
        "Qwen3-0.6B shape (random weights), 8 organelles × 2 rows, 5 new tokens",
        host="Qwen3-0.6B shape",
        organelles=8,
        rows=2,
        asked=1,
        bare=(1.08, 1.03),
        lengths=(8, 12),
        new_tokens=5,
    ),
}


def beside_peft(case: BesidePeft, place: Path, turns: int) -> Result:
    """Time a population on our kernel and on PEFT."""
    folder = host_folder(case.host, place)
    population = Population(
        folder, case.organelles, case.rows, case.lengths, new_tokens=case.new_tokens
    )
    peft = PeftPopulation(population, place, case.asked)
    result = Result(case.title)
    if peft.scale > 1:
        count = f"{len(peft.asked)} of {case.organelles} adapters"
        result.notes.append(f"PEFT's sequential sides: {count}, all of them loaded, and scaled")
    if case.theirs is not None:
        result += answers(population, peft, turns, case.theirs, case.bare)
    if case.step is not None:
        result += lessons(population, peft, turns, case.step, case.sequential)
    if case.is_exact:
        result += exactness(population, peft)
    if case.has_visits:
        result += visits(population, peft, turns)
    return result


def answers(
    population: Population, peft: PeftPopulation, turns: int, theirs: Sequence[Bounds], bare: Bounds
) -> Result:
    """Time greedy answers."""
    peers = {
        ONE_BY_ONE: Side(peft.one_by_one, peft.scale),
        "PEFT, own prompts batched": Side(peft.batched, peft.scale),
        "PEFT, mixed batch": Side(peft.mixed),
    }
    ours = {OURS: Side(population.ours), BARE: Side(population.bare)}
    timing = timed({**ours, **peers}, turns)
    seconds = timing.seconds
    agreement = peft.agreement(timing.outputs[OURS], timing.outputs[ONE_BY_ONE])
    ratios = [
        Ratio(f"{name} ÷ ours", seconds[name] / seconds[OURS], *bounds)
        for name, bounds in zip(peers, theirs, strict=True)
    ]
    ratios += [
        Ratio("ours ÷ bare host, own loop", seconds[OURS] / seconds[BARE], *bare, at_most=True),
        Ratio("share of answers equal to PEFT's, one by one", agreement, 0.999, 1.0),
    ]
    return Result("", ratios, seconds)


def lessons(
    population: Population, peft: PeftPopulation, turns: int, step: Bounds, sequential: Bounds
) -> Result:
    """Time a learning step for everyone, optimiser and conversions included on both sides."""
    sides = {
        STEP: Side(population.learn),
        COMPILED: Side(population.bare_learn),
        BARE_STEP: Side(population.bare_learn_by_torch),
        "PEFT's learning steps": Side(peft.learn, peft.scale),
    }
    seconds = timed(sides, turns).seconds
    peers = seconds["PEFT's learning steps"] / seconds[STEP]
    ratios = [
        Ratio(f"{STEP} ÷ {BARE_STEP}", seconds[STEP] / seconds[BARE_STEP], *step, at_most=True),
        Ratio(f"{STEP} ÷ {COMPILED}", seconds[STEP] / seconds[COMPILED]),
        Ratio("PEFT's learning steps ÷ ours", peers, *sequential),
    ]
    return Result("", ratios, seconds)


def exactness(population: Population, peft: PeftPopulation) -> Result:
    """Compare the first and the last adapter with PEFT's."""
    slots = (0, population.organelles - 1)

    def apart(read: Callable[[Population | PeftPopulation], Callable[[int], np.ndarray]]) -> float:
        return max(float(np.abs(read(population)(slot) - read(peft)(slot)).max()) for slot in slots)

    scores = apart(lambda side: side.log_probabilities)
    gradients = apart(lambda side: side.gradient)
    name = "largest difference of log-probabilities to PEFT's, nats"
    other = "largest difference of gradients to PEFT's"
    return Result(
        "", [Ratio(name, scores, 5e-5, None, True), Ratio(other, gradients, 1e-5, None, True)]
    )


def visits(population: Population, peft: PeftPopulation, turns: int) -> Result:
    """Time how one more adapter comes from a file and goes, beside all the others."""
    kernel, times = population.kernel, 20
    kernel.detach(0)

    def come_and_go() -> None:
        for _ in range(times):
            kernel.detach(kernel.attach(peft.folders[0]))

    sides = {ATTACH: Side(come_and_go, 1 / times), LOAD: Side(peft.load_and_delete)}
    seconds = timed(sides, turns).seconds
    kernel.place(0, population.adapters[0])
    ratio = Ratio(f"{LOAD} ÷ {ATTACH}", seconds[LOAD] / seconds[ATTACH], 100, 200)
    return Result("", [ratio], seconds)


def transformers_path(place: Path, turns: int) -> Result:
    """Time a host that the fused forward does not know: through transformers' own modules."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = host_folder("embedded", place)
    population = Population(folder, 16, 4, prefer_fused=False)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")

    def bare() -> list[Answer]:
        batch = tokenizer(population.prompts, return_tensors="pt", padding=True)
        return generate(model, tokenizer, batch, NEW_TOKENS)

    sides = {"ours with adapters": Side(population.ours), "bare under HF generate": Side(bare)}
    title = "embedded host through transformers, 16 organelles × 4 rows"
    return compared(title, sides, 2 * turns, 1.25, 1.15)


def leaving(place: Path, turns: int) -> Result:
    """Time answers that end early and leave the batch."""
    population = Population(host_folder("embedded", place), 16, 8)
    limits = ends(len(population.slots), np.random.default_rng(0))
    longest = [max(limits)] * len(limits)
    sides = {
        "finished rows leave": Side(lambda: population.ours(limits)),
        "all run to the end": Side(lambda: population.ours(longest)),
    }
    title = "embedded host, 16 organelles × 8 rows, answers of 12 tokens on average and 48 at most"
    return compared(title, sides, turns, 0.8, 0.7)


def padding(place: Path, turns: int) -> Result:
    """Time packed prompts against a batch in which all are as long as the longest."""
    folder = host_folder("embedded", place)
    rows = 64
    lengths = np.random.default_rng(0).permutation(np.linspace(8, 120, rows).astype(int)).tolist()
    ragged = Population(folder, 8, 8, lengths)
    padded = Population(folder, 8, 8, [max(lengths)] * rows)
    sides = {"no padding": Side(ragged.ours), "one padded batch": Side(padded.ours)}
    title = "embedded host, 8 organelles × 8 rows, prompts of 8 to 120 tokens"
    return compared(title, sides, 2 * turns, 0.9, 0.85)


def compared(title: str, sides: dict[str, Side], turns: int, floor: float, goal: float) -> Result:
    """Time two sides; the first must take at most so much of the second's time."""
    seconds = timed(sides, turns).seconds
    first, second = sides
    ratio = Ratio(f"{first} ÷ {second}", seconds[first] / seconds[second], floor, goal, True)
    return Result(title, [ratio], seconds)


def ragged(place: Path, turns: int) -> Result:
    """Time 32 slots of rank 1 to 16 with 1 to 8 rows each, prompts of 8 to 120 tokens and answers
    that end at a quarter of the limit, against a rectangle of as much work; and one at a time."""
    folder = host_folder("embedded", place)
    slots = 32
    mean_prompt = 64
    mean_answer = 12
    limit = 48
    draw = np.random.default_rng(0)
    count = 32 * 4
    rows, ranks = (
        np.resize(values, slots)[draw.permutation(slots)].tolist()
        for values in ((1, 1, 2, 3, 4, 6, 7, 8), (1, 2, 4, 4, 8, 13, 16, 16))
    )
    lengths = np.linspace(8, 120, count).round().astype(int)[draw.permutation(count)].tolist()
    limits = ends(count, draw, mean_answer, limit)
    same_lengths = [mean_prompt] * count
    same_limits = [mean_answer] * count
    assert (sum(lengths), sum(limits)) == (sum(same_lengths), sum(same_limits))

    def side(rows: Any, lengths: list[int], ranks: Any, limits: list[int]) -> Side:
        population = Population(folder, slots, rows, lengths, ranks)
        return Side(lambda: population.ours(limits))

    bare = Population(folder, slots, rows, lengths)
    sides = {
        "ragged": side(rows, lengths, ranks, limits),
        "rectangle of equal work": side(4, same_lengths, RANK, same_limits),
        "switched off": side(rows, [120] * count, ranks, [limit] * count),
        "bare host, ragged": Side(lambda: bare.bare(limits)),
        "ragged prompts alone": side(4, lengths, RANK, same_limits),
        "ragged rows alone": side(rows, same_lengths, RANK, same_limits),
        "ragged ranks alone": side(4, same_lengths, ranks, same_limits),
        "ragged answers alone": side(4, same_lengths, RANK, limits),
    }
    seconds = timed(sides, turns).seconds
    whole = seconds["ragged"]
    even = seconds["rectangle of equal work"]
    ratios = [
        Ratio("ragged ÷ rectangle of equal work", whole / even, 1.5, at_most=True),
        Ratio("switched off ÷ ragged", seconds["switched off"] / whole, 1.5),
        Ratio("ragged ÷ bare host, ragged", whole / seconds["bare host, ragged"]),
        *(Ratio(f"{n} ÷ rectangle", seconds[n] / even) for n in sides if n.endswith(" alone")),
    ]
    tokens = f"{sum(lengths)} prompt and {sum(limits)} new tokens"
    return Result(f"embedded host, {slots} slots, {count} rows, {tokens}", ratios, seconds)


def size(place: Path, turns: int) -> Result:
    """Time a row against the number of organelles: answers, the bare host's, and learning."""
    folder = host_folder("embedded", place)
    crowds = {count: Population(folder, count, ROWS_EACH) for count in SIZES}
    sides = {f"ours {count}": crowds[count].ours for count in SIZES}
    sides |= {f"bare {count}": crowds[count].bare for count in BARE_SIZES}
    learning = {f"learning {count}": crowds[count].learn for count in LEARNING_SIZES}
    seconds: dict[str, float] = {}
    for part in (sides, learning):
        per_row = {n: Side(run, 1 / (ROWS_EACH * int(n.split()[1]))) for n, run in part.items()}
        seconds |= timed(per_row, turns).seconds
    costs = [seconds[f"ours {count}"] for count in SIZES]
    full = next(place for place, cost in enumerate(costs) if cost <= FLAT * min(costs))
    doubling = max((after / before for before, after in pairwise(costs[: full + 1])), default=0.0)
    until = f"up to {SIZES[full]} organelles: most that a doubling leaves of a row's cost"
    beyond = f"from {SIZES[full]} organelles on: dearest row ÷ cheapest"
    ratios = [
        Ratio(until, doubling, NOISE, at_most=True),
        Ratio(beyond, max(costs[full:]) / min(costs), FLAT, at_most=True),
    ]
    return Result(f"cost per row, 1 to {SLOTS} organelles × {ROWS_EACH} rows", ratios, seconds)


def crowds(place: Path, turns: int) -> Result:
    """Time 1,024 resident and 4,096 visiting organelles against 256, per row; visitors live in
    arrays and come into the slots wave by wave."""
    folder = host_folder("embedded", place)
    draw = np.random.default_rng(1)
    small, large, visited = (Population(folder, n, ROWS_EACH) for n in (SLOTS, RESIDENT, SLOTS))
    layout = visited.kernel.layout
    visitors = [AdapterWeights.random(layout, RANK, 2.0, draw, b_std=0.05) for _ in range(VISITORS)]
    names = "256", "1,024 resident", "4,096 visiting"
    times: dict[str, list[float]] = {name: [] for name in names}

    def take(name: str, population: Population, run: Callable[[], object]) -> None:
        start = time.process_time()
        run()
        times[name].append((time.process_time() - start) / len(population.slots))

    def wave(first: int) -> None:
        for slot, weights in enumerate(visitors[first : first + SLOTS]):
            visited.kernel.place(slot, weights)
        visited.ours()

    small.ours()
    visited.ours()
    waves = range(0, VISITORS, SLOTS)
    for index, first in enumerate(waves):
        take(names[2], visited, partial(wave, first))
        if index % 4 == 0:
            take(names[0], small, small.ours)
        if index % (len(waves) // turns) == 0:
            take(names[1], large, large.ours)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    ratios = [
        Ratio(f"{name} ÷ 256 organelles, per row", seconds[name] / seconds["256"], 1.1, None, True)
        for name in names[1:]
    ]
    return Result(f"beyond {SLOTS} organelles, {ROWS_EACH} rows each", ratios, seconds)


def memory(place: Path, turns: int) -> Result:
    """Measure the peak memory of a process against the number of organelles. Linux alone tells."""
    numbers: dict[str, float] = {}
    for count in (1, 16, 64, 256):
        code = f"import kernel; kernel.print_memory({count})"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent)
        numbers |= {f"{name} {count}": mb for name, mb in json.loads(done.stdout).items()}
    gigabytes = numbers[f"learning {SLOTS}"] / 1e3
    ratio = Ratio(f"{SLOTS} organelles, answers and learning: GB", gigabytes, 2.0, at_most=True)
    return Result("memory beyond the host, MB", [ratio], numbers=numbers)


def print_memory(organelles: int) -> None:
    """Print the megabytes beyond the host, at most, after answers and then after learning."""
    with tempfile.TemporaryDirectory() as place:
        folder = host_folder("embedded", Path(place))
        host = Population(folder, 1, 1)
        host.bare()
        host.learn()
        before = memory_mb("VmRSS")
        population = Population(folder, organelles, ROWS_EACH)
        population.ours()
        answers = memory_mb() - before
        population.learn()
        print(json.dumps({"answers": answers, "learning": memory_mb() - before}))


class TimedHost:
    """A host whose two verbs are timed."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.seconds = {"answering": 0.0, "learning": 0.0}

    def rollout(self, *words: Any, **options: Any) -> Any:
        return self._timed("answering", self._host.rollout, *words, **options)

    def learn(self, *words: Any, **options: Any) -> Any:
        return self._timed("learning", self._host.learn, *words, **options)

    def _timed(self, name: str, verb: Callable[..., Any], *words: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return verb(*words, **options)
        finally:
            self.seconds[name] += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def overhead(place: Path, turns: int) -> Result:
    """Time runs of the preset ``steady``: the part of a generation that the host does not take."""
    totals = {"generations": 0.0, "whole": 0.0, "answering": 0.0, "learning": 0.0}
    for seed in range(min(turns, 3)):
        short = ["run.generations=40", "run.train_flops=null"] if turns < 3 else []
        config = load_config("steady", [f"seed={seed}", *short])
        host, marks = TimedHost(build_host(config)), list[dict[str, float]]()

        for generation in Run.start(config, folder=place / f"overhead-{seed}", host=host):
            marks.append({"generations": 1.0, "whole": generation.seconds, **host.seconds})
            host.seconds = dict.fromkeys(host.seconds, 0.0)
        for mark in marks[1:]:  # the first one warms up
            totals = {name: value + mark[name] for name, value in totals.items()}
    rest = totals["whole"] - totals["answering"] - totals["learning"]
    count = totals.pop("generations")
    seconds = {name: value / count for name, value in {**totals, "not the host": rest}.items()}
    ratio = Ratio("part of a generation that is not the host's", rest / totals["whole"])
    bounded = Ratio(ratio.what, ratio.measured, MAX_OVERHEAD, None, True)
    return Result(f"a generation of steady, mean of {count:.0f}", [bounded], seconds)


CASES: dict[str, Callable[[Path, int], Result]] = {
    **{name: partial(beside_peft, case) for name, case in BESIDE_PEFT.items()},
    "transformers": transformers_path,
    "leaving": leaving,
    "padding": padding,
    "ragged": ragged,
    "size": size,
    "crowds": crowds,
    "memory": memory,
    "overhead": overhead,
}


def main() -> int:
    """Run cases, and write the page."""
    options = arguments(__doc__ or "", list(CASES), FILE).parse_args()
    turns = 2 if options.quick else 5
    with tempfile.TemporaryDirectory() as place:
        cases = {name: partial(CASES[name], Path(place), turns) for name in options.only}
        held = measured(cases, options.json)
    if options.json == FILE:
        write_page(FILE)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

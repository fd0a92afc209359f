"""How cost and memory grow: with the population, with ranks, with prompts and with answers.

    python benchmarks/growth.py [--quick] [--only CASE] [--json FILE] [--plot FILE]

Cost per row (4 rows of 40 to 56 prompt tokens and 16 new ones for every organelle, rank 8, greedy)
for 1 to 256 organelles, for 1,024 resident in slots, and for 4,096 that live in numpy arrays and
visit 256 slots wave by wave. Memory is what a process of its own takes at most beyond what it takes
with the host alone. Leaves with 1 when a floor does not hold.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from populations import RANK, Population, host_folder
from sides import Ratio, Result, Side, all_hold, arguments, save, settle, show, timed
from symbiont_ecology.process import memory_mb
from symbiont_ecology.weights.adapter import AdapterWeights

SIZES, BARE_SIZES, LEARNING_SIZES = (
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
    (1, 4, 16, 64, 256),
    (1, 4, 16, 64),
)
MEMORY_SIZES, LARGEST_LEARNING = (1, 16, 64, 256, 1024), 256
RANKS, PROMPTS, ANSWERS = (1, 2, 4, 8, 16, 32, 64), (8, 16, 32, 64, 128, 256), (1, 4, 16, 64)
FEW, SLOTS, RESIDENT, VISITORS, ROWS_EACH = 16, 256, 1024, 4096, 4
FLAT = 1.15
"""Rows of a full machine cost at most so many times the cheapest."""
NOISE = 1.05
"""Until then every doubling makes rows cheaper, but for so much."""


def size(folder: Path, turns: int) -> Result:
    """Cost per row against the number of organelles: answers, the bare host's, and learning."""
    by_count = {count: Population(folder, count, ROWS_EACH) for count in SIZES}
    answers = {f"ours {count}": per_row(crowd, crowd.ours) for count, crowd in by_count.items()}
    answers |= {
        f"bare {count}": per_row(by_count[count], by_count[count].bare) for count in BARE_SIZES
    }
    lessons = {f"learning {n}": per_row(by_count[n], by_count[n].learn) for n in LEARNING_SIZES}
    seconds = timed(answers, turns).seconds | timed(lessons, turns).seconds
    costs = [seconds[f"ours {count}"] for count in SIZES]
    full = next(place for place, cost in enumerate(costs) if cost <= FLAT * min(costs))
    doublings = [after / before for before, after in pairwise(costs[: full + 1])]
    return Result(
        f"cost per row, 1 to {SLOTS} organelles × {ROWS_EACH} rows",
        [
            Ratio(
                f"up to {SIZES[full]} organelles: most that a doubling leaves of a row's cost",
                max(doublings, default=0.0),
                NOISE,
                at_most=True,
            ),
            Ratio(
                f"from {SIZES[full]} organelles on: dearest row ÷ cheapest",
                max(costs[full:]) / min(costs),
                FLAT,
                at_most=True,
            ),
        ],
        seconds,
    )


def crowds(folder: Path, turns: int) -> Result:
    """1,024 resident and 4,096 visiting organelles against 256, per row; a wave of visitors is a
    sample."""
    small, large = Population(folder, SLOTS, ROWS_EACH), Population(folder, RESIDENT, ROWS_EACH)
    generator, kernel = np.random.default_rng(1), Population(folder, SLOTS, ROWS_EACH)
    layout = kernel.kernel.layout
    visitors = [
        AdapterWeights.random(layout, RANK, 2.0, generator, b_std=0.05) for _ in range(VISITORS)
    ]
    times: dict[str, list[float]] = {"256": [], "1,024 resident": [], "4,096 visiting": []}

    def take(name: str, rows: int, run: Callable[[], object]) -> None:
        start = time.process_time()
        run()
        times[name].append((time.process_time() - start) / rows)

    def wave(first: int) -> None:
        for slot, weights in enumerate(visitors[first : first + SLOTS]):
            kernel.kernel.place(slot, weights)
        kernel.ours()

    small.ours()
    kernel.ours()
    waves = range(0, VISITORS, SLOTS)
    for index, first in enumerate(waves):
        take("4,096 visiting", len(kernel.slots), partial(wave, first))
        if index % 4 == 0:
            take("256", len(small.slots), small.ours)
        if index % (len(waves) // turns) == 0:
            take("1,024 resident", len(large.slots), large.ours)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return Result(
        f"beyond {SLOTS} organelles, {ROWS_EACH} rows each",
        [
            Ratio(
                f"{name} ÷ 256 organelles, per row",
                seconds[name] / seconds["256"],
                1.1,
                at_most=True,
            )
            for name in ("1,024 resident", "4,096 visiting")
        ],
        seconds,
    )


def rank(folder: Path, turns: int) -> Result:
    """Cost per row against the rank of everyone."""
    populations = {count: Population(folder, FEW, ROWS_EACH, ranks=count) for count in RANKS}
    return curve("the adapters' rank", populations, turns)


def prompt(folder: Path, turns: int) -> Result:
    """Cost per row against the length of prompts."""
    populations = {count: Population(folder, FEW, ROWS_EACH, (count, count)) for count in PROMPTS}
    return curve("prompt tokens", populations, turns)


def answer(folder: Path, turns: int) -> Result:
    """Cost per row against the length of answers."""
    populations = {count: Population(folder, FEW, ROWS_EACH, new_tokens=count) for count in ANSWERS}
    return curve("new tokens", populations, turns)


def curve(name: str, populations: Mapping[int, Population], turns: int) -> Result:
    """Ours and the bare host at every point."""
    sides = {f"ours {count}": per_row(crowd, crowd.ours) for count, crowd in populations.items()}
    sides |= {f"bare {count}": per_row(crowd, crowd.bare) for count, crowd in populations.items()}
    seconds = timed(sides, turns).seconds
    return Result(f"cost per row against {name}, {FEW} organelles × {ROWS_EACH} rows", [], seconds)


def memory(folder: Path, turns: int) -> Result:
    """Peak memory against organelles, every size in a process of its own. Linux alone tells it."""
    numbers: dict[str, float] = {}
    for count in MEMORY_SIZES:
        command = [sys.executable, __file__, "--memory", str(count)]
        peaks = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        numbers |= {f"{name} {count}": value for name, value in peaks.items()}
    ratios = []
    if numbers:
        gigabytes = numbers[f"learning {SLOTS}"] / 1e3
        ratios.append(
            Ratio(f"{SLOTS} organelles, answers and learning: GB", gigabytes, 2.0, at_most=True)
        )
    return Result("memory beyond the host, MB", ratios, numbers=numbers)


def peak_memory(folder: Path, organelles: int) -> dict[str, float]:
    """Megabytes beyond the host, at most, after answers and then after a learning step."""
    if not Path("/proc/self/status").is_file():
        return {}
    host = Population(folder, 1, 1)
    host.bare()
    host.learn()
    before = memory_mb("VmRSS")
    population = Population(folder, organelles, ROWS_EACH)
    population.ours()
    peaks = {"answers": memory_mb() - before}
    if organelles <= LARGEST_LEARNING:
        population.learn()
        peaks["learning"] = memory_mb() - before
    return peaks


def per_row(population: Population, run: Callable[[], object]) -> Side:
    """A side whose seconds are those of one row."""
    return Side(run, 1 / len(population.slots))


def draw(cases: Mapping[str, Any], file: Path) -> None:
    """The curves as one figure."""
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for panel, name, label in (
        (axes[0, 0], "size", "organelles"),
        (axes[1, 0], "rank", "rank of the adapters"),
        (axes[1, 1], "prompt", "prompt tokens (solid), new tokens (dotted)"),
    ):
        seconds = cases[name]["seconds"]
        for side, colour in COLOURS.items():
            line(panel, seconds, side, colour, "o-", scale=1e3)
        panel.set(xlabel=label, ylabel="ms per row", ylim=(0, None))
    for name, marker in (("1,024 resident", "s"), ("4,096 visiting", "D")):
        cost, place = cases["crowds"]["seconds"][name], int(name.split()[0].replace(",", ""))
        axes[0, 0].plot(place, 1e3 * cost, marker, color=COLOURS["ours"], mfc="white", label=name)
    for side in ("ours", "bare"):
        line(
            axes[1, 1],
            cases["answer"]["seconds"],
            side,
            COLOURS[side],
            "o:",
            scale=1e3,
            is_named=False,
        )
    numbers = cases["memory"]["numbers"]
    line(axes[0, 1], numbers, "answers", COLOURS["ours"], "o-")
    line(axes[0, 1], numbers, "learning", COLOURS["learning"], "o-")
    axes[0, 1].axhline(2000, color="#999999", lw=1, ls="--")
    axes[0, 1].set(xlabel="organelles", ylabel="peak memory beyond the host, MB", yscale="log")
    for panel in axes.flat:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)


COLOURS = {"ours": "#1b7f5c", "bare": "#666666", "learning": "#b4552d"}


def line(
    panel: Any,
    values: Mapping[str, float],
    side: str,
    colour: str,
    style: str,
    scale: float = 1.0,
    is_named: bool = True,
) -> None:
    """One side's numbers against the number in their names."""
    points = sorted(
        (int(name.split()[1]), value) for name, value in values.items() if name.split()[0] == side
    )
    if points:
        places, heights = zip(*points, strict=True)
        label = side if is_named else None
        panel.plot(places, scale * np.array(heights), style, color=colour, ms=4, label=label)


CASES: dict[str, Callable[[Path, int], Result]] = {
    "size": size,
    "crowds": crowds,
    "rank": rank,
    "prompt": prompt,
    "answer": answer,
    "memory": memory,
}


def main() -> int:
    """Command line."""
    parser = arguments(__doc__ or "", CASES)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw what the JSON file holds, all cases"
    )
    parser.add_argument(
        "--memory", type=int, metavar="N", help="only tell the memory of N organelles"
    )
    options = parser.parse_args()
    settle()
    console, results = Console(), {}
    with tempfile.TemporaryDirectory() as workplace:
        folder = host_folder("embedded", Path(workplace))
        if options.memory:
            print(json.dumps(peak_memory(folder, options.memory)))
            return 0
        for name, case in CASES.items():
            if options.only in (None, name):
                results[name] = case(folder, 1 if options.quick else 2)
                show(results[name], console)
                save(options.json, results, options.only)
    if options.plot:
        draw(json.loads(options.json.read_text(encoding="utf-8"))["cases"], options.plot)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A population as it comes: prompts, rows, ranks and answers of all lengths, against an even one.

    python benchmarks/ragged.py [--quick] [--json FILE]

32 slots of rank 1 to 16 with 1 to 8 rows each, prompts of 8 to 120 tokens, answers that end at a
quarter of the limit on average. The rectangle has as many slots, rows, prompt tokens and new
tokens, every row like the mean one. "Switched off" is the same engine with every prompt as long as
the longest and nobody leaving. Ends are imitated by limits, which nothing looks ahead to. Leaves
with 1 when a floor does not hold.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from populations import Population, ends, host_folder
from sides import Ratio, Result, Side, all_hold, arguments, save, settle, show, timed

ROWS = (1, 1, 2, 3, 4, 6, 7, 8)
RANKS = (1, 2, 4, 4, 8, 13, 16, 16)
"""What eight slots have, in any order: 4 rows and rank 8 on average."""
SLOTS, MEAN_ROWS, MEAN_RANK = 32, 4, 8
SHORTEST, LONGEST = 8, 120
MEAN_ANSWER, LIMIT = 12, 48

RAGGED, RECTANGLE = "ragged", "rectangle"


def ragged(folder: Path, turns: int) -> Result:
    """Times the ragged population, the rectangle, what lies between, and the engine without its
    means."""
    generator = np.random.default_rng(0)
    rows, ranks = (
        np.resize(values, SLOTS)[generator.permutation(SLOTS)].tolist() for values in (ROWS, RANKS)
    )
    count, mean_prompt = SLOTS * MEAN_ROWS, (SHORTEST + LONGEST) // 2
    lengths = (
        np.linspace(SHORTEST, LONGEST, count)
        .round()
        .astype(int)[generator.permutation(count)]
        .tolist()
    )
    limits = ends(count, generator, MEAN_ANSWER, LIMIT)
    work = sum(rows), sum(ranks), sum(lengths), sum(limits)
    even = count, SLOTS * MEAN_RANK, count * mean_prompt, count * MEAN_ANSWER
    assert work == even, "ragged and rectangle are to do the same work"

    same_lengths, same_limits = [mean_prompt] * count, [MEAN_ANSWER] * count
    sides = {
        RAGGED: side(folder, rows, lengths, ranks, limits),
        RECTANGLE: side(folder, MEAN_ROWS, same_lengths, MEAN_RANK, same_limits),
        "switched off": side(folder, rows, [LONGEST] * count, ranks, [LIMIT] * count),
        "ragged prompts": side(folder, MEAN_ROWS, lengths, MEAN_RANK, same_limits),
        "ragged rows": side(folder, rows, same_lengths, MEAN_RANK, same_limits),
        "ragged ranks": side(folder, MEAN_ROWS, same_lengths, ranks, same_limits),
        "ragged answers": side(folder, MEAN_ROWS, same_lengths, MEAN_RANK, limits),
    }
    bare = Population(folder, SLOTS, rows, lengths)
    sides["bare host, ragged"] = Side(lambda: bare.bare(limits))
    seconds = timed(sides, turns).seconds
    ratios = [
        Ratio(
            "ragged ÷ rectangle of equal work",
            seconds[RAGGED] / seconds[RECTANGLE],
            1.5,
            at_most=True,
        ),
        Ratio("switched off ÷ ragged", seconds["switched off"] / seconds[RAGGED], 1.5),
        Ratio(
            "ragged ÷ bare host, ragged",
            seconds[RAGGED] / seconds["bare host, ragged"],
            at_most=True,
        ),
    ]
    for name in ("ragged prompts", "ragged rows", "ragged ranks", "ragged answers"):
        ratios.append(
            Ratio(f"{name} alone ÷ rectangle", seconds[name] / seconds[RECTANGLE], at_most=True)
        )
    tokens = f"{sum(lengths)} prompt and {sum(limits)} new tokens"
    title = f"embedded host, {SLOTS} slots, {count} rows, {tokens}"
    return Result(title, ratios, seconds)


def side(
    folder: Path,
    rows: int | Sequence[int],
    lengths: Sequence[int],
    ranks: int | Sequence[int],
    limits: Sequence[int],
) -> Side:
    """One population and how long its answers are."""
    population = Population(folder, SLOTS, rows, lengths, ranks)
    return Side(lambda: population.ours(limits))


def main() -> int:
    """Command line."""
    options = arguments(__doc__ or "").parse_args()
    settle()
    with tempfile.TemporaryDirectory() as workplace:
        results = {
            "ragged": ragged(host_folder("embedded", Path(workplace)), 2 if options.quick else 6)
        }
    show(results["ragged"], Console())
    save(options.json, results)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The kernel against PEFT and against the bare host: the ratios that it must reach.

    python benchmarks/kernel.py [--quick] [--only CASE] [--json FILE]

Everything runs in one process, on one thread, sides in turn; a number is the median of process
time, a ratio divides two of them. All sides start from text and end with text. PEFT's sequential
sides are timed on some of the adapters, with all of them loaded, and scaled. Leaves with 1 when a
floor does not hold. Needs the extra ``peers`` (PEFT).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from populations import NEW_TOKENS, Answer, PeftPopulation, Population, ends, generate, host_folder
from sides import Ratio, Result, Side, all_hold, arguments, save, settle, show, timed

OURS, BARE = "ours", "bare host, own loop"
ONE_BY_ONE, BATCHED, MIXED = "PEFT, one by one", "PEFT, own prompts batched", "PEFT, mixed batch"
STEP, COMPILED_STEP, BARE_STEP, PEFT_STEP = (
    "our learning step",
    "bare, in compiled passes",
    "bare forward and backward",
    "PEFT's learning steps",
)

Bounds = tuple[float | None, float | None]
"""Floor and goal."""
NONE: Bounds = (None, None)


def embedded_16(workplace: Path, turns: int) -> Result:
    """The host that ships, an ordinary population."""
    population, peft = both("embedded", 16, 4, workplace, asked=16)
    return joined(
        "embedded host, 16 organelles × 4 rows",
        answers(population, peft, turns, ((25, 28), (8, 10), (5, 6)), (1.22, 1.15)),
        lessons(population, peft, turns, bare=(1.45, 1.30)),
        exactness(population, peft),
    )


def embedded_64(workplace: Path, turns: int) -> Result:
    """The same, four times as many; and how fast one more comes and goes."""
    population, peft = both("embedded", 64, 4, workplace, asked=8)
    return joined(
        "embedded host, 64 organelles × 4 rows",
        answers(population, peft, turns, ((30, 35), (10, 13), (5, 6)), (1.22, 1.15)),
        lessons(population, peft, turns, bare=(1.45, 1.30), sequential=(3, 3.5)),
        visits(population, peft, turns),
    )


def embedded_64_single(workplace: Path, turns: int) -> Result:
    """Learning from one row each, where one adapter alone does not fill the machine."""
    population, peft = both("embedded", 64, 1, workplace, asked=8)
    part = lessons(population, peft, turns, bare=NONE, sequential=(4.5, 5))
    return joined("embedded host, 64 organelles × 1 row", part)


def small_16(workplace: Path, turns: int) -> Result:
    """A host ten times as large, where matrix products weigh more."""
    population, peft = both("small", 16, 4, workplace, asked=4)
    return joined(
        "small host (random, hidden 384, 8 layers), 16 organelles × 4 rows",
        answers(population, peft, min(turns, 4), ((9, 11), (3.4, 4), (2, 2.4)), (1.18, 1.10)),
        lessons(population, peft, min(turns, 4), bare=(1.28, 1.20)),
        exactness(population, peft),
    )


def real(workplace: Path, turns: int) -> Result:
    """A real model's sizes, few rows: reading 2.4 GB of weights is most of the work."""
    population, peft = both(
        "Qwen3-0.6B shape", 8, 2, workplace, asked=1, lengths=(8, 12), new_tokens=5
    )
    part = answers(population, peft, min(turns, 6), (NONE, NONE, NONE), (1.08, 1.03))
    return joined("Qwen3-0.6B shape (random weights), 8 organelles × 2 rows, 5 new tokens", part)


def transformers_path(workplace: Path, turns: int) -> Result:
    """Hosts that the fused forward does not know: through transformers' own modules."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = host_folder("embedded", workplace)
    population = Population(folder, 16, 4, prefer_fused=False)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")

    def bare() -> list[Answer]:
        batch = tokenizer(population.prompts, return_tensors="pt", padding=True)
        return generate(model, tokenizer, batch, NEW_TOKENS)

    seconds = timed(
        {OURS: Side(population.ours), "HF generate, bare": Side(bare)}, 2 * turns
    ).seconds
    ratio = seconds[OURS] / seconds["HF generate, bare"]
    return Result(
        "embedded host through transformers, 16 organelles × 4 rows",
        [
            Ratio(
                "ours with adapters ÷ bare host under HF generate", ratio, 1.25, 1.15, at_most=True
            )
        ],
        seconds,
    )


def leaving(workplace: Path, turns: int) -> Result:
    """Answers that end early leave the batch; ends are imitated by limits, which nothing looks
    ahead to."""
    population = Population(host_folder("embedded", workplace), 16, 8)
    limits = ends(len(population.slots), np.random.default_rng(0))
    longest = [max(limits)] * len(limits)
    sides = {
        "leaving": Side(lambda: population.ours(limits)),
        "all to the end": Side(lambda: population.ours(longest)),
    }
    seconds = timed(sides, turns).seconds
    ratio = seconds["leaving"] / seconds["all to the end"]
    return Result(
        "embedded host, 16 organelles × 8 rows, answers of 12 tokens on average and 48 at most",
        [Ratio("finished rows leave ÷ all run to the end", ratio, 0.8, 0.7, at_most=True)],
        seconds,
    )


def padding(workplace: Path, turns: int) -> Result:
    """Prompts of 8 to 120 tokens, packed, against a batch in which all are as long as the
    longest."""
    folder, rows = host_folder("embedded", workplace), 64
    lengths = np.random.default_rng(0).permutation(np.linspace(8, 120, rows).astype(int)).tolist()
    ragged, padded = (
        Population(folder, 8, 8, lengths),
        Population(folder, 8, 8, [max(lengths)] * rows),
    )
    seconds = timed({"packed": Side(ragged.ours), "padded": Side(padded.ours)}, 2 * turns).seconds
    ratio = seconds["packed"] / seconds["padded"]
    return Result(
        "embedded host, 8 organelles × 8 rows, prompts of 8 to 120 tokens",
        [Ratio("no padding ÷ one padded batch, answers included", ratio, 0.9, 0.85, at_most=True)],
        seconds,
    )


def both(
    host: str,
    organelles: int,
    rows_each: int,
    workplace: Path,
    *,
    asked: int,
    lengths: tuple[int, int] = (40, 56),
    new_tokens: int = NEW_TOKENS,
) -> tuple[Population, PeftPopulation]:
    """One population on either side."""
    folder = host_folder(host, workplace)
    population = Population(folder, organelles, rows_each, lengths, new_tokens=new_tokens)
    return population, PeftPopulation(population, workplace, asked)


def answers(
    population: Population, peft: PeftPopulation, turns: int, theirs: Sequence[Bounds], bare: Bounds
) -> Result:
    """Greedy answers; ``theirs``: PEFT one by one, batched, mixed ÷ ours; ``bare``: ours ÷ bare."""
    sides = {
        OURS: Side(population.ours),
        BARE: Side(population.bare),
        ONE_BY_ONE: Side(peft.one_by_one, peft.scale),
        BATCHED: Side(peft.batched, peft.scale),
        MIXED: Side(peft.mixed),
    }
    timing = timed(sides, turns)
    seconds = timing.seconds
    ratios = [
        Ratio(f"{name} ÷ ours", seconds[name] / seconds[OURS], *bounds)
        for name, bounds in zip((ONE_BY_ONE, BATCHED, MIXED), theirs, strict=True)
    ]
    ratios.append(
        Ratio("ours ÷ bare host, own loop", seconds[OURS] / seconds[BARE], *bare, at_most=True)
    )
    agreement = peft.agreement(timing.outputs[OURS], timing.outputs[ONE_BY_ONE])
    ratios.append(Ratio("share of answers equal to PEFT's, one by one", agreement, 0.999, 1.0))
    return Result("", ratios, seconds, scaled(peft))


def lessons(
    population: Population,
    peft: PeftPopulation,
    turns: int,
    *,
    bare: Bounds,
    sequential: Bounds = NONE,
) -> Result:
    """One learning step for everyone, optimiser and conversions included on both sides."""
    sides = {
        STEP: Side(population.learn),
        COMPILED_STEP: Side(population.bare_learn),
        BARE_STEP: Side(population.bare_learn_by_torch),
        PEFT_STEP: Side(peft.learn, peft.scale),
    }
    seconds = timed(sides, turns).seconds
    ratios = [
        Ratio(
            "our learning step ÷ bare forward and backward",
            seconds[STEP] / seconds[BARE_STEP],
            *bare,
            at_most=True,
        ),
        Ratio(
            "our learning step ÷ bare, in compiled passes", seconds[STEP] / seconds[COMPILED_STEP]
        ),
        Ratio("PEFT's learning steps ÷ ours", seconds[PEFT_STEP] / seconds[STEP], *sequential),
    ]
    return Result("", ratios, seconds, scaled(peft))


def exactness(population: Population, peft: PeftPopulation) -> Result:
    """How far from PEFT, on the first and the last adapter."""
    slots = (0, population.organelles - 1)

    def apart(read: Callable[[Population | PeftPopulation], Callable[[int], np.ndarray]]) -> float:
        return max(float(np.abs(read(population)(slot) - read(peft)(slot)).max()) for slot in slots)

    scores = apart(lambda side: side.log_probabilities)
    gradients = apart(lambda side: side.gradient)
    return Result(
        "",
        [
            Ratio(
                "largest difference of log-probabilities to PEFT's, nats",
                scores,
                5e-5,
                at_most=True,
            ),
            Ratio("largest difference of gradients to PEFT's", gradients, 1e-5, at_most=True),
        ],
    )


def visits(population: Population, peft: PeftPopulation, turns: int) -> Result:
    """One more adapter comes from a file and goes, beside all the others."""
    kernel, times = population.kernel, 20
    kernel.clear(0)

    def come_and_go() -> None:
        for _ in range(times):
            kernel.detach(kernel.attach(peft.folders[0]))

    ours, theirs = "our attach and detach", "PEFT's load_adapter and delete_adapter"
    seconds = timed(
        {ours: Side(come_and_go, 1 / times), theirs: Side(peft.load_and_delete)}, turns
    ).seconds
    kernel.place(0, population.adapters[0])
    return Result(
        "", [Ratio(f"{theirs} ÷ {ours}", seconds[theirs] / seconds[ours], 100, 200)], seconds
    )


def scaled(peft: PeftPopulation) -> list[str]:
    """What to know about PEFT's sequential sides."""
    if peft.scale == 1:
        return []
    return [
        f"PEFT's sequential sides: timed on {len(peft.asked)} of {peft.population.organelles} "
        "adapters, "
        "all of them loaded, and scaled"
    ]


def joined(title: str, *parts: Result) -> Result:
    """Parts of one case as one."""
    return Result(
        title,
        [ratio for part in parts for ratio in part.ratios],
        {name: value for part in parts for name, value in part.seconds.items()},
        list(dict.fromkeys(note for part in parts for note in part.notes)),
    )


CASES: dict[str, Callable[[Path, int], Result]] = {
    "embedded-16": embedded_16,
    "embedded-64": embedded_64,
    "embedded-64x1": embedded_64_single,
    "small-16": small_16,
    "0.6B": real,
    "transformers": transformers_path,
    "leaving": leaving,
    "padding": padding,
}


def main() -> int:
    """Command line."""
    options = arguments(__doc__ or "", CASES).parse_args()
    settle()
    console, results = Console(), {}
    for name, case in CASES.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as workplace:
                results[name] = case(Path(workplace), 2 if options.quick else 5)
            show(results[name], console)
            save(options.json, results, options.only)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

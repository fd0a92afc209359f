"""SmolLM2 as host: what prompts that begin alike cost, against PEFT, HF generate and no sharing.

    python benchmarks/real_host.py HOST [--quick] [--only CASE] [--json FILE]

HOST is the folder of SmolLM2-135M-Instruct. One process, one thread, sides in turn; a number is the
median of process time. Eight organelles answer six questions each of two families, with examples
before the question or in the chat template, eight new tokens. *Without sharing* is our kernel with
the sharing of beginnings switched off, as it was before: equal prompts alone are read once. *Kept*
is a second batch of organelles that have not learned since the first. PEFT and HF generate are run
on one row of each organelle (one by one: on one organelle) and scaled.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from populations import PeftPopulation, Population, generate
from sides import Ratio, Result, Side, all_hold, arguments, matmul_rate, save, settle, show, timed
from symbiont_ecology.host import packing
from symbiont_ecology.types import HOST_SLOT, Completions, Decoding, LearningBatch, Lesson, Request

ORGANELLES, ROWS_EACH, NEW_TOKENS, LESSONS = 8, 6, 8, 16
EXAMPLES = 9
WORDS = "quick brown foxes jump over lazy dogs near old rivers while green ducks watch tall grass"
ASKED = "Say nothing but the answer."


def question(family: int, draw: np.random.Generator) -> tuple[str, str]:
    """A question of one of two families, and its answer."""
    if family:
        words = draw.choice(WORDS.split(), size=6).tolist()
        return f"Which of these words is the longest: {' '.join(words)}?", max(words, key=len)
    left, right = draw.integers(10, 1000, size=2)
    return f"What is {left} plus {right}?", str(left + right)


def asked(population: Population, *, is_chat: bool) -> None:
    """Puts questions into a population in place of random letters, three of each family each."""
    draw = np.random.default_rng(0)
    shown = [
        "".join(
            f"Q: {q} {ASKED}\nA: {a}\n\n" for q, a in (question(f, draw) for _ in range(EXAMPLES))
        )
        for f in (0, 1)
    ]
    prompts = []
    for row in range(len(population.slots)):
        family = row % ROWS_EACH * 2 // ROWS_EACH
        text = f"{question(family, draw)[0]} {ASKED}"
        prompts.append(text if is_chat else f"{shown[family]}Q: {text}\nA:")
    population.prompts = prompts


@contextmanager
def without_sharing() -> Iterator[None]:
    """Only equal prompts are read once."""
    least = packing.LEAST_SHARED
    packing.LEAST_SHARED = 1 << 40
    try:
        yield
    finally:
        packing.LEAST_SHARED = least


class Asked(Population):
    """Organelles that are asked questions."""

    def __init__(self, folder: Path, *, is_chat: bool, dtype: str = "float32") -> None:
        super().__init__(
            folder, ORGANELLES, ROWS_EACH, new_tokens=NEW_TOKENS, is_chat=is_chat, dtype=dtype
        )
        asked(self, is_chat=is_chat)

    def fresh(self, slots: list[int] | None = None) -> Completions:
        """A batch for organelles of which nothing is kept."""
        for slot, weights in enumerate(self.adapters):
            self.kernel.place(slot, replace(weights))
        return self._rollout(slots or self.slots, ())

    def before(self) -> Completions:
        """The same without sharing."""
        with without_sharing():
            return self._rollout(self.slots, ())

    def lesson_step(self) -> None:
        """A step from the first lessons, which are of a few organelles."""
        rows = range(LESSONS)
        lessons = tuple(
            Lesson(self.prompts[row], (100, 200, 300, 400, 2), self.slots[row]) for row in rows
        )
        owners = {lesson.slot for lesson in lessons}
        weights = {slot: self.adapters[slot] for slot in owners}
        self.kernel.learn(LearningBatch(lessons, dict.fromkeys(owners, 1e-4)), weights, {})

    def lesson_step_before(self) -> None:
        """The same without sharing."""
        with without_sharing():
            self.lesson_step()


def case(folder: Path, turns: int, *, is_chat: bool) -> Result:
    """Rollouts and lessons, one kind of prompt."""
    ours, eight = Asked(folder, is_chat=is_chat), Asked(folder, is_chat=is_chat, dtype="int8")
    sides = {
        "ours": Side(ours.fresh),
        "ours, kept": Side(partial(ours._rollout, ours.slots, ())),
        "without sharing": Side(ours.before),
        "ours, one organelle": Side(partial(ours.fresh, [0] * len(ours.slots))),
        "bare, nothing kept": Side(partial(bare_rows, ours)),
        "int8": Side(eight.fresh),
        "lessons": Side(ours.lesson_step),
        "lessons without sharing": Side(ours.lesson_step_before),
        "lessons, int8": Side(eight.lesson_step),
    }
    with tempfile.TemporaryDirectory() as workplace:
        peft = PeftPopulation(ours, Path(workplace), 1)
        texts = ours.prompts
        if is_chat:
            texts = [ours.kernel._codec.chat(text) for text in texts]
        some = slice(0, None, ROWS_EACH)
        sides |= {
            "PEFT, one by one": Side(
                lambda: [peft._generate([text]) for text in texts[:3]], len(texts) / 3
            ),
            "PEFT, mixed batch": Side(
                lambda: peft._generate(
                    texts[some], adapter_names=[str(slot) for slot in ours.slots[some]]
                ),
                ROWS_EACH,
            ),
            "HF generate, bare": Side(partial(generate_bare, peft, texts[some]), ROWS_EACH),
        }
        timing = timed(sides, turns)
    spent, (low, high) = timing.seconds, (1.8, 1.8) if is_chat else (2.5, 2.5)
    ratios = [
        Ratio(
            "without sharing ÷ ours, rollouts", spent["without sharing"] / spent["ours"], low, high
        ),
        Ratio("the same, kept", spent["without sharing"] / spent["ours, kept"], low, high),
        Ratio(
            "without sharing ÷ ours, lessons",
            spent["lessons without sharing"] / spent["lessons"],
            1.5,
        ),
        Ratio("float32 ÷ int8, rollouts", spent["ours"] / spent["int8"], 1.5),
        Ratio("float32 ÷ int8, lessons", spent["lessons"] / spent["lessons, int8"]),
        Ratio(
            "8 organelles ÷ 8 bare hosts on the same rows",
            spent["ours"] / spent["bare, nothing kept"],
            1.1,
            at_most=True,
        ),
        *(
            Ratio(f"{name} ÷ ours", spent[name] / spent["ours"])
            for name in ("PEFT, one by one", "PEFT, mixed batch", "HF generate, bare")
        ),
        *differences(ours, eight),
    ]
    lengths = [len(ids) for ids in ours.kernel.encode(ours.prompts)]
    read = timing.outputs["ours"].read
    span = f"{min(lengths)} to {max(lengths)} tokens"
    note = f"prompts of {span}, {sum(lengths)} in all, {read.sum()} read"
    title = f"SmolLM2, {'chat' if is_chat else 'few-shot'} prompts, 8 organelles × 6 rows"
    return Result(title, ratios, spent, [note], {"GFLOP/s": matmul_rate() / 1e9})


def bare_rows(ours: Asked) -> Completions:
    """The same rows and the same reading without adapters: every slot is empty."""
    for slot in range(ORGANELLES):
        ours.kernel.clear(slot)
    ours.kernel._decoder._preambles = type(ours.kernel._decoder._preambles)()
    return ours._rollout(ours.slots, ())


def generate_bare(peft: PeftPopulation, texts: list[str]) -> object:
    """Hugging Face's own loop, without adapters."""
    with peft.model.disable_adapter():
        batch = peft.tokenizer(texts, return_tensors="pt", padding=True)
        return generate(peft.model, peft.tokenizer, batch, NEW_TOKENS)


def differences(ours: Asked, eight: Asked) -> list[Ratio]:
    """What int8 says otherwise, on answers of the bare host."""
    rows = [Request(text, HOST_SLOT, 12) for text in ours.prompts[::2]]
    said = ours.kernel.rollout(rows, None, Decoding(min_new_tokens=12))
    also = eight.kernel.rollout(rows, None, Decoding(min_new_tokens=12))
    answers, prompts = [one.token_ids for one in said], [row.prompt for row in rows]
    one, other = (
        torch.cat(side.kernel.score(prompts, answers, HOST_SLOT)) for side in (ours, eight)
    )
    same = np.cumprod(said.ids == also.ids, axis=1).mean()
    return [
        Ratio(
            "int8: mean difference of log-probabilities, nats", float((one - other).abs().mean())
        ),
        Ratio("int8: share of greedy tokens as before", float(same)),
    ]


def memory(folder: Path) -> Result:
    """Peak resident memory of a process that answers and learns from a batch of chat lessons."""
    numbers = {}
    for dtype in ("float32", "int8"):
        code = f"import real_host; real_host.learn_once({str(folder)!r}, {dtype!r})"
        told = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        )
        numbers[dtype] = float(told.stdout.split()[-1])
    ratios = [
        Ratio(f"peak memory, {dtype}, GB", value, 2.2, at_most=True)
        for dtype, value in numbers.items()
    ]
    return Result(f"memory while learning from {LESSONS} chat lessons", ratios)


def learn_once(folder: str, dtype: str) -> None:
    """Learns, and prints the peak of this process's memory in GB."""
    settle()
    ours = Asked(Path(folder), is_chat=True, dtype=dtype)
    ours.fresh()
    for _ in range(2):
        ours.lesson_step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


CASES = {
    "few-shot": partial(case, is_chat=False),
    "chat": partial(case, is_chat=True),
    "memory": lambda folder, turns: memory(folder),
}


def main() -> int:
    """Runs the cases; 1 when a floor does not hold."""
    parser = arguments(__doc__ or "", CASES)
    parser.add_argument("host", type=Path, help="the folder of SmolLM2-135M-Instruct")
    given = parser.parse_args()
    settle()
    console, results = Console(), {}
    for name, run in CASES.items():
        if given.only in (None, name):
            results[name] = run(given.host.absolute(), 1 if given.quick else 3)
            show(results[name], console)
            save(given.json, results, given.only)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

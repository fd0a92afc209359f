"""SmolLM2 as host: what prompts that begin alike cost, against PEFT, HF generate and no sharing.

    python benchmarks/real_host.py [HOST] [--quick] [--only CASE] [--json FILE]

HOST is SmolLM2-135M-Instruct, ``smollm2`` unless it is given. One process, one thread, sides in
turn; a number is the median of process time. Prompts are those of the package, of six families in
the styles of a run, and eight new tokens are written to each. *Eight organelles* answer three
questions of two families each; *one organelle* answers twelve questions of all six, four samples of
each. They learn from the first sixteen rows.

*Ours* has nothing kept, as organelles that have just learned; *kept* is a second batch of
organelles that have not learned since. *Without sharing* is our kernel with the sharing of
beginnings switched off, as it was before: equal prompts alone are read once. *Bare* are organelles
without an adapter, which read as much. PEFT and HF generate are run on one row of each organelle
(one by one: on three rows) and scaled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console

from populations import PeftPopulation, Population, generate
from sides import Ratio, Result, Side, all_hold, arguments, matmul_rate, save, settle, show, timed
from symbiont_ecology.errors import HostError
from symbiont_ecology.host import packing
from symbiont_ecology.host.locating import find_folder
from symbiont_ecology.process import memory_mb
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.styles import FewShot, Natural, PromptStyle
from symbiont_ecology.types import HOST_SLOT, Completions, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights.adapter import AdapterWeights

ORGANELLES, ROWS, NEW_TOKENS, LESSONS = 8, 48, 8, 16
FAMILIES = ("code.format", "math.max", "math.add", "json.repair", "word.count", "text.concise")
STYLES: dict[str, PromptStyle] = {
    "chat": Natural(is_chat=True),
    "few-shot": FewShot(examples=4),
    "few-shot chat": FewShot(examples=4, is_chat=True),
}
COMPARED = ("chat", "few-shot")
"""Styles in which PEFT and HF generate are timed as well."""


def questions(style: PromptStyle, families: list[str], count: int, name: int) -> list[str]:
    """Prompts, ``count`` of each family, its depths by turns."""
    prompts = []
    for family in families:
        make: Any = tasks[family]
        task, draw = make(style=style), Draw(0)("questions", name, family)
        for number in range(count):
            depths = task.trained_depths or task.depths
            depth = depths[number % len(depths)]
            prompts.append(task.prompt(task.valid_question(depth, draw)))
    return prompts


def asked(style: PromptStyle, organelles: int) -> list[str]:
    """The prompts of all rows, organelle after organelle."""
    if organelles == 1:
        return [prompt for prompt in questions(style, list(FAMILIES), 2, 0) for _ in range(4)]
    prompts = []
    for organelle in range(organelles):
        families = [FAMILIES[(organelle + step) % len(FAMILIES)] for step in range(2)]
        prompts += questions(style, families, ROWS // organelles // 2, organelle)
    return prompts


@contextmanager
def without_sharing() -> Iterator[None]:
    """Only equal prompts are read once."""
    with patch.object(packing, "LEAST_SHARED_IF_WIDE", 1 << 40):
        yield


class Asked(Population):
    """Organelles that are asked questions."""

    def __init__(
        self, folder: Path, style: PromptStyle, organelles: int, dtype: str = "float32"
    ) -> None:
        rows_each = ROWS // organelles
        options: dict[str, Any] = {"is_chat": style.is_chat, "dtype": dtype}
        super().__init__(folder, organelles, rows_each, new_tokens=NEW_TOKENS, **options)
        self.prompts = asked(style, organelles)

    def fresh(self) -> Completions:
        """A batch for organelles of which nothing is kept."""
        for slot, weights in enumerate(self.adapters):
            self.kernel.place(slot, replace(weights))
        return self.ours()

    def empty(self) -> Completions:
        """The same for organelles whose adapters are empty: they read each beginning for
        themselves."""
        for slot in range(self.organelles):
            no_adapter = AdapterWeights(self.kernel.layout, 0, 1.0, np.zeros(0, dtype=np.float32))
            self.kernel.place(slot, no_adapter)
        return self.ours()

    def before(self) -> Completions:
        """The same without sharing."""
        with without_sharing():
            return self.ours()

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


def case(folder: Path, turns: int, *, name: str, organelles: int) -> Result:
    """Rollouts and lessons, one kind of prompt."""
    style = STYLES[name]
    ours, eight = Asked(folder, style, organelles), Asked(folder, style, organelles, "int8")
    sides = {
        "ours": Side(ours.fresh),
        "ours, kept": Side(ours.ours),
        "without sharing": Side(ours.before),
        "int8": Side(eight.fresh),
        "bare": Side(ours.empty),
        "lessons": Side(ours.lesson_step),
        "lessons without sharing": Side(ours.lesson_step_before),
        "lessons, int8": Side(eight.lesson_step),
    }
    is_compared = name in COMPARED and organelles > 1
    with tempfile.TemporaryDirectory() as workplace:
        if is_compared:
            sides |= others(ours, Path(workplace), style)
        timing = timed(sides, turns)
    spent, goal = timing.seconds, 1.8 if name == "chat" else 2.5
    before, lessons = spent["without sharing"], spent["lessons"]
    ratios = [
        Ratio("without sharing ÷ ours, rollouts", before / spent["ours"], None, goal),
        Ratio("without sharing ÷ ours, kept", before / spent["ours, kept"], None, goal),
        Ratio(
            "without sharing ÷ ours, lessons", spent["lessons without sharing"] / lessons, None, 1.5
        ),
        Ratio("float32 ÷ int8, rollouts", spent["ours"] / spent["int8"], None, 1.5),
        Ratio("float32 ÷ int8, lessons", lessons / spent["lessons, int8"]),
        Ratio("ours ÷ bare on the same rows", spent["ours"] / spent["bare"], None, 1.1, True),
        *(
            Ratio(f"{peer} ÷ ours", spent[peer] / spent["ours"])
            for peer in ("PEFT, one by one", "PEFT, mixed batch", "HF generate, bare")
            if is_compared
        ),
        *(differences(ours, eight) if is_compared else ()),
    ]
    lengths = [len(ids) for ids in ours.kernel.encode(ours.prompts)]
    read, alone = timing.outputs["ours"].read.sum(), timing.outputs["without sharing"].read.sum()
    span = f"{min(lengths)} to {max(lengths)} tokens"
    note = f"prompts of {span}, {sum(lengths)} in all, {read} read, {alone} without sharing"
    label = "one organelle" if organelles == 1 else f"{organelles} organelles"
    title = f"{name} prompts, {label} × {ROWS // organelles} rows"
    return Result(title, ratios, spent, [note])


def others(ours: Asked, workplace: Path, style: PromptStyle) -> dict[str, Side]:
    """PEFT and Hugging Face's own loop on some of the rows."""
    peft, texts = PeftPopulation(ours, workplace, 1), ours.prompts
    texts = ours.kernel._codec.texts(texts, is_chat=style.is_chat)
    each = ROWS // ours.organelles
    sample, names = texts[::each], [str(slot) for slot in ours.slots[::each]]
    return {
        "PEFT, one by one": Side(
            lambda: [peft._generate([text]) for text in texts[:3]], len(texts) / 3
        ),
        "PEFT, mixed batch": Side(lambda: peft._generate(sample, adapter_names=names), each),
        "HF generate, bare": Side(partial(generate_bare, peft, sample), each),
    }


def generate_bare(peft: PeftPopulation, texts: list[str]) -> object:
    """Hugging Face's own loop, without adapters."""
    with peft.model.disable_adapter():
        batch = peft.tokenizer(texts, return_tensors="pt", padding=True)
        return generate(peft.model, peft.tokenizer, batch, NEW_TOKENS)


def differences(ours: Asked, eight: Asked) -> list[Ratio]:
    """What int8 says otherwise, on answers of the bare host."""
    rows = [Request(text, HOST_SLOT, 12) for text in ours.prompts[::2]]
    exact_replies = ours.kernel.rollout(rows, None, Decoding(min_new_tokens=12))
    int8_replies = eight.kernel.rollout(rows, None, Decoding(min_new_tokens=12))
    answers, prompts = (
        [exact_replies[row].token_ids for row in range(len(rows))],
        [row.prompt for row in rows],
    )
    exact, int8 = (
        torch.cat(side.kernel.score(prompts, answers, HOST_SLOT)) for side in (ours, eight)
    )
    agreement = np.cumprod(exact_replies.ids == int8_replies.ids, axis=1).mean()
    return [
        Ratio(
            "int8: mean difference of log-probabilities, nats", float((exact - int8).abs().mean())
        ),
        Ratio("int8: share of greedy tokens as before", float(agreement)),
    ]


def memory(folder: Path) -> Result:
    """Peak resident memory of a process that answers and learns from a batch of chat lessons."""
    numbers = {}
    for dtype in ("float32", "int8"):
        code = f"import real_host; real_host.learn_once({str(folder)!r}, {dtype!r})"
        process = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        )
        numbers[dtype] = float(process.stdout.split()[-1])
    ratios = [
        Ratio(f"peak memory, {dtype}, GB", value, 2.3, 2.2, at_most=True)
        for dtype, value in numbers.items()
    ]
    return Result(f"memory while learning from {LESSONS} chat lessons", ratios)


def learn_once(folder: str, dtype: str) -> None:
    """Learns, and prints the peak of this process's memory in GB."""
    settle()
    ours = Asked(Path(folder), STYLES["chat"], ORGANELLES, dtype)
    ours.fresh()
    for _ in range(2):
        ours.lesson_step()
    print(memory_mb() * 2**20 / 1e9)


CASES = {
    f"{name}{suffix}": partial(case, name=name, organelles=organelles)
    for name in STYLES
    for suffix, organelles in (("", ORGANELLES), (", one", 1))
} | {"memory": lambda folder, turns: memory(folder)}


def main() -> int:
    """Runs the cases; 1 when a floor does not hold."""
    parser = arguments(__doc__ or "", CASES)
    parser.add_argument("host", nargs="?", default="smollm2", help="SmolLM2-135M-Instruct")
    options = parser.parse_args()
    settle()
    console, results = Console(), {}
    try:
        folder = find_folder(options.host)
    except HostError as error:
        print(f"nothing measured: {error}")
        return 0
    for name, run in CASES.items():
        if options.only in (None, name):
            results[name] = run(folder, 1 if options.quick else 3)
            show(results[name], console)
            save(options.json, results, options.only, gflops=matmul_rate() / 1e9)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

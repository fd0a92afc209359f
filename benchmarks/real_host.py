"""SmolLM2 as host: what prompts that begin alike cost, against PEFT, HF generate and no sharing.

    python benchmarks/real_host.py [HOST] [--quick] [--only CASE…] [--json FILE]

HOST is SmolLM2-135M-Instruct, ``smollm2`` unless it is given. One process, one thread, sides in
turn; a number is the median of process time. Prompts are those of the package, of six families in
the styles of a run, and eight new tokens are written to each. *Eight organelles* answer three
questions of two families each; *one organelle* answers twelve questions of all six, four samples of
each. They learn from the first sixteen rows.

*Ours* has nothing kept, as organelles that have just learned; *kept* is a second batch of
organelles that have not learned since. *Without sharing* is our kernel with the sharing of
beginnings switched off: equal prompts alone are read once. *Bare* are organelles without an
adapter, which read as much. PEFT and HF generate are run on one row of each organelle (one by one:
on three rows) and scaled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from populations import PeftPopulation, Population, generate
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.process import memory_mb
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Lesson,
    Request,
    without_turns,
)
from symbiont_ecology.model import packing
from symbiont_ecology.model.locating import find_folder
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.styles import FewShot, Natural, PromptStyle
from timing import Ratio, Result, Side, arguments, matmul_rate, measured, settle, timed, write_page

FILE = Path(__file__).parents[1] / "docs" / "results" / "real_host.json"
ORGANELLES, ROWS, NEW_TOKENS, LESSONS = 8, 48, 8, 16
FAMILIES = ("code.format", "math.max", "math.add", "json.repair", "word.count", "text.concise")
STYLES: dict[str, PromptStyle] = {
    "chat": Natural(is_chat=True),
    "few-shot": FewShot(examples=4),
    "few-shot chat": FewShot(examples=4, is_chat=True),
}
COMPARED = ("chat", "few-shot")
"""Styles in which PEFT and HF generate are timed as well."""
GOALS = {"chat": 1.8, "few-shot": 2.5, "few-shot chat": 2.5}
MAX_GB = 2.3


def questions(style: PromptStyle, families: list[str], count: int, name: int) -> list[str]:
    """Return prompts, ``count`` of each family, its depths by turns."""
    prompts = []
    for family in families:
        make: Any = tasks[family]
        task = make(style=style)
        draw = Draw(0)("questions", name, family)
        depths = task.trained_depths or task.depths
        for number in range(count):
            prompts.append(task.prompt(task.valid_question(depths[number % len(depths)], draw)))
    return prompts


class Asked(Population):
    """Organelles that are asked questions."""

    def __init__(
        self, folder: Path, style: PromptStyle, organelles: int, dtype: str = "float32"
    ) -> None:
        rows_each = ROWS // organelles
        options: dict[str, Any] = {"is_chat": style.is_chat, "dtype": dtype}
        super().__init__(folder, organelles, rows_each, new_tokens=NEW_TOKENS, **options)
        if organelles == 1:
            prompts = questions(style, list(FAMILIES), 2, 0)
            self.prompts = [prompt for prompt in prompts for _ in range(4)]
        else:
            self.prompts = [
                prompt
                for slot in range(organelles)
                for prompt in questions(
                    style, [FAMILIES[(slot + k) % 6] for k in (0, 1)], rows_each // 2, slot
                )
            ]

    def fresh(self) -> Completions:
        """Answer a batch for organelles of which nothing is kept."""
        for slot, weights in enumerate(self.adapters):
            self.kernel.place(slot, replace(weights))
        return self.ours()

    def empty(self) -> Completions:
        """Answer the same with empty adapters: each organelle reads every beginning for itself."""
        for slot in range(self.organelles):
            no_adapter = AdapterWeights(self.kernel.layout, 0, 1.0, np.zeros(0, dtype=np.float32))
            self.kernel.place(slot, no_adapter)
        return self.ours()

    def lesson_step(self) -> None:
        """Take a step from the first lessons, which are of a few organelles."""
        lessons = tuple(
            Lesson(self.prompts[row], (100, 200, 300, 400, 2), self.slots[row])
            for row in range(LESSONS)
        )
        owners = {lesson.slot for lesson in lessons}
        weights = {slot: self.adapters[slot] for slot in owners}
        self.kernel.learn(LearningBatch(lessons, dict.fromkeys(owners, 1e-4)), weights, {})


def without_sharing(run: Callable[[], Any]) -> Callable[[], Any]:
    """Return a side in which only equal prompts are read once."""

    def side() -> Any:
        with patch.object(packing, "MIN_SHARED_IF_LARGE", 1 << 40):
            return run()

    return side


def case(folder: Path, turns: int, *, name: str, organelles: int) -> Result:
    """Time rollouts and lessons of one kind of prompt."""
    style = STYLES[name]
    ours = Asked(folder, style, organelles)
    int8 = Asked(folder, style, organelles, "int8")
    sides = {
        "ours": Side(ours.fresh),
        "ours, kept": Side(ours.ours),
        "without sharing": Side(without_sharing(ours.ours)),
        "int8": Side(int8.fresh),
        "bare": Side(ours.empty),
        "lessons": Side(ours.lesson_step),
        "lessons without sharing": Side(without_sharing(ours.lesson_step)),
        "lessons, int8": Side(int8.lesson_step),
    }
    peers: dict[str, Side] = {}
    with tempfile.TemporaryDirectory() as workplace:
        if name in COMPARED and organelles > 1:
            peers = others(ours, Path(workplace), style)
        timing = timed(sides | peers, turns)
    spent = timing.seconds
    goal = GOALS[name]
    before = spent["without sharing"]
    lessons = spent["lessons"]
    shared_lessons = spent["lessons without sharing"] / lessons
    ratios = [
        Ratio("without sharing ÷ ours, rollouts", before / spent["ours"], None, goal),
        Ratio("without sharing ÷ ours, kept", before / spent["ours, kept"], None, goal),
        Ratio("without sharing ÷ ours, lessons", shared_lessons, None, 1.5),
        Ratio("float32 ÷ int8, rollouts", spent["ours"] / spent["int8"], None, 1.5),
        Ratio("float32 ÷ int8, lessons", lessons / spent["lessons, int8"]),
        Ratio("ours ÷ bare on the same rows", spent["ours"] / spent["bare"], None, 1.1, True),
        *(Ratio(f"{peer} ÷ ours", spent[peer] / spent["ours"]) for peer in peers),
        *(differences(ours, int8) if peers else ()),
    ]
    lengths = [len(ids) for ids in ours.kernel.encode(ours.prompts)]
    read, alone = (int(timing.outputs[side].read.sum()) for side in ("ours", "without sharing"))
    numbers: dict[str, float] = {"prompt tokens": sum(lengths), "read": read, "alone": alone}
    label = "one organelle" if organelles == 1 else f"{organelles} organelles"
    title = f"{name} prompts, {label} × {ROWS // organelles} rows"
    return Result(title, ratios, spent, numbers)


def others(ours: Asked, workplace: Path, style: PromptStyle) -> dict[str, Side]:
    """Return PEFT and Hugging Face's own loop on some of the rows."""
    peft = PeftPopulation(ours, workplace, 1)
    texts = list(map(ours.kernel.codec.chat if style.is_chat else without_turns, ours.prompts))
    each = ROWS // ours.organelles
    sample = texts[::each]
    names = [str(slot) for slot in ours.slots[::each]]

    def bare() -> object:
        with peft.model.disable_adapter():
            batch = peft.tokenizer(sample, return_tensors="pt", padding=True)
            return generate(peft.model, peft.tokenizer, batch, NEW_TOKENS)

    return {
        "PEFT, one by one": Side(
            lambda: [peft._generate([text]) for text in texts[:3]], len(texts) / 3
        ),
        "PEFT, mixed batch": Side(lambda: peft._generate(sample, adapter_names=names), each),
        "HF generate, bare": Side(bare, each),
    }


def differences(ours: Asked, int8: Asked) -> list[Ratio]:
    """Return how far int8 is from float32, on answers of the bare host."""
    rows = [Request(text, HOST_SLOT, 12) for text in ours.prompts[::2]]
    replies, other = (
        side.kernel.rollout(rows, None, Decoding(min_new_tokens=12)) for side in (ours, int8)
    )
    prompts = [row.prompt for row in rows]
    answers = [replies[number].token_ids for number in range(len(rows))]
    scores = [torch.cat(side.kernel.score(prompts, answers, HOST_SLOT)) for side in (ours, int8)]
    apart = float((scores[0] - scores[1]).abs().mean())
    agreement = float(np.cumprod(replies.ids == other.ids, axis=1).mean())
    return [
        Ratio("int8: mean difference of log-probabilities, nats", apart),
        Ratio("int8: share of greedy tokens as before", agreement),
    ]


def memory(folder: Path, turns: int) -> Result:
    """Measure the peak memory of a process that answers and learns from a batch of chat lessons."""
    ratios = []
    for dtype in ("float32", "int8"):
        code = f"import real_host; real_host.print_memory({str(folder)!r}, {dtype!r})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        gigabytes = json.loads(done.stdout.splitlines()[-1])
        ratios.append(Ratio(f"peak memory, {dtype}, GB", gigabytes, MAX_GB, 2.2, at_most=True))
    return Result(f"memory while learning from {LESSONS} chat lessons", ratios)


def print_memory(folder: str, dtype: str) -> None:
    """Learn, and print the peak of this process's memory in GB."""
    settle()
    ours = Asked(Path(folder), STYLES["chat"], ORGANELLES, dtype)
    ours.fresh()
    for _ in range(2):
        ours.lesson_step()
    print(memory_mb() * 2**20 / 1e9)


CASES: dict[str, Callable[[Path, int], Result]] = {
    **{
        f"{name}{suffix}": partial(case, name=name, organelles=organelles)
        for name in STYLES
        for suffix, organelles in (("", ORGANELLES), (", one", 1))
    },
    "memory": memory,
}


def main() -> int:
    """Run cases, and write the page; 1 when a floor does not hold."""
    parser = arguments(__doc__ or "", list(CASES), FILE)
    parser.add_argument("host", nargs="?", default="smollm2", help="SmolLM2-135M-Instruct")
    options = parser.parse_args()
    try:
        folder = find_folder(options.host)
    except HostError as error:
        print(f"nothing measured: {error}")
        return 0
    turns = 1 if options.quick else 3
    cases = {name: partial(CASES[name], folder, turns) for name in options.only}
    held = measured(cases, options.json, gflops=matmul_rate() / 1e9)
    if options.json == FILE:
        write_page(FILE)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How much faster a population runs on stacked slots than one adapter at a time.

    python benchmarks/kernel.py [--quick] [--json FILE]

Everything runs in one process, on one thread, interleaved; a number is the median of process time, a ratio
divides two of them, so machines cancel out. All sides start from text and end with text. The allocator
setting of ``host.allocator`` holds for every side. Needs the extra ``peers`` (PEFT).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.loading import EMBEDDED_FOLDER
from symbiont_ecology.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Row
from symbiont_ecology.weights.adapter import AdapterWeights, Memory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hosts import make_host

ONE_BY_ONE = "PEFT, one by one"
BARE = "bare host, own loop"
FLOOR = 15.0
"""PEFT one by one ÷ ours must be at least this; 25 is the goal."""
CEILING = 1.4
"""Ours ÷ the bare host's own loop must be at most this; 1.2 is the goal."""
NEW_TOKENS = 16
RANK = 8


class Population:
    """The same adapters on our kernel and on PEFT, and the same prompts for both."""

    def __init__(self, organelles: int, prompts_each: int, folder: Path, workplace: Path) -> None:
        self.organelles, self.prompts_each = organelles, prompts_each
        self.kernel = HostKernel.from_pretrained(folder, slots=organelles, rank=RANK)
        generator = np.random.default_rng(0)
        self.adapters = [
            AdapterWeights.random(self.kernel.layout, RANK, 2.0, generator, b_std=0.05)
            for _ in range(organelles)
        ]
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        for slot, weights in enumerate(self.adapters):
            self.kernel.place(slot, weights)
            self.kernel.export(slot, workplace / str(slot))
            if slot == 0:
                self.peft: Any = PeftModel.from_pretrained(model, workplace / "0", adapter_name="0")
            else:
                self.peft.load_adapter(workplace / str(slot), adapter_name=str(slot))
        self.peft.eval()
        letters = "abcdefghijklmnopqrstuvwxyz 0123456789"
        self.prompts = [
            "".join(generator.choice(list(letters), size=int(generator.integers(39, 56))))
            for _ in range(organelles * prompts_each)
        ]
        self.slots = [row // prompts_each for row in range(len(self.prompts))]

    def ours(self) -> list[str]:
        """All slots in one batch."""
        return self._rollout(self.slots)

    def bare(self) -> list[str]:
        """The same rows and the same loop without any adapter."""
        return self._rollout([HOST_SLOT] * len(self.slots))

    def peft_one_by_one(self) -> list[str]:
        """Every prompt alone, under its adapter."""
        texts: list[str] = []
        for slot in range(self.organelles):
            self.peft.set_adapter(str(slot))
            for prompt in self._prompts_of(slot):
                texts += self._generate([prompt])
        return texts

    def peft_batched(self) -> list[str]:
        """Each adapter's prompts as one batch, adapter after adapter."""
        texts: list[str] = []
        for slot in range(self.organelles):
            self.peft.set_adapter(str(slot))
            texts += self._generate(self._prompts_of(slot))
        return texts

    def peft_mixed(self) -> list[str]:
        """One batch of all rows with PEFT's ``adapter_names``."""
        return self._generate(self.prompts, adapter_names=[str(slot) for slot in self.slots])

    def learn(self) -> None:
        """One Adam step for every organelle on its own prompts."""
        kernel = self.kernel
        lessons = tuple(
            Lesson(prompt[:8], tuple(self.tokenizer(prompt[8:], add_special_tokens=False)["input_ids"]), slot)
            for prompt, slot in zip(self.prompts, self.slots, strict=True)
        )
        batch = LearningBatch(lessons, dict.fromkeys(range(self.organelles), 1e-3))
        kernel.learn(batch, dict(enumerate(self.adapters)), dict.fromkeys(range(self.organelles), Memory()))

    def peft_learn(self) -> None:
        """The same step, adapter after adapter, with PEFT and torch's AdamW."""
        for slot in range(self.organelles):
            self.peft.set_adapter(str(slot))
            batch = self.tokenizer(
                self._prompts_of(slot), return_tensors="pt", padding=True, padding_side="right"
            )
            labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
            labels[:, :9] = -100
            parameters = [one for one in self.peft.parameters() if one.requires_grad]
            for one in parameters:
                one.grad = None
            self.peft(**batch, labels=labels, use_cache=False).loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0).step()

    def _prompts_of(self, slot: int) -> list[str]:
        return self.prompts[slot * self.prompts_each : (slot + 1) * self.prompts_each]

    def _rollout(self, slots: list[int]) -> list[str]:
        rows = [Row(prompt, slot, NEW_TOKENS) for prompt, slot in zip(self.prompts, slots, strict=True)]
        return list(self.kernel.rollout(rows, None, Decoding(min_new_tokens=NEW_TOKENS)).texts)

    def _generate(self, prompts: list[str], **extra: Any) -> list[str]:
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            ids = self.peft.generate(
                **batch,
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id,
                **extra,
            )
        return list(
            self.tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        )


def medians(sides: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Median process time of each side in seconds, all of them taking turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repetitions + 1):  # the first turn only warms up
        for name, side in sides.items():
            start = time.process_time()
            side()
            if turn:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(folder: Path, organelles: int, prompts_each: int, repetitions: int) -> dict[str, Any]:
    """Times of all sides (seconds), their ratios, and the share of texts on which PEFT and we agree."""
    with tempfile.TemporaryDirectory() as workplace:
        population = Population(organelles, prompts_each, folder, Path(workplace))
    ours_text, peft_text = population.ours(), population.peft_one_by_one()
    sides: dict[str, Callable[[], object]] = {
        "stacked slots (ours)": population.ours,
        BARE: population.bare,
        ONE_BY_ONE: population.peft_one_by_one,
        "PEFT, own prompts batched": population.peft_batched,
        "PEFT, mixed batch": population.peft_mixed,
        "one learning step (ours)": population.learn,
        "one learning step (PEFT, one by one)": population.peft_learn,
    }
    seconds = medians(sides, repetitions)
    ours, learning = seconds["stacked slots (ours)"], seconds["one learning step (ours)"]
    return {
        "host": "embedded" if folder == EMBEDDED_FOLDER else "random, of the embedded host's shape",
        "organelles": organelles,
        "prompts_each": prompts_each,
        "texts_equal": sum(a == b for a, b in zip(ours_text, peft_text, strict=True)) / len(ours_text),
        "seconds": seconds,
        "times_faster": {
            name: value / (learning if "learning" in name else ours) for name, value in seconds.items()
        },
        "ours_over_bare": ours / seconds[BARE],
    }


def report(result: dict[str, Any], console: Console) -> bool:
    """Prints the table; whether the floor and the ceiling hold."""
    table = Table(
        title=f"{result['organelles']} organelles, {result['prompts_each']} prompts each, one thread"
    )
    for name in ("side", "ms", "÷ ours"):
        table.add_column(name, justify="left" if name == "side" else "right", no_wrap=True)
    for name, value in result["seconds"].items():
        table.add_row(name, f"{value * 1e3:.1f}", f"{result['times_faster'][name]:.2f}")
    console.print(table)
    faster, over = result["times_faster"][ONE_BY_ONE], result["ours_over_bare"]
    console.print(f"PEFT one by one ÷ ours: {faster:.1f} (floor {FLOOR})")
    console.print(f"ours ÷ bare host's own loop: {over:.2f} (ceiling {CEILING})")
    console.print(f"texts equal to PEFT's: {result['texts_equal']:.1%}; host: {result['host']}")
    return bool(faster >= FLOOR and over <= CEILING)


def main() -> int:
    """Command line; leaves with 1 when a floor or a ceiling does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--organelles", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=4, help="prompts per organelle")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as workplace:
        folder = EMBEDDED_FOLDER if EMBEDDED_FOLDER.is_dir() else make_host(Path(workplace), layers=5)
        result = measure(folder, arguments.organelles, arguments.prompts, 3 if arguments.quick else 9)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if report(result, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())

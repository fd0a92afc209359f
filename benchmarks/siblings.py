"""What the sibling methods cost: a population of noise in one call, trainings side by side.

    python benchmarks/siblings.py [--quick] [--only CASE] [--json FILE]

A generation of evolution strategies is timed as the engine lives it: noise, questions, rewards,
the step and the log. Its peer does the same with one PEFT adapter, member after member: all
questions of a member in one batch, or one by one. Members of the peer are timed in part and scaled.
The centre stays where it is, so that all generations are alike. Memory is the most that a process
of its own takes. Trainings are those of ``loralab``. Leaves with 1 when a floor does not hold.
Needs the extra ``peers`` (PEFT).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from sides import Ratio, Result, Side, all_hold, arguments, save, settle, show, timed
from symbiont_ecology import Run
from symbiont_ecology.config import load_config
from symbiont_ecology.ecology import DROPOUT
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.extensions.methods.hyper import MODULES
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.locating import EMBEDDED_FOLDER
from symbiont_ecology.process import memory_mb
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks import judge
from symbiont_ecology.types import Item, LearningBatch, Lesson
from symbiont_ecology.weights.adapter import AdapterWeights, OptimizerState
from symbiont_ecology.weights.blobs import BlobStore

STILL = ("strategy.step=1e-9", "strategy.looks=0")
"""Changes of a preset that keep its centre at the host, and ask the members alone."""
OURS, BATCHED, ONE_BY_ONE, ALONE = (
    "a generation",
    "PEFT, member after member, questions batched",
    "PEFT, member after member, question by question",
    "our kernel, member after member",
)
ASKED = 4
"""Members that the peer is timed on."""
SMALL, LARGE = 10, 1000
"""Populations whose memory is compared."""


def few_questions(workplace: Path, turns: int) -> Result:
    """Two questions for each of thirty members, as published."""
    return generation("faithful/es-conciseness", workplace, turns, (None, None))


def many_questions(workplace: Path, turns: int) -> Result:
    """Sixteen questions for each of 32 members."""
    return generation("es-countdown", workplace, turns, (None, 20))


def generation(
    preset: str, workplace: Path, turns: int, floors: tuple[float | None, float | None]
) -> Result:
    """One generation of a preset against one adapter at a time; floors: batched, question by
    question."""
    peer = Peer(preset, workplace / "peer")
    generations = lives(preset, workplace / "ours")
    alone = lives(preset, workplace / "alone", "host.slots=1")
    scale = peer.population / len(peer.members)
    sides = {
        OURS: Side(lambda: next(generations)),
        ALONE: Side(lambda: next(alone)),
        BATCHED: Side(peer.batched, scale),
        ONE_BY_ONE: Side(peer.one_by_one, scale),
    }
    seconds = timed(sides, turns).seconds
    shape = f"{peer.population} members × {len(peer.items)} questions"
    return Result(
        f"evolution strategies, embedded host, {preset}: {shape}",
        [
            Ratio(f"{name} ÷ {OURS}", seconds[name] / seconds[OURS], floor)
            for name, floor in zip((BATCHED, ONE_BY_ONE, ALONE), (*floors, None), strict=True)
        ],
        seconds,
    )


def lives(preset: str, folder: Path, *changes: str) -> Iterator[object]:
    """Generations of a run without end."""
    stays = (*STILL, "run.generations=100000", "run.checkpoint_every=1000", *changes)
    return iter(Run.start(preset, *stays, folder=folder))


class Peer:
    """Evolution strategies with one PEFT adapter, whose B is overwritten for every member."""

    def __init__(self, preset: str, folder: Path) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        config = load_config(preset, [*STILL, "host.slots=1"])
        strategy: Any = config.strategy
        self.population, self.noise = strategy["population"], strategy["noise"]
        self.members = range(ASKED)
        tasks, kernel = mixture(config), HostKernel.from_pretrained("embedded", slots=1)
        (cell,) = tasks.cells
        self.items = tasks.draw(cell, strategy["questions"], Draw(0)("peer"))
        centre = AdapterWeights.random(
            kernel.layout, config.host.rank, 1.0, np.random.default_rng(0), b_std=0.0
        )
        kernel.place(0, centre)
        kernel.export(0, folder)
        self.tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER)
        self.model: Any = PeftModel.from_pretrained(model, folder).eval()
        self.parts = [value for name, value in self.model.named_parameters() if "lora_B" in name]

    def batched(self) -> None:
        """Some members and the step that they make; a member's questions are one batch."""
        self._generation([self.items])

    def one_by_one(self) -> None:
        """The same, every question alone."""
        self._generation([(item,) for item in self.items])

    def _generation(self, batches: Sequence[Sequence[Item]]) -> None:
        earned = []
        for seed in self.members:
            for part, noise in zip(self.parts, self._noise(seed), strict=True):
                part.data.copy_(noise)
            earned.append(np.mean([mark for batch in batches for mark in self._verdicts(batch)]))
        worth = np.array(earned) - np.mean(earned)
        step = [torch.zeros_like(part) for part in self.parts]
        for seed, share in zip(self.members, worth, strict=True):
            for total, noise in zip(step, self._noise(seed), strict=True):
                total += float(share) * noise

    def _noise(self, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        scale = self.noise / 10  # about what makes our noise of this size
        return [scale * torch.randn(part.shape, generator=generator) for part in self.parts]

    def _verdicts(self, items: Sequence[Item]) -> list[float]:
        prompts = [item.prompt for item in items]
        batch = self.tokenizer(prompts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            ids = self.model.generate(
                **batch,
                max_new_tokens=max(item.reply_limit for item in items),
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        new = ids[:, batch["input_ids"].shape[1] :]
        texts = self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [judgement.verdict for judgement in judge(zip(items, texts, strict=True))]


def memory(workplace: Path, turns: int) -> Result:
    """A thousand members against ten."""
    peaks = {count: peak_mb(count) for count in (SMALL, LARGE)}
    ratio = peaks[LARGE] / peaks[SMALL]
    return Result(
        "memory of evolution strategies, embedded host, two questions for each member",
        [Ratio(f"{LARGE} members ÷ {SMALL}", ratio, 1.2, at_most=True)],
        numbers={f"MB with {count} members": peak for count, peak in peaks.items()},
    )


def peak_mb(population: int) -> float:
    """What a process takes at most that lives three generations of so many members."""
    command = [sys.executable, __file__, "--members", str(population)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def live_few(population: int) -> None:
    """Prints the peak memory of this process in MB."""
    with tempfile.TemporaryDirectory() as folder:
        changes = (f"strategy.population={population}", "run.generations=3")
        Run.start(
            "es-conciseness", *STILL, "strategy.questions=2", *changes, folder=Path(folder) / "run"
        ).finish()
    print(memory_mb())


def trainings(workplace: Path, turns: int) -> Result:
    """Six variants of ``loralab`` side by side, and each alone: on our kernel, and on PEFT."""
    training = Training(workplace / "run")
    stacked, alone = training.stacked(), training.alone()
    differences = [
        float(np.abs(stacked[slot].vector - alone[slot].vector).max()) for slot in stacked
    ]
    seconds = timed(
        {
            "stacked": Side(training.stacked),
            "alone": Side(training.alone),
            "PEFT": Side(training.with_peft),
        },
        turns,
    ).seconds
    return Result(
        f"hyper-parameter evolution, embedded host: a training of {len(stacked)} variants",
        [
            Ratio("largest difference of a weight", max(differences), 1e-4, at_most=True),
            Ratio(
                "stacked ÷ each alone on our kernel",
                seconds["stacked"] / seconds["alone"],
                goal=0.5,
                at_most=True,
            ),
            Ratio(
                "stacked ÷ each alone on PEFT",
                seconds["stacked"] / seconds["PEFT"],
                0.5,
                at_most=True,
            ),
        ],
        seconds,
    )


class Training:
    """The founders of ``loralab`` and the lessons of their first life."""

    def __init__(self, folder: Path) -> None:
        run = Run.start("loralab", "run.generations=1", folder=folder).finish()
        strategy: Any = strategies.build(run.config.strategy)
        self.kernel = run.kernel
        store, living = BlobStore(folder / "blobs"), run.state.population.values()
        self.weights = {at: store.weights(o.genome.weights) for at, o in enumerate(living)}
        self.traits = [o.genome.traits for o in living]
        tasks, draw = mixture(run.config), Draw(0)
        count = strategy.train_size // len(tasks.cells)
        items = [item for cell in tasks.cells for item in tasks.draw(cell, count, draw(*cell))]
        order = draw("order").permutation(len(items))
        answers = self.kernel.encode_answers([item.answer for item in items])
        rows = [(items[place].prompt, tuple(answers[place])) for place in order]
        self.steps = [rows[at : at + strategy.batch] for at in range(0, len(rows), strategy.batch)]

    def stacked(self) -> dict[int, AdapterWeights]:
        """All variants in every step."""
        return self._trained(list(self.weights))

    def alone(self) -> dict[int, AdapterWeights]:
        """One variant after another."""
        adapters: dict[int, AdapterWeights] = {}
        for slot in self.weights:
            adapters |= self._trained([slot])
        return adapters

    def _trained(self, slots: Sequence[int]) -> dict[int, AdapterWeights]:
        weights = {slot: self.weights[slot] for slot in slots}
        states = {slot: OptimizerState() for slot in slots}
        for number, rows in enumerate(self.steps):
            batch = LearningBatch(
                tuple(Lesson(*row, slot) for slot in slots for row in rows),
                {slot: self.traits[slot]["learning_rate"] for slot in slots},
                dropout={slot: self.traits[slot][DROPOUT] for slot in slots},
                dropout_seeds={slot: 100 * number + slot for slot in slots},
            )
            weights, states, _ = self.kernel.learn(batch, weights, states)
        return dict(weights)

    def with_peft(self) -> None:
        """One variant after another, in a plain loop of PEFT and AdamW."""
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        for genes in self.traits:
            rank, modules = int(genes["rank"]), list(MODULES.values())[int(genes["targets"])]
            config = LoraConfig(
                r=rank,
                lora_alpha=int(genes["alpha"] * rank),
                lora_dropout=genes[DROPOUT],
                target_modules="all-linear" if modules is None else list(modules),
            )
            host = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER)
            model: Any = get_peft_model(host, config).train()
            parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimiser = torch.optim.AdamW(
                parameters,
                lr=genes["learning_rate"],
                betas=(0.9, 0.95),
                weight_decay=0.0,
                fused=True,
            )
            for rows in self.steps:
                model(**self._padded(rows), use_cache=False).loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                optimiser.zero_grad()

    def _padded(self, rows: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, torch.Tensor]:
        """Token ids, padded on the right, with answers as labels."""
        prompts = self.kernel.encode([prompt for prompt, _ in rows])
        ids = [
            torch.tensor([*prompt, *answer])
            for prompt, (_, answer) in zip(prompts, rows, strict=True)
        ]
        labels = [row.clone() for row in ids]
        for label, prompt in zip(labels, prompts, strict=True):
            label[: len(prompt)] = -100
        pad = torch.nn.utils.rnn.pad_sequence
        masks = [torch.ones_like(row) for row in ids]
        return {
            "input_ids": pad(ids, batch_first=True),
            "attention_mask": pad(masks, batch_first=True),
            "labels": pad(labels, batch_first=True, padding_value=-100),
        }


CASES = {
    "es-few": few_questions,
    "es-many": many_questions,
    "es-memory": memory,
    "hyper": trainings,
}


def main() -> int:
    """Runs the cases; 1 if a floor does not hold."""
    parser = arguments(__doc__, CASES)
    parser.add_argument("--members", type=int, help=SUPPRESS)
    options = parser.parse_args()
    settle()
    if options.members:
        live_few(options.members)
        return 0
    results, console = dict[str, Result](), Console()
    for name in [options.only] if options.only else CASES:
        with tempfile.TemporaryDirectory() as workplace:
            results[name] = CASES[name](Path(workplace), 2 if options.quick else 8)
        show(results[name], console)
    save(options.json, results, options.only)
    return 0 if all_hold(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

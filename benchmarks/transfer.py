"""How far one skill carries to others: a specialist per family, measured on all families.

All specialists learn at once, one slot each, from gold answers on short and medium items of the
train split; each then answers the holdout of every family. Gains over the bare host are averaged
over ordered pairs of families within a convention group and across groups.

    python benchmarks/transfer.py --json artifacts/transfer.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from symbiont_ecology import HostKernel
from symbiont_ecology.rng import Draw
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState


def teach(
    kernel: HostKernel,
    families: list[SyntheticTask],
    seed: int,
    steps: int,
    batch: int,
    rate: float,
) -> None:
    """Supervised learning of one specialist per family, all in the same backward pass."""
    weights = {
        slot: AdapterWeights.random(
            kernel.layout, kernel.rank, 1.0, Draw(seed)("start", family.name)
        )
        for slot, family in enumerate(families)
    }
    optimizer_state = {slot: OptimizerState() for slot in weights}
    for step in range(steps):
        lessons = []
        for slot, family in enumerate(families):
            generator = Draw(seed, step)("items", family.name)
            for index in range(batch):
                item = family.sample("short" if index % 2 else "medium", generator)
                ids = kernel.tokenizer(item.answer, add_special_tokens=False)["input_ids"]
                lessons.append(Lesson(item.prompt, (*ids, kernel.end_token_id), slot))
        lr = rate * min(1.0, (step + 1) / 5) * (1 - step / steps)
        weights, optimizer_state, _ = kernel.learn(
            LearningBatch(tuple(lessons), dict.fromkeys(weights, lr)), weights, optimizer_state
        )
    for slot, adapter in weights.items():
        kernel.place(slot, adapter)


def accuracy(
    kernel: HostKernel, families: list[SyntheticTask], slots: list[int], questions: int
) -> np.ndarray:
    """``(slots, families)`` accuracy on medium holdout items."""
    rows, items = [], []
    for family in families:
        for item in family.distinct(
            "medium", questions, Draw(0)("transfer", family.name), split="holdout"
        ):
            for slot in slots:
                rows.append(Request(item.prompt, slot, item.reply_limit))
                items.append((family, item, slot))
    texts = kernel.rollout(rows, None, Decoding()).texts
    right, asked = np.zeros((len(slots), len(families))), np.zeros((len(slots), len(families)))
    index = {family.name: column for column, family in enumerate(families)}
    for (family, item, slot), text in zip(items, texts, strict=True):
        place = slots.index(slot), index[family.name]
        right[place] += item.verifier(text)
        asked[place] += 1
    return right / asked


def main() -> None:
    """Runs every seed and prints the means with intervals over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="embedded")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    every = [tasks.build(name) for name in tasks.names()]
    families = [
        task for task in every if isinstance(task, SyntheticTask) and task.role != "composition"
    ]
    kernel = HostKernel.from_pretrained(arguments.host, slots=len(families), rank=4)
    base = accuracy(kernel, families, [HOST_SLOT], arguments.questions)
    pairs: dict[str, list[float]] = {"own": [], "within": [], "across": []}
    for seed in range(arguments.seeds):
        teach(kernel, families, seed, arguments.steps, arguments.batch, arguments.rate)
        gain = accuracy(kernel, families, list(range(len(families))), arguments.questions) - base
        is_same = np.array([[a.group == b.group for b in families] for a in families])
        is_own = np.eye(len(families), dtype=bool)
        pairs["own"].append(float(gain[is_own].mean()))
        pairs["within"].append(float(gain[is_same & ~is_own].mean()))
        pairs["across"].append(float(gain[~is_same].mean()))
        print(seed, {kind: round(values[-1], 3) for kind, values in pairs.items()}, flush=True)
    report = {"base": round(float(base.mean()), 4), "seeds": arguments.seeds, "gain": {}}
    for kind, values in pairs.items():
        interval = paired_interval(values, [0.0] * len(values))
        report["gain"][kind] = [
            round(number, 4) for number in (interval.estimate, interval.low, interval.high)
        ]
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""An outside peer of the arm ``grpo`` of methods-v1: GRPO as the package trl has it.

The same host, the same train questions by family, verifiers, rank, compute by the same meter, and
the same held-out questions. Four learning rates are tuned on the protocol's tuning seeds, as many
settings as our arm has. All other settings of trl (clipping, KL, reward scale) are its defaults.

    python benchmarks/grpo_peer.py --json docs/results/grpo_peer.json

Needs the extra trl. Some two minutes of a core per
seed. Finished seeds stay in the folder and are not trained again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from symbiont_ecology.bridges.trl import TrlQuestions
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.evaluation.measure import evaluate_adapter
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.extensions.study.protocol import load_protocol
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.locating import EMBEDDED_FOLDER
from symbiont_ecology.rng import Draw

RATES = (0.01, 0.005, 0.002, 0.001)
SAMPLES, QUESTIONS, POOL = 4, 16, 4000
"""Answers per question, questions of a step, and questions to draw them from."""
RESULT = "result.json"


class Meter:
    """Verdicts as rewards, and the useful FLOPs of what was answered and learned."""

    def __init__(
        self, questions: TrlQuestions, kernel: HostKernel, rank: int, budget: float
    ) -> None:
        self.questions, self.kernel, self.budget, self.flops = questions, kernel, budget, 0
        self.parameters = kernel.layout.size(rank)

    def __call__(self, prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        """Of every completion of a step."""
        shape = self.kernel.shape
        for prompt, ids in zip(prompts, columns["completion_ids"], strict=True):
            length = len(self.kernel.encode([prompt])[0])
            self.flops += shape.rollout_flops(self.parameters, length, len(ids))
            self.flops += shape.learning_flops(self.parameters, length, len(ids))
        return self.questions(completions, **columns)


def trained(folder: Path, seed: int, rate: float, budget: float) -> Path:
    """A PEFT folder of an adapter that spent the budget."""
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    config = load_protocol("methods-v1").config("grpo", 1.0, seed)
    rank, tasks, draw = config.host.rank, mixture(config), Draw(seed)
    share = POOL // len(tasks.cells)
    items = [item for cell in tasks.cells for item in tasks.draw(cell, share, draw("peer", *cell))]
    questions = TrlQuestions(tuple(items))
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=rank)
    meter = Meter(questions, kernel, rank, budget)

    class Stop(TrainerCallback):  # type: ignore[misc]
        """Ends the training when the budget is spent."""

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            """Looks at the meter."""
            control.should_training_stop = meter.flops >= meter.budget

    options = GRPOConfig(
        output_dir=str(folder / "trainer"),
        use_cpu=True,
        seed=seed,
        learning_rate=rate,
        lr_scheduler_type="constant",
        per_device_train_batch_size=SAMPLES * QUESTIONS,
        num_generations=SAMPLES,
        max_completion_length=max(item.reply_limit for item in items),
        num_train_epochs=100,
        bf16=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER),
        processing_class=AutoTokenizer.from_pretrained(EMBEDDED_FOLDER, padding_side="left"),
        reward_funcs=[meter],
        args=options,
        train_dataset=questions.dataset(),
        peft_config=LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear"),
        callbacks=[Stop()],
    )
    trainer.train()
    trainer.model.save_pretrained(folder / "adapter")
    return folder / "adapter"


def right(adapter: Path, shift: str, split: str, per_cell: int) -> float:
    """The share of questions that is right."""
    config = load_protocol("methods-v1").config("grpo", 1.0, 0)
    items = draw_shifts(mixture(config), [shift], per_cell, split=split)  # type: ignore[arg-type]
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=config.host.rank)
    return evaluate_adapter(adapter, items, kernel).accuracy().estimate


def result(folder: Path, seed: int, rate: float, split: str, per_cell: int) -> float:
    """What an adapter of that seed and learning rate reaches; trained if it is not there."""
    plan, place = load_protocol("methods-v1"), folder / f"{seed}-{rate:g}"
    if not (place / RESULT).exists():
        adapter = trained(place, seed, rate, plan.budgets[-1] * plan.unit_flops)
        share = right(adapter, "in-distribution", split, per_cell)
        (place / RESULT).write_text(json.dumps(share))
    return float(json.loads((place / RESULT).read_text()))


def main(folder: Path, json_file: Path | None) -> None:
    """Tunes the learning rate, then trains and asks the reported seeds."""
    torch.set_num_threads(1)
    plan = load_protocol("methods-v1")
    tuning = {
        rate: float(
            np.mean(
                [
                    result(folder / "tuning", seed, rate, "selection", plan.tuning_per_cell)
                    for seed in plan.tuning_seeds
                ]
            )
        )
        for rate in RATES
    }
    rate = max(tuning, key=lambda rate: tuning[rate])
    print("tuning", tuning, flush=True)
    rows = {}
    for seed in plan.seeds:
        rows[seed] = result(folder, seed, rate, "holdout", plan.per_cell)
        print(seed, rows[seed], flush=True)
    if json_file is not None:
        report = {"schema": 1, "tuning": tuning, "learning_rate": rate, "right": rows}
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("artifacts/grpo-peer"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.json)

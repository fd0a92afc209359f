"""GRPO by trl on our questions, an ecology that begins with its adapter, and trl on from there.

    cd examples
    python grpo_with_trl.py runs/trl

A minute on the embedded host. Needs the extra trl.
"""

from __future__ import annotations

import sys
from pathlib import Path

from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from symbiont_ecology import Run
from symbiont_ecology.evaluate.measure import evaluate_adapter
from symbiont_ecology.extensions.bridges.trl import TrlQuestions
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

WORLD = ("base", "tasks.families=[math.add, word.count]", "tasks.depths=[short]")


def train(model: PreTrainedModel | PeftModel, to: Path, lora: LoraConfig | None = None) -> None:
    """Twenty steps on questions of the world; their verdicts are the reward."""
    questions = TrlQuestions.of(*WORLD, per_cell=200)
    options = GRPOConfig(
        output_dir=str(to / "trainer"),
        use_cpu=True,
        bf16=False,
        learning_rate=0.01,
        per_device_train_batch_size=32,
        num_generations=4,
        max_completion_length=max(item.reply_limit for item in questions.items),
        max_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=10,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(EMBEDDED_FOLDER, padding_side="left"),
        reward_funcs=[questions],
        args=options,
        train_dataset=questions.dataset(),
        peft_config=lora,
    )
    trainer.train()
    trainer.model.save_pretrained(to)


def main(folder: Path) -> None:
    """From trl into an ecology, and from the ecology into trl."""
    lora = LoraConfig(r=4, lora_alpha=4, target_modules="all-linear")
    train(AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER), folder / "first", lora)

    immigration = f"strategy.mechanisms.immigration.adapters=[{folder / 'first'}]"
    words = (*WORLD, "host.rank=4", immigration, "run.generations=10")
    run = Run.start(*words, folder=folder / "ecology").finish()
    best = run.best.save_peft(folder / "organelle")

    base = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER)
    train(PeftModel.from_pretrained(base, best, is_trainable=True), folder / "second")

    for name in ("first", "organelle", "second"):
        right = evaluate_adapter(folder / name, run.loaded.items(50), run.host).accuracy()
        print(f"{name}: {right.estimate:.0%} of the held-out questions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

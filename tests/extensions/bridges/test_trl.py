"""Our questions and rewards in trl's GRPO, and adapters both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology import Run
from symbiont_ecology.base.errors import ConfigError, EcologyWarning
from symbiont_ecology.base.types import Item
from symbiont_ecology.extensions.bridges.trl import TrlQuestions
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

WORLD = ("base", "tasks.families=[math.add,word.count]", "tasks.depths=[short]")
TOWN = ("habitats/town", "tasks.users.count=6")


def test_questions_are_those_of_the_world_each_once() -> None:
    questions = TrlQuestions.of(*WORLD, per_cell=20)
    assert len({item.prompt for item in questions.items}) == len(questions.items) == 40
    assert {item.family for item in questions.items} == {"math.add", "word.count"}
    held = TrlQuestions.of(*WORLD, per_cell=20, split="holdout")
    assert not {one.id for one in held.items} & {one.id for one in questions.items}
    again = TrlQuestions.of(*WORLD, per_cell=20)
    assert [one.id for one in again.items] == [one.id for one in questions.items]


def test_a_reward_is_the_verdict_of_the_question_with_that_number() -> None:
    questions = TrlQuestions.of(*WORLD, per_cell=6)
    number = [3, 0, 11]
    said = [questions.items[3].answer, "no", questions.items[11].answer]
    assert questions(said, number=number) == [1.0, 0.0, 1.0]


def test_completions_of_a_conversation_are_judged_alike() -> None:
    questions = TrlQuestions.of(*TOWN, per_cell=2)
    assert len({item.user for item in questions.items}) == 6
    talk = [[{"role": "assistant", "content": item.answer}] for item in questions.items]
    assert questions(talk, number=range(len(talk))) == [1.0] * len(talk)


def test_another_reward_is_refused() -> None:
    with pytest.raises(ConfigError, match="got shaped: set reward=verdict"):
        TrlQuestions.of(*WORLD, "reward={kind: shaped, ceiling: 0.5}")


def test_an_answer_is_judged_up_to_where_the_style_stops_it() -> None:
    questions = TrlQuestions.of(*WORLD, "tasks.style=few_shot", per_cell=1)
    said = questions.items[0].answer + questions.stops[0] + "and more"
    assert questions([said], number=[0]) == [1.0]


def test_nobody_gains_by_what_breaks_a_verifier() -> None:
    item = Item("1", "mine", "short", "?", "?", 4, {"right": 1.0}.__getitem__)
    with pytest.warns(EcologyWarning, match="the verifier of mine raised KeyError"):
        assert TrlQuestions((item,))(["right", "broken"], number=[0, 0]) == [1.0, 0.0]


def trained(model: Any, questions: TrlQuestions, folder: Path, **peft: Any) -> Path:
    """The PEFT folder that a few steps of trl's GRPO leave."""
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    options = GRPOConfig(
        output_dir=str(folder / "trainer"),
        use_cpu=True,
        bf16=False,
        learning_rate=0.01,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=8,
        max_steps=3,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(EMBEDDED_FOLDER, padding_side="left"),
        reward_funcs=[questions],
        args=options,
        train_dataset=questions.dataset(),
        **peft,
    )
    trainer.train()
    rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line]
    assert len(rewards) == 3
    assert max(rewards) > 0
    trainer.model.save_pretrained(folder / "adapter")
    return folder / "adapter"


def test_adapters_go_from_trl_into_an_ecology_and_back(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    from peft import LoraConfig, PeftModel
    from transformers import AutoModelForCausalLM

    questions = TrlQuestions.of(*WORLD, per_cell=50)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    first = trained(
        AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER),
        questions,
        tmp_path / "first",
        peft_config=lora,
    )
    immigration = f"strategy.mechanisms.immigration.adapters=[{first}]"
    run = Run.start(*WORLD, immigration, "run.generations=2", folder=tmp_path / "run").finish()
    assert next(iter(run.events.Born.operator)) == "immigrant"
    out = run.best.save_peft(tmp_path / "organelle")
    base = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER)
    start = PeftModel.from_pretrained(base, out, is_trainable=True)
    second = trained(start, questions, tmp_path / "second")
    weights = [folder / "adapter_model.safetensors" for folder in (out, second)]
    assert weights[0].read_bytes() != weights[1].read_bytes()

"""Our questions, verdicts and rewards for trl's trainers (von Werra et al., Hugging Face).

    questions = TrlQuestions.of("demo", per_cell=200)
    GRPOTrainer(
        model=…, reward_funcs=[questions], train_dataset=questions.dataset(), peft_config=…, …
    )

Adapters go both ways as PEFT folders. What trl has trained founds an ecology
(``strategy.mechanisms={immigration: {adapters: [FOLDER]}}``), and trl starts from an organelle that
was exported (``PeftModel.from_pretrained(model, folder, is_trainable=True)``).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from symbiont_ecology.base.errors import ConfigError, EcologyWarning, MissingExtraError
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding, Item, messages, without_turns
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks import judge
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

if TYPE_CHECKING:
    from datasets import Dataset

COLUMNS = ("family", "depth", "user", "answer")
"""Fields of a question that the data set has."""
Said: TypeAlias = str | Sequence[dict[str, str]]
"""A completion: a text, or the messages of a conversation."""


@dataclass(frozen=True)
class TrlQuestions:
    """Questions as a data set of trl, and a reward function: the verdict on what was answered.

    ``is_chat`` writes prompts as conversations, around which trl puts the model's chat template. An
    answer is judged up to the first of the ``stops``.
    """

    items: tuple[Item, ...]
    is_chat: bool = False
    stops: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, config: str | Path, *overrides: str, per_cell: int = 100, split: Split = "train"
    ) -> TrlQuestions:
        """Return questions of the world of a config, in its style.

        Args:
            config: a preset or a YAML file.
            overrides: changes of it such as ``"seed=1"``.
            per_cell: different questions of each cell; of each user, in a world with users.
            split: which questions.

        Raises:
            ConfigError: the config does not fit together, or has another reward than the verdict.
        """
        chosen = load_config(config, overrides)
        if (reward := kind_of(chosen.reward)) != "verdict":
            raise ConfigError(
                f"reward: expected verdict, which trl is given here, got {reward}: set "
                "reward=verdict, and give trl a function of your own beside it"
            )
        tasks, draw = mixture(chosen), Draw(chosen.seed)
        if tasks.users is not None:
            items = list(tasks.users.drawn(per_cell, chosen.seed, split))
        else:
            items = [
                item
                for family, depth in tasks.cells
                for item in tasks.families[family].distinct(
                    depth, per_cell, draw("trl", family, depth, split), split=split
                )
            ]
        style = prompt_styles.build(chosen.tasks.style)
        return cls(tuple(items), style.is_chat, style.stops)

    def dataset(self) -> Dataset:
        """Return a row for each question: its prompt, its number, and its place in the world.

        Raises:
            MissingExtraError: datasets is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise MissingExtraError("a data set for trl", "datasets", "trl") from error
        say = messages if self.is_chat else without_turns
        rows = [
            {"prompt": say(item.prompt), "number": number}
            | {name: getattr(item, name) for name in COLUMNS}
            for number, item in enumerate(self.items)
        ]
        return Dataset.from_list(rows)

    def __call__(
        self, completions: Sequence[Said], number: Sequence[int], **columns: Any
    ) -> list[float]:
        """Return the verdict on each completion, as a reward function of trl does. ``number`` is
        the column of the data set; verifiers that fail are warned of, and nobody gains by it."""
        items, cut = [self.items[place] for place in number], Decoding(stop=self.stops).cut
        texts = [cut(c if isinstance(c, str) else c[-1]["content"]) for c in completions]
        judgements = judge(zip(items, texts, strict=True))
        pairs = zip(items, judgements, strict=True)
        faults = {f"the verifier of {item.family} {one.fault}" for item, one in pairs if one.fault}
        for fault in sorted(faults):
            warnings.warn(fault, EcologyWarning, stacklevel=2)
        return [one.verdict for one in judgements]

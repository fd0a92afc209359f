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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from symbiont_ecology.base.errors import ConfigError, EcologyWarning, MissingExtraError
from symbiont_ecology.base.fence import Faults
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding, Item, messages, without_turns
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.ecology.learning.rewards import worths
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, load_config
from symbiont_ecology.tasks import judge
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

if TYPE_CHECKING:
    from datasets import Dataset

TRAINER = "trl"
"""Author of the answers, as a reward is told."""
COLUMNS = ("family", "depth", "habitat", "answer")
"""Fields of a question that the data set has."""
Said: TypeAlias = str | Sequence[dict[str, str]]
"""A completion: a text, or the messages of a conversation."""


@dataclass(frozen=True)
class TrlQuestions:
    """Questions as a data set of trl, and a reward function for what was answered to them.

    ``is_chat`` writes prompts as conversations, around which trl puts the model's chat template. An
    answer is judged up to the first of the ``stops``.

    Raises:
        ConfigError: a reward that nobody could give to answers of trl.
    """

    items: tuple[Item, ...]
    reward: Spec = "verdict"
    is_chat: bool = False
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rule.reads:
            raise ConfigError(
                f"reward: trl has answers to reward, and {kind_of(self.reward)} reads reference "
                "answers: set reward=verdict"
            )

    @classmethod
    def of(
        cls,
        config: str | Path | RunConfig,
        *overrides: str,
        per_cell: int = 100,
        habitat: str = "",
        split: Split = "train",
    ) -> TrlQuestions:
        """Questions of the world of a config, in its style and with its reward.

        Args:
            config: a preset, a YAML file, or a config that is built.
            overrides: changes of it such as ``"seed=1"``; none of one that is built.
            per_cell: different questions of each cell; of each habitat, in a world with habitats.
            habitat: the only one that asks; all of them if it is left out.
            split: which questions.

        Raises:
            ConfigError: the config does not fit together, or has no such habitat.
        """
        if not isinstance(config, RunConfig):
            config = load_config(config, overrides)
        elif overrides:
            raise ConfigError(
                f"{overrides[0]}: pass changes of a config that is built to load_config"
            )
        tasks, draw = mixture(config), Draw(config.seed)
        if tasks.habitats is not None:
            questions = tasks.habitats.drawn(per_cell, config.seed, split)
            items = [item for item in questions if habitat in ("", item.habitat)]
        else:
            items = [
                item
                for family, depth in tasks.cells
                for item in tasks.families[family].distinct(
                    depth, per_cell, draw("trl", family, depth, split), split=split
                )
            ]
        if not items or (habitat and tasks.habitats is None):
            raise ConfigError(f"habitat: expected one of the world's, got {habitat!r}")
        style = prompt_styles.build(config.tasks.style)
        return cls(tuple(items), config.reward, style.is_chat, style.stops)

    @cached_property
    def rule(self) -> RewardRule:
        """The worth of answers."""
        return reward_rules.build(self.reward)

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
        """Return the worth of each completion, as a reward function of trl does. ``number`` is the
        column of the data set; verifiers and rewards that fail are warned of, and nobody gains by
        it."""
        rollouts = self.rollouts(completions, number, columns.get("completion_ids"))
        faults = Faults()
        rewards = worths(rollouts, self.rule, faults)
        texts = {f"the verifier of {r.item.family} {r.fault}" for r in rollouts if r.fault}
        texts |= {f"{part} {tally.fault}" for part, tally in faults.tallies.items() if tally.fault}
        for fault in sorted(texts):
            warnings.warn(fault, EcologyWarning, stacklevel=2)
        return rewards

    def rollouts(
        self,
        completions: Sequence[Said],
        number: Sequence[int],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Rollout]:
        """Return the completions as judged rollouts; unknown log-probabilities are zero."""
        items, cut = [self.items[place] for place in number], Decoding(stop=self.stops).cut
        texts = [cut(c if isinstance(c, str) else c[-1]["content"]) for c in completions]
        ids = completion_ids or [()] * len(texts)
        return [
            Rollout(
                item,
                TRAINER,
                tuple(tokens),
                np.zeros(len(tokens), dtype=np.float32),
                text,
                verdict=judgement.verdict,
                reward=judgement.verdict,
                cost=Cost(),
                fault=judgement.fault,
            )
            for item, text, tokens, judgement in zip(
                items, texts, ids, judge(zip(items, texts, strict=True)), strict=True
            )
        ]

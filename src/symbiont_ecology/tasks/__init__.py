"""Task families, prompt styles, rewards, mixtures and splits: what the population is fed with."""

from typing import ClassVar, Protocol

from symbiont_ecology.registry import Registry
from symbiont_ecology.tasks.family import TaskFamily, WrittenFamily
from symbiont_ecology.types import Item


class PromptStyle(Protocol):
    """How an item becomes a prompt."""

    @property
    def is_chat(self) -> bool:
        """Whether the host's chat template goes around the prompt."""

    tells_convention: ClassVar[bool]
    """Whether a prompt says which convention is wanted: a change of it is then no secret."""

    @property
    def extra_tokens(self) -> int:
        """New tokens to allow beyond the family's reply limit."""

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt text of an item."""

    def reworded(self) -> "PromptStyle":
        """The same questions in words that nobody learned from: for measuring wording shift."""

    def cued(self) -> "PromptStyle":
        """The same questions with the wanted convention told outright: for ceilings and
        retention."""


class TaskSource(Protocol):
    """Data that somebody wrote, as a mapping in ``tasks.families`` describes it. Frozen, cheap to
    make."""

    @property
    def name(self) -> str:
        """What the family is called: letters, digits, dots, dashes; no name of a task family."""

    def family(self) -> WrittenFamily:
        """The data, read when it is asked for; the same object as long as the data are the same.

        Raises:
            DataError: they cannot be read, or break their schema.
            MissingExtraError: a package that reads them is not installed.
        """


class RewardRule(Protocol):
    """What a reply is worth to learning, in [0, 1]."""

    sees_gold: ClassVar[bool]
    """Whether it uses more of the gold answer than the verdict."""

    def __call__(self, item: Item, reply: str, verdict: float) -> float:
        """The reward of one reply that the verifier has judged."""


task_families: Registry[TaskFamily] = Registry("task family", "symbiont_ecology.tasks.families")
task_sources: Registry[TaskSource] = Registry("task source", "symbiont_ecology.tasks.families")
prompt_styles: Registry[PromptStyle] = Registry("prompt style", "symbiont_ecology.tasks.styles")
reward_rules: Registry[RewardRule] = Registry("reward rule", "symbiont_ecology.tasks.rewards")

__all__ = [
    "PromptStyle",
    "RewardRule",
    "TaskFamily",
    "TaskSource",
    "WrittenFamily",
    "prompt_styles",
    "reward_rules",
    "task_families",
    "task_sources",
]

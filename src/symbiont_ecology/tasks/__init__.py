"""Task families, prompt styles, rewards, mixtures and splits: what the population is fed with."""

from typing import Protocol

from symbiont_ecology.registry import Registry
from symbiont_ecology.tasks.family import TaskFamily
from symbiont_ecology.types import Item


class PromptStyle(Protocol):
    """How an item becomes a prompt."""

    @property
    def is_chat(self) -> bool:
        """Whether the host's chat template goes around the prompt."""

    @property
    def extra_tokens(self) -> int:
        """New tokens to allow beyond the family's reply limit."""

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt text of an item."""


task_families: Registry[TaskFamily] = Registry("task family", "symbiont_ecology.tasks.families")
prompt_styles: Registry[PromptStyle] = Registry("prompt style", "symbiont_ecology.tasks.styles")

__all__ = ["PromptStyle", "TaskFamily", "prompt_styles", "task_families"]

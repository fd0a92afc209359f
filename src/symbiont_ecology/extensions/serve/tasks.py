"""What people ask a service: ``{kind: service, name: chat}``. Nobody draws it, and people judge it.

A run with such a task is founded by ``symbiont serve``, and lives by what its users ask and accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.config import HabitatsConfig
from symbiont_ecology.tasks import Task, task_sources
from symbiont_ecology.tasks.data import check_name
from symbiont_ecology.tasks.habitats import END, Habitats
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import Item


@dataclass(frozen=True)
class OpenTask(Task):
    """Questions of people. What is drawn is a greeting: it serves to see what an answer costs."""

    name: str
    reply_tokens: int
    is_open = True

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A greeting."""
        return f"Hello, this is user {generator.integers(10**6)}. What can you do for me?"

    def verify(self, question: str, reply: str) -> bool:
        """Nothing is right by itself."""
        return False

    def own_habitats(self, config: HabitatsConfig) -> Habitats:
        return ServiceHabitats(config)


@dataclass(frozen=True)
class ServiceHabitats(Habitats):
    """Users of a service, who come by themselves: here nobody asks."""

    config: HabitatsConfig

    @property
    def names(self) -> Sequence[str]:
        """Nobody."""
        return ()

    def questions(self, generation: int) -> tuple[Item, ...]:
        """Nothing."""
        return ()

    def drawn(
        self, per_habitat: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        """Nothing: who knows what is right are the users."""
        return ()


@task_sources.register("service")
@dataclass(frozen=True)
class ServiceTasks:
    """What people ask a running service, which they judge by yes or no."""

    name: str  # letters, digits, dots, dashes
    reply_tokens: PositiveInt = 256  # most new tokens of a reply

    def __post_init__(self) -> None:
        check_name(self.name)

    def task(self) -> OpenTask:
        """The task."""
        return OpenTask(self.name, self.reply_tokens)

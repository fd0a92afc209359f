"""Questions of the users of a service, who judge the replies: ``{kind: service, name: chat}``.

A run with such a task is founded by ``symbiont serve``, and lives by what its users ask and accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import Task, task_sources
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.data import TaskName
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.users import END, Users


@dataclass(frozen=True)
class OpenTask(Task):
    """Questions of people. A greeting is drawn to measure the cost of an answer."""

    name: str
    reply_tokens: int
    is_open = True

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        return f"Hello, this is user {generator.integers(10**6)}. What can you do for me?"

    def verify(self, question: str, reply: str) -> bool:
        return False

    def own_users(self, config: UsersConfig) -> Users:
        return ServiceUsers(config)


@dataclass(frozen=True)
class ServiceUsers(Users):
    """Users of a service. ``asked`` are questions that wait for an answer, or the judged ones that
    a generation learns from."""

    config: UsersConfig
    asked: tuple[Item, ...] = ()

    @property
    def names(self) -> Sequence[str]:
        return ()

    def questions(self, generation: int) -> tuple[Item, ...]:
        return self.asked

    def drawn(
        self, per_user: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        """Return nothing: only the users know what is right."""
        return ()


@task_sources.register("service")
@dataclass(frozen=True)
class ServiceTasks:
    """Questions of people to a running service, who judge by yes or no."""

    name: TaskName  # letters, digits, dots, dashes
    reply_tokens: PositiveInt = 256  # most new tokens of a reply

    def task(self) -> OpenTask:
        return OpenTask(self.name, self.reply_tokens)

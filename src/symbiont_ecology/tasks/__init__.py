"""Questions for the population: tasks, verifiers and graders, data of one's own, the mixture."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.tasks.task import Task
from symbiont_ecology.tasks.verification import Judgement, judge

_Class = TypeVar("_Class")


class TaskSource(Protocol):
    """Data of one's own, as a mapping in ``tasks.families`` describes it. Frozen, cheap to make."""

    @property
    def name(self) -> str:
        """Name of the task: letters, digits, dots, dashes; no name of a registered task."""

    def task(self) -> Task:
        """Return the data as a task. They are read now, and only once while they stay the same.

        Raises:
            DataError: they cannot be read, or break their schema.
            MissingExtraError: a package that reads them is not installed.
        """


class TaskRegistry(Registry[Task]):
    """Tasks by name; a task knows the name that it is registered under."""

    def register(self, name: str, *former_names: str) -> Callable[[type[_Class]], type[_Class]]:
        """Return a class decorator that registers a task and sets its ``name``."""
        add = super().register(name, *former_names)

        def add_named(cls: type[_Class]) -> type[_Class]:
            cls.name = name  # type: ignore[attr-defined]
            return add(cls)

        return add_named


tasks = TaskRegistry("task", "symbiont_ecology.tasks.synthetic")
task_sources: Registry[TaskSource] = Registry("task source", "symbiont_ecology.tasks")

__all__ = ["Judgement", "Task", "TaskSource", "judge", "task_sources", "tasks"]

"""The demand of a run: which cells there are, and how their items are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from numpy.random import Generator

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Cell, Item, in_turns
from symbiont_ecology.tasks import Task
from symbiont_ecology.tasks.config import Flip
from symbiont_ecology.tasks.grading import ReferenceVerifier
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.users import END, Users

TYPED = "typed"
"""In the id of an item, in place of a variant: somebody typed it, and no task drew it."""


@dataclass(frozen=True)
class TaskMixture:
    """Tasks at some depths. Every combination that exists is a cell, all in demand alike.

    ``depths`` are those that the config names; None is the depths that each task is trained on.
    With ``users``, questions come from them and not from the strategy's curriculum; those of an
    evaluation are judged as in ``generation``, by default after every change of the world. With
    ``arrivals``, families come one after another, each at so many training FLOPs; ``stage`` is the
    number of the one that is asked now, None where all of them are.
    """

    tasks: tuple[Task, ...]
    depths: tuple[str, ...] | None = None
    flip: Flip | None = None
    is_flipped: bool = False
    users: Users | None = None
    arrivals: tuple[float, ...] = ()
    stage: int | None = None
    generation: int = END

    @cached_property
    def families(self) -> dict[str, Task]:
        """The tasks by name, as they are judged now."""
        changed = self.flip.families if self.flip and self.is_flipped else ()
        return {task.name: task.flipped() if task.name in changed else task for task in self.tasks}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    def depths_of(self, task: Task) -> tuple[str, ...]:
        """Return the depths at which a task is asked."""
        depths = self.depths or task.trained_depths or task.depths
        return tuple(depth for depth in depths if depth in task.depths)

    def check(self) -> None:
        """Refuse depths, arrivals or a flip that do not fit the tasks.

        Raises:
            ConfigError: they do not.
        """
        choices = list(dict.fromkeys(depth for task in self.tasks for depth in task.depths))
        unknown = [depth for depth in self.depths or () if depth not in choices]
        if bad := unknown or [task.name for task in self.tasks if not self.depths_of(task)]:
            raise ConfigError(
                f"tasks.depths: {self.depths} do not fit {bad[0]!r}: choose among "
                f"{', '.join(choices)}"
            )
        coming = len(self.tasks) - 1
        if self.arrivals and len(self.arrivals) != coming:
            raise ConfigError(
                f"tasks.arrivals: expected {coming} moments, one for each family after the first, "
                f"got {len(self.arrivals)}"
            )
        flippable = [task.name for task in self.tasks if task.flipped() is not task]
        if fixed := set(self.flip.families if self.flip else ()).difference(flippable):
            raise ConfigError(
                f"tasks.flip.families: {sorted(fixed)} are not among tasks.families, or have one "
                "way to be right only"
            )

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All (family, depth) that are asked now, families outermost."""
        tasks = self.tasks if self.stage is None else self.tasks[self.stage : self.stage + 1]
        return tuple((task.name, depth) for task in tasks for depth in self.depths_of(task))

    def draw(
        self, cell: Cell, count: int, generator: Generator, split: Split = "train"
    ) -> tuple[Item, ...]:
        """Draw ``count`` items of a cell, with replacement, as they are judged now."""
        task, depth = self.families[cell[0]], cell[1]
        return tuple(task.sample(depth, generator, split=split) for _ in range(count))

    def questions(self, generation: int) -> tuple[Item, ...]:
        """Return the questions of users in a generation; nothing in a world without users."""
        return self.users.questions(generation) if self.users else ()

    def prompt(self, identity: str) -> str:
        """Return the prompt of the item with this id. What somebody typed is its own prompt
        (``TYPED``).

        Raises:
            KeyError: its task is not in the mixture.
        """
        family, _, variant, question = identity.split("/", 3)
        if variant == TYPED:
            return question
        return self.families[family].in_variant(int(variant)).prompt(question)

    def as_asked(self, item: Item) -> Item:
        """Return an item from elsewhere in the form of the mixture's own: the line end of their
        prompts, and what stands in front of questions of its family. An item without a family is
        of the mixture's, if that has one only.

        A question of ours is judged and may be as long as in the mixture.
        """
        words = item.prompt
        if self._ends_lines and not words.endswith("\n"):
            words += "\n"
        only = self.tasks[0].name if len(self.tasks) == 1 else ""
        task = self.families.get(item.family or only)
        before = (task or self.tasks[0]).turns_before(item.question)
        if task is None:
            before = before[: len(before) % 2]  # words of the system, if it says anything
        asked = replace(item, prompt=in_turns(*before, words))
        is_foreign = isinstance(item.verifier, ReferenceVerifier)
        if is_foreign or not isinstance(task, SyntheticTask) or item.family != task.name:
            return asked
        twin = task.in_variant(item.variant).item(item.question, item.depth)
        limit = max(item.reply_limit, twin.reply_limit)
        return replace(asked, verifier=twin.verifier, reply_limit=limit)

    @cached_property
    def _ends_lines(self) -> bool:
        (item,) = self.draw(self.cells[0], 1, Draw(0)("prompt"))
        return item.prompt.endswith("\n")

    def at(self, flops: float) -> TaskMixture:
        """Return the mixture as it is when so many training FLOPs are spent."""
        is_flipped = self.flip is not None and self.flip.holds(flops)
        stage = sum(moment <= flops for moment in self.arrivals) if self.arrivals else None
        if is_flipped == self.is_flipped and stage == self.stage:
            return self
        return replace(self, is_flipped=is_flipped, stage=stage)

"""Users that come with data: rows of a file or a log say who asks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks.config import HabitatsConfig
from symbiont_ecology.tasks.data import DataLine, DataTask
from symbiont_ecology.tasks.habitats import END, Habitats
from symbiont_ecology.tasks.logs import LogTask
from symbiont_ecology.tasks.splits import Split

KNOBS = {"questions"}
"""Keys of ``tasks.habitats`` that habitats of data heed."""


@dataclass(frozen=True)
class DataHabitats(Habitats):
    """Users who ask the lines of data: as often as they have lines there, in random order."""

    config: HabitatsConfig
    tasks: tuple[DataTask, ...]
    seed: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.habitats))

    def questions(self, generation: int) -> tuple[Item, ...]:
        lines, generator = self._training, Draw(self.seed, generation)("habitats", "lines")
        places = generator.integers(len(lines), size=self.config.questions)
        return tuple(_asked(*lines[place]) for place in places)

    def drawn(
        self, per_habitat: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        lines, generator = self._lines(split), Draw(seed)("habitats", "drawn", split)
        counts, items = Counter[str](), list[Item]()
        for task, line in (lines[place] for place in generator.permutation(len(lines))):
            counts[line.habitat] += 1
            if counts[line.habitat] <= per_habitat:
                items.append(_asked(task, line))
        return tuple(items)

    @cached_property
    def _training(self) -> list[tuple[DataTask, DataLine]]:
        return self._lines("train")

    def _lines(self, split: Split) -> list[tuple[DataTask, DataLine]]:
        return [
            (task, line)
            for task in self.tasks
            for depth in task.depths
            for line in task.part(depth, split)
        ]


@dataclass(frozen=True)
class LoggedHabitats(DataHabitats):
    """Users whose replies were logged: every row that is not held out, in turn; after the last one,
    from the beginning again.

    Each habitat's rows keep their order. Habitats are mixed evenly, whatever the order of the file:
    a table is often sorted by user.
    """

    def questions(self, generation: int) -> tuple[Item, ...]:
        count, start = self.config.questions, generation * self.config.questions
        return tuple(self._rows[place % len(self._rows)] for place in range(start, start + count))

    @property
    def length(self) -> int:
        """Number of rows that are learned from."""
        return len(self._rows)

    @cached_property
    def _rows(self) -> tuple[Item, ...]:
        logs = [task for task in self.tasks if isinstance(task, LogTask)]
        pairs = [(task, row) for task in logs for row in task.learned]
        pairs.sort(key=lambda pair: pair[1].place)
        counts, read = Counter(row.habitat for _, row in pairs), Counter[str]()
        parts = list[float]()  # of the rows of its habitat that come before each row
        for _, row in pairs:
            parts.append((read[row.habitat] + 0.5) / counts[row.habitat])
            read[row.habitat] += 1
        order = sorted(range(len(pairs)), key=parts.__getitem__)
        return tuple(task.row_item(row) for task, row in (pairs[place] for place in order))


def habitats_of(tasks: tuple[DataTask, ...], config: HabitatsConfig, seed: int) -> DataHabitats:
    """Return the habitats that data bring.

    Raises:
        ConfigError: some data bring none, logs are mixed with other data, or the config describes
            habitats that it does not make.
    """
    if anonymous := [task for task in tasks if not task.habitats]:
        raise ConfigError(
            f"tasks.habitats: {anonymous[0].source} does not say who asks: name the column, "
            "habitat: user"
        )
    are_logs = {isinstance(task, LogTask) for task in tasks}
    if len(are_logs) > 1:
        raise ConfigError("tasks.families: a log cannot be mixed with other data: leave one out")
    defaults = HabitatsConfig()
    for name, value in config:
        if name not in KNOBS and value != getattr(defaults, name):
            raise ConfigError(f"tasks.habitats.{name}: the data say who asks what: leave it out")
    return (LoggedHabitats if are_logs == {True} else DataHabitats)(config, tasks, seed)


def _asked(task: DataTask, line: DataLine) -> Item:
    return task.item(line.question, line.depth)

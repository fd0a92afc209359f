"""Habitats that data bring: users who ask lines of a file, or whose replies were logged.

The data say what is right for each habitat. Nobody knows its kind, so no strategy can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from symbiont_ecology.config import HabitatsConfig
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks.data import DataLine, DataTask
from symbiont_ecology.tasks.habitats import END, Habitats
from symbiont_ecology.tasks.logs import LogTask
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import Item

KNOBS = ("questions",)
"""What ``tasks.habitats`` may say of habitats that data bring."""


@dataclass(frozen=True)
class DataHabitats(Habitats):
    """Users who ask the lines of data: as often as they have lines there, in random order."""

    config: HabitatsConfig
    tasks: tuple[DataTask, ...]
    seed: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Who asks, in the order of the data."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.habitats))

    def questions(self, generation: int) -> tuple[Item, ...]:
        """Lines of the train split, with replacement."""
        lines, generator = self._training, Draw(self.seed, generation)("habitats", "lines")
        places = generator.integers(len(lines), size=self.config.questions)
        return tuple(_asked(*lines[place]) for place in places)

    def drawn(
        self, per_habitat: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        """Different lines of every habitat, which are judged alike in every generation."""
        lines, generator = self._lines(split), Draw(seed)("habitats", "drawn", split)
        counts, picks = dict.fromkeys(self.names, 0), list[tuple[DataTask, DataLine]]()
        for place in generator.permutation(len(lines)):
            name = lines[place][1].habitat
            counts[name] += 1
            if counts[name] <= per_habitat:
                picks.append(lines[place])
        return tuple(_asked(*line) for line in picks)

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
        """The next rows, each with its reply."""
        count, start = self.config.questions, generation * self.config.questions
        return tuple(self._rows[place % len(self._rows)] for place in range(start, start + count))

    @property
    def length(self) -> int:
        """Rows that are learned from."""
        return len(self._rows)

    @cached_property
    def _rows(self) -> tuple[Item, ...]:
        pairs = [
            (task, row) for task in self.tasks if isinstance(task, LogTask) for row in task.learned
        ]
        pairs.sort(key=lambda pair: pair[1].place)
        counts = dict.fromkeys(self.names, 0)
        numbers = []  # of each row among those of its habitat
        for _, row in pairs:
            numbers.append(counts[row.habitat])
            counts[row.habitat] += 1
        parts = [
            (number + 0.5) / counts[row.habitat]
            for number, (_, row) in zip(numbers, pairs, strict=True)
        ]
        order = sorted(range(len(pairs)), key=parts.__getitem__)
        return tuple(task.row_item(row) for task, row in (pairs[place] for place in order))


def habitats_of(tasks: tuple[DataTask, ...], config: HabitatsConfig, seed: int) -> DataHabitats:
    """The habitats that data bring.

    Raises:
        ConfigError: some data bring none, logs are mixed with other data, or the config describes
            habitats that it does not make.
    """
    if anonymous := [task for task in tasks if not task.habitats]:
        raise ConfigError(
            f"tasks.habitats: {anonymous[0].source} does not say who asks: name the column, "
            "habitat: user"
        )
    are_logs = [isinstance(task, LogTask) for task in tasks]
    if any(are_logs) and not all(are_logs):
        raise ConfigError("tasks.families: a log cannot be mixed with other data: leave one out")
    defaults = HabitatsConfig()
    knobs = [
        name for name, value in config if name not in KNOBS and value != getattr(defaults, name)
    ]
    if knobs:
        raise ConfigError(f"tasks.habitats.{knobs[0]}: the data say who asks what: leave it out")
    return (LoggedHabitats if all(are_logs) else DataHabitats)(config, tasks, seed)


def _asked(task: DataTask, line: DataLine) -> Item:
    return task.item(line.question, line.depth)

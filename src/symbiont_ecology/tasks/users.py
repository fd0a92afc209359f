"""Users: many places that ask the same model, and want different things.

A user is where a question comes from: a person, a team, a site. Data of one's own may bring theirs
(``tasks.users``). In synthetic worlds, the *kind* of a user is what counts as right
there: one variant for each group of tasks, such as a convention or a style. Kinds are hidden. They
show in verdicts alone, and in the evaluation of an experiment.

Who asks, what and when, is a pure function of the seed: every strategy meets the same stream of
questions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.random import Generator

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Cell, Item, map_last_turn
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.task import Task

PIONEERS, DRIFTING = 12, 0.25
"""Users that are there from the start, if others arrive; part of them that changes kind."""
UNEVEN = 0.25
"""By how much regimes are longer or shorter than their mean, at most."""
BEFORE, END = -1, 1 << 40
"""The generation of draws that hold for the whole run, and one after everything has changed."""


class Users(ABC):
    """Stream of questions of a world with users."""

    config: UsersConfig

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The ids of all users, in the order in which they come."""

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The users of each group, if they come in groups that are known."""
        return {}

    @abstractmethod
    def questions(self, generation: int) -> tuple[Item, ...]:
        """Return the questions of a generation, in the order of asking, each item with its
        user."""

    @abstractmethod
    def drawn(
        self, per_user: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        """Return as many questions of every user, for an evaluation; fewer if it has no more.
        They are judged as in a generation, by default after every change."""


@dataclass(frozen=True)
class SyntheticUsers(Users):
    """Users of hidden kinds, which ask tasks that can be right in several ways.

    Attributes:
        tasks: those that are asked; a kind is a variant for each of their groups.
        cells: what is asked about, all alike.
    """

    config: UsersConfig
    tasks: tuple[Task, ...]
    cells: tuple[Cell, ...]
    seed: int

    def __post_init__(self) -> None:
        regimes, kinds = self.config.regimes, self.config.kinds
        most = math.prod(self._groups.values())
        is_twofold = regimes and self.config.drift_at is not None
        if is_twofold or kinds > most or not all(0 <= kind < kinds for kind in regimes):
            raise ConfigError(
                f"tasks.users: expected at most {most} kinds, which {len(self._groups)} groups of "
                f"families have, regimes by numbers of kinds, and no drift_at beside them, got "
                f"{kinds} kinds, regimes {list(regimes)} and drift_at {self.config.drift_at}"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        width = len(str(self.config.count))
        return tuple(f"h{number:0{width}d}" for number in range(1, self.config.count + 1))

    @cached_property
    def arrivals(self) -> np.ndarray:
        """The generation in which each user arrives, ``(users,)``, rising."""
        last, count = max(self.config.arrivals, 1), self.config.count
        generations = np.sort(self._draw("arrivals").integers(0, last, count))
        generations[:PIONEERS] = 0
        return generations

    def kinds(self, generation: int) -> np.ndarray:
        """Return the kind of each user in a generation, ``(users,)``."""
        places = (self._switches <= generation).sum(axis=1)
        return np.take_along_axis(self._courses, places[:, None], axis=1)[:, 0]

    def questions(self, generation: int) -> tuple[Item, ...]:
        draw = Draw(self.seed, generation)
        askers, generator = self._askers(generation, draw), draw("habitats", "questions")
        return tuple(self._judged(user, generation, generator) for user in askers)

    def drawn(
        self, per_user: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        generator, items = Draw(self.seed, BEFORE)("habitats", "drawn", seed, split), list[Item]()
        for number in range(self.config.count * per_user):
            item = self._question(number // per_user, generation, generator, split)
            items.append(replace(item, id=f"{item.id} by {item.user} {number}"))
        return tuple(items)

    def _askers(self, generation: int, draw: Draw) -> np.ndarray:
        """Draw who asks: everyone present once at most where all are alike, else by activity."""
        present = np.flatnonzero(self.arrivals <= generation)
        generator, count = draw("habitats", "askers"), self.config.questions
        if self.config.activity == 0:
            rounds = -(-count // len(present))
            return np.concatenate([generator.permutation(present) for _ in range(rounds)])[:count]
        activity = self._activity[present]
        return generator.choice(present, count, p=activity / activity.sum())

    def _judged(self, user: int, generation: int, generator: Generator) -> Item:
        """Return a question as its user judges it, who may be wrong, or answer by a coin."""
        item = self._question(user, generation, generator, "train")
        is_wrong = generator.random() < self.config.noise
        coin = generator.random() < 0.5
        if user in self.most_fickle[: self.config.fickle]:
            return replace(item, verifier=lambda reply: coin)
        return replace(item, verifier=partial(_contrary, item.verifier)) if is_wrong else item

    def _question(self, user: int, generation: int, generator: Generator, split: Split) -> Item:
        own = (self.tasks[user % len(self.tasks)],) if self.config.apart else self.tasks
        by_name = {task.name: task for task in own}
        name = self.names[user]
        cells = [cell for cell in self.cells if cell[0] in by_name]
        family, depth = cells[int(generator.integers(len(cells)))]
        task = by_name[family]
        kind = self._vectors[int(self.kinds(generation)[user])]
        variant = task.in_variant(kind[list(self._groups).index(task.group)])
        item = variant.sample(depth, generator, split=split)
        return replace(item, prompt=shown_prompt(item.prompt, name, self.config), user=name)

    @cached_property
    def _groups(self) -> dict[str, int]:
        """Number of variants that the tasks of each group have."""
        return {task.group: task.variants for task in self.tasks}

    @cached_property
    def _vectors(self) -> list[tuple[int, ...]]:
        """The variant of each group, by kind: first those that differ in as many groups as can
        be."""
        variants = self._groups.values()
        shifts = [
            tuple((first + step * group) % count for group, count in enumerate(variants))
            for step in range(max(variants))
            for first in range(max(variants))
        ]
        return list(dict.fromkeys([*shifts, *product(*map(range, variants))]))

    @cached_property
    def _courses(self) -> np.ndarray:
        """The kind of each user in each of its regimes, ``(users, regimes)``.

        The regimes of a config are the same course for all, with the kinds in another order. Else
        there are equal numbers of each kind at first, and a quarter of the users drifts.
        """
        count, kinds = self.config.count, self.config.kinds
        if regimes := self.config.regimes:
            generator = self._draw("courses")
            orders = [generator.permutation(kinds) for _ in self.names]
            return np.array([order[np.array(regimes)] for order in orders])
        before = self._draw("kinds").permutation(np.arange(count) % kinds)
        after = before.copy()
        generator = self._draw("drift")
        drifters = generator.permutation(count)[: round(DRIFTING * count)]
        if kinds > 1:
            after[drifters] += generator.integers(1, kinds, len(drifters))
        return np.stack([before, after % kinds], axis=1)

    @cached_property
    def _switches(self) -> np.ndarray:
        """The generations in which each user enters its next regime, rising,
        ``(users, regimes - 1)``."""
        users, regimes = self.config.count, len(self.config.regimes)
        if regimes == 0:
            moments = [] if self.config.drift_at is None else [self.config.drift_at]
            return np.tile(np.array(moments, dtype=int), (users, 1))
        lengths = self._draw("switches").uniform(1 - UNEVEN, 1 + UNEVEN, (users, regimes - 1))
        return np.rint(self.config.regime * lengths).astype(int).cumsum(axis=1)

    @cached_property
    def _activity(self) -> np.ndarray:
        """Number of questions of each user, in relation to the others, ``(users,)``."""
        ranks = self._draw("activity").permutation(self.config.count) + 1
        return ranks.astype(float) ** -self.config.activity

    @cached_property
    def most_fickle(self) -> np.ndarray:
        """The numbers of all users, in the order in which they answer at random if so many do,
        ``(users,)``."""
        return self._draw("fickle").permutation(self.config.count)

    def _draw(self, name: str) -> Generator:
        return Draw(self.seed, BEFORE)("habitats", name)


def shown_prompt(prompt: str, user: str, config: UsersConfig) -> str:
    """Return a user's question as the host is asked it: with its id, if that is shown."""
    if not (config.shown and user):
        return prompt
    return map_last_turn(lambda question: f"{user} {question}", prompt)


def _contrary(verifier: Callable[[str], Any], reply: str) -> object:
    """Return the verdict of a thumb that slipped."""
    return verifier(reply) < 0.5

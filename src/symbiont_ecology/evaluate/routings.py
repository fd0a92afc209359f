"""Routings: who of a pool answers an item.

Most routings choose one organelle for each item (``Choice``). Others ask several and let their
answers decide. Either asks through the function that it is given, as often as it wants, and
returns one rollout for each item, whose cost is that of everyone who was asked for it. In training
``routing.allocators`` decide instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from symbiont_ecology.base.errors import ConfigError, DataError, RunError
from symbiont_ecology.base.registry import Registry, did_you_mean
from symbiont_ecology.base.types import Item, OrganelleId, cell_name, last_turn
from symbiont_ecology.base.untrusted import parse_json, read_regular
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.pool import AdapterPool, leaner_id
from symbiont_ecology.run.config import RunConfig

MAX_MAP_MB = 16
"""Of a file that says who answers."""
HABITAT_OPTION = "--habitat"

Ask = Callable[[Sequence[Item], Sequence[OrganelleId]], list[Rollout]]


class Routing(Protocol):
    """A way to answer items from a pool."""

    def __call__(self, pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
        """Return one rollout for each item, in their order."""


class Choice(ABC):
    """A routing by which one organelle answers each item.

    One that ``needs_labels`` is an oracle: it reads the family or the cell of an item, which a
    user's prompt does not have.
    """

    needs_labels: ClassVar[bool] = False

    @abstractmethod
    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        """Return who answers each item."""

    def __call__(self, pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
        return ask(items, self.choose(pool, items))


routings: Registry[Routing] = Registry("routing", "symbiont_ecology.evaluate.routings")


@routings.register("host")
@dataclass(frozen=True)
class AskHost(Choice):
    """The bare host answers everything."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [HOST] * len(items)


@routings.register("single")
@dataclass(frozen=True)
class AskBest(Choice):
    """The candidate that is best over all cells answers everything."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [pool.best()] * len(items)


@routings.register("scaled")
@dataclass(frozen=True)
class AskBestScaled(Choice):
    """The candidate that is best over all cells, with ΔW × 0.65, answers everything."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        best = pool.best()
        return [HOST if best == HOST else leaner_id(best)] * len(items)


@routings.register("habitat")
@dataclass(frozen=True)
class AskServer(Choice):
    """The organelle that serves the item's user; the host where nobody does, or none is known."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [pool.server(item.habitat) for item in items]


@routings.register("learned")
@dataclass(frozen=True)
class AskFavourite(Choice):
    """The label-free router's favourite, which may be the host."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [ranked[0] for ranked in favourites(pool, items, 1)]


@routings.register("committed")
@dataclass(frozen=True)
class AskFavouriteOrganelle(Choice):
    """The router's favourite among the organelles. The host answers only what is strange to all."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        ranked = favourites(pool, items, 2)
        return [next((name for name in names if name != HOST), HOST) for names in ranked]


@dataclass(frozen=True)
class AskOne(Choice):
    """One organelle, by its id, answers everything."""

    organelle_id: OrganelleId

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [self.organelle_id] * len(items)


@dataclass(frozen=True)
class AskByMap(Choice):
    """The candidate that a table names for an item's cell or family; else the host."""

    table: dict[str, OrganelleId]

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        default = (self.table.get(item.family, HOST) for item in items)
        cells = (cell_name(item.cell) for item in items)
        return [self.table.get(*pair) for pair in zip(cells, default, strict=True)]


def mapped(path: Path, known: Sequence[OrganelleId]) -> Routing:
    """Return the routing of a JSON file ``{"family" or "family/depth": "candidate"}``.

    Raises:
        DataError: the file cannot be used, or names nobody that can be asked.
    """
    try:
        table = parse_json(read_regular(path, MAX_MAP_MB))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the routing map {path}: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise DataError(
            f'routing map {path}: expected {{"family": "candidate", …}}, got {table!r:.60}'
        )
    for where, candidate in table.items():
        if candidate != HOST and candidate not in known:
            raise DataError(
                f"routing map {path}: {where!r} is given to {candidate!r};"
                f"{did_you_mean(candidate, known)} candidates: {', '.join(sorted(known))}"
            )
    return AskByMap(table)


def favourites(pool: AdapterPool, items: Sequence[Item], max_count: int) -> list[list[OrganelleId]]:
    """Return the router's favourites for each item, best first, the host among them; the host alone
    where nobody else should be asked."""
    candidates = (HOST, *pool.elites)
    questions = [last_turn(item.prompt) for item in items]
    prompts = list(dict.fromkeys(questions))
    expected = pool.expectation(prompts)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :max_count]
    ranked = {
        prompt: [HOST] if is_strange else [candidates[place] for place in row]
        for prompt, row, is_strange in zip(prompts, order, np.isinf(expected[:, 0]), strict=True)
    }
    return [ranked[question] for question in questions]


def prompt_routing(who: str, known: Collection[OrganelleId] = ()) -> Routing:
    """Return the routing of that name, or the one by which that organelle of the known answers.

    Raises:
        ConfigError: neither is there, or the routing needs labels, which a prompt has not.
    """
    if who in known:
        return AskOne(who)
    if known and who not in routings.names():
        names = sorted(known)
        raise ConfigError(
            f"who: expected a routing (symbiont list routings), or one of "
            f"{', '.join(names):.200}, got {who!r};{did_you_mean(who, [*routings.names(), *names])}"
        )
    routing = routings.build(who)
    if isinstance(routing, Choice) and routing.needs_labels:
        raise ConfigError(f"routing {who}: a prompt has no label, expected host, single, learned …")
    return routing


def check_habitat(
    habitats: Collection[str], habitat: str, about: str, option: str = HABITAT_OPTION
) -> None:
    """Refuse a user whom a run does not know. ``option`` is how the caller names it.

    Raises:
        RunError: the run has no such user, or none at all.
    """
    if not habitats:
        raise RunError(f"{about} has no habitats: leave {option} out")
    if habitat not in habitats:
        raise RunError(
            f"{about} knows no habitat {habitat!r};{did_you_mean(habitat, habitats)} it has "
            f"{len(habitats)}, such as {', '.join(sorted(habitats)[:3])}"
        )


def check_asker(config: RunConfig, habitat: str, option: str = HABITAT_OPTION) -> None:
    """Refuse a prompt without its user where a run learned from a log.

    Raises:
        ConfigError: nobody is named.
    """
    if not habitat and config.learns_from_log:
        raise ConfigError(
            "what a log accepted says nothing of prompts by themselves: expected who asks, "
            f"{option} ID"
        )

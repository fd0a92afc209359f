"""Routings: who of a pool answers an item when the adapters are in use.

``evaluate``, ``infer``, ``Run.ask`` and the harness ask by a routing. A run does not: there
``Strategy.ask`` gives out the questions, by its mechanisms and an allocator. Neither does a service
(``extensions/serve``), which goes on learning: it asks the same strategy
(``ServingSnapshot.takers``), so that a user may try adapters and new users find theirs. The key
``router`` plays no part there; where nobody explores, a service answers as the routing ``user``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Registry, did_you_mean
from symbiont_ecology.base.types import Item, OrganelleId, last_turn
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.pool import AdapterPool

Spec = str | dict[str, Any]
"""Name of a routing, or ``{kind: name, knob: value}``."""


class Routing(Protocol):
    """A way to choose from a pool who answers an item.

    One that ``needs_labels`` is an oracle: it reads the family or the cell of an item, which a
    user's prompt does not have.
    """

    needs_labels: ClassVar[bool] = False

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        """Return who answers each item."""


routings: Registry[Routing] = Registry("routing", "symbiont_ecology.evaluate.routings")


@routings.register("host")
@dataclass(frozen=True)
class AskHost(Routing):
    """The bare host answers everything."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [HOST] * len(items)


@routings.register("single")
@dataclass(frozen=True)
class AskBest(Routing):
    """The candidate that is best over all cells answers everything."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [pool.best()] * len(items)


@routings.register("user", "habitat")
@dataclass(frozen=True)
class AskServer(Routing):
    """The organelle that serves the item's user; the host where nobody does, or none is known."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [pool.server(item.user) for item in items]


@routings.register("learned")
@dataclass(frozen=True)
class AskFavourite(Routing):
    """The label-free router's favourite, which may be the host."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        candidates = (HOST, *pool.elites)
        questions = [last_turn(item.prompt) for item in items]
        prompts = list(dict.fromkeys(questions))
        highest = pool.expectation(prompts).argmax(axis=1)
        favourite = dict(zip(prompts, highest, strict=True))
        return [candidates[favourite[question]] for question in questions]


@dataclass(frozen=True)
class AskOne(Routing):
    """One organelle, by its id, answers everything."""

    organelle_id: OrganelleId

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [self.organelle_id] * len(items)


def prompt_routing(who: str, known: Collection[OrganelleId] = ()) -> Routing:
    """Return the routing of that name, or the one by which that organelle of the known answers.

    Raises:
        ConfigError: neither is there, or the routing needs labels, which a prompt has not.
    """
    if who in known:
        return AskOne(who)
    name = routings.present_name(who)
    if known and name not in routings.names():
        hint = did_you_mean(name, {*routings.names(), *known})
        raise ConfigError(
            f"who: expected a routing (symbiont list routings), or one of "
            f"{', '.join(sorted(known)):.200}, got {who!r};{hint}"
        )
    routing = routings.build(name)
    if routing.needs_labels:
        raise ConfigError(f"routing {who}: a prompt has no label, expected host, single, learned …")
    return routing

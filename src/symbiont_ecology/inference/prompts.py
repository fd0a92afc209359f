"""Prompts that somebody types: which users are known, who may answer, and who would."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.economics import Cost
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.inference.pool import AdapterPool
from symbiont_ecology.inference.routings import NEED_LABELS, Ask, Routing, routings
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.tasks.logs import learns_from_log
from symbiont_ecology.types import Item, OrganelleId

HABITAT_OPTION = "--habitat"


def check_prompt_routing(name: str) -> Routing:
    """A routing that can do without labels.

    Raises:
        ConfigError: there is none of that name, or it cannot.
    """
    if name in NEED_LABELS:
        raise ConfigError(
            f"routing {name}: a prompt has no label, expected host, single, learned …"
        )
    return routings.build(name)


def check_habitat(
    habitats: Collection[str], habitat: str, about: str, option: str = HABITAT_OPTION
) -> None:
    """Whether a run knows a habitat. ``option`` is how the caller names it.

    Raises:
        RunError: it does not, or has none.
    """
    if not habitats:
        raise RunError(f"{about} has no habitats: leave {option} out")
    if habitat not in habitats:
        raise RunError(
            f"{about} knows no habitat {habitat!r};{did_you_mean(habitat, habitats)} it has "
            f"{len(habitats)}, such as {', '.join(sorted(habitats)[:3])}"
        )


def check_asker(config: RunConfig, habitat: str, option: str = HABITAT_OPTION) -> None:
    """Whether a run can answer without being told who asks.

    Raises:
        ConfigError: it cannot, and is not.
    """
    if not habitat and learns_from_log(config):
        raise ConfigError(
            "what a log accepted says nothing of prompts by themselves: expected who asks, "
            f"{option} ID"
        )


def prompt_routing(pool: AdapterPool, who: str) -> Routing:
    """The routing of that name, or the one by which an organelle of that id answers everything.

    Raises:
        ConfigError: neither is there, or the routing needs labels.
    """
    if who in routings.names():
        return check_prompt_routing(who)
    if who not in pool.weights:
        names = sorted((*routings.names(), *pool.weights))
        raise ConfigError(
            f"who: expected a routing (symbiont list routings), or one of "
            f"{', '.join(sorted(pool.weights)):.200}, got {who!r};{did_you_mean(who, names)}"
        )

    def ask_one(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
        """The organelle answers everything."""
        return ask(items, [who] * len(items))

    return ask_one


def respondents(routing: Routing, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
    """Who would answer each item; nobody is asked.

    Raises:
        ConfigError: several would, and their answers decide.
    """
    count = 0

    def note(asked_items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """Answers without a text, of which nobody is confident: who asks on then asks on."""
        nonlocal count
        count += len(asked_items)
        nothing, cost = np.full(1, -np.inf, dtype=np.float32), Cost()
        return [
            Rollout(item, organelle_id, (0,), nothing, text="", verdict=0.0, reward=0.0, cost=cost)
            for item, organelle_id in zip(asked_items, choices, strict=True)
        ]

    rollouts = routing(pool, items, note)
    if count > len(items):
        raise ConfigError(
            "who: this routing asks several, and likelihoods have one author: expected host, "
            "single, learned, committed, or the id of an organelle"
        )
    return [rollout.organelle_id for rollout in rollouts]

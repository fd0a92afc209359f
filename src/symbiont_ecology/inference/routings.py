"""Routings: who of a pool answers an item. One function each, from items to rollouts.

A routing asks through the function that it is given, as often as it wants, and returns one rollout
for each item; its cost is that of everyone who was asked for it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.economics import Cost
from symbiont_ecology.errors import DataError
from symbiont_ecology.inference.pool import AdapterPool, leaner_id
from symbiont_ecology.registry import Registry, did_you_mean
from symbiont_ecology.tasks.grading import final_answer
from symbiont_ecology.types import Item, OrganelleId, cell_family, cell_name, last_turn
from symbiont_ecology.untrusted import parse_json, read_regular

VOTERS = 3
"""How many are asked in a vote, and at most in a cascade."""
CONFIDENT = -0.05
"""Mean log-probability per token, in nats, from which an answer of a cascade stands."""
NEED_LABELS = ("family", "cell")
"""Oracles: they read the family or the cell of an item, which a user's prompt does not have."""

Ask = Callable[[Sequence[Item], Sequence[OrganelleId]], list[Rollout]]


class Routing(Protocol):
    """A way to answer items from a pool."""

    def __call__(self, pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
        """One rollout for each item, in their order."""


routings: Registry[Routing] = Registry("routing", "symbiont_ecology.inference.routings")


@routings.function("host")
def ask_host(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The bare host answers everything."""
    return ask(items, [HOST] * len(items))


@routings.function("single")
def ask_best(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The candidate that is best over all cells answers everything."""
    return ask(items, [pool.best()] * len(items))


@routings.function("scaled")
def ask_best_scaled(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The candidate that is best over all cells, with ΔW × 0.65, answers everything."""
    best = pool.best()
    return ask(items, [HOST if best == HOST else leaner_id(best)] * len(items))


@routings.function("family")
def ask_best_of_family(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """An oracle: the best elite of any cell of the item's family."""
    cells: dict[str, list[str]] = {}
    for cell in pool.scores:
        cells.setdefault(cell_family(cell), []).append(cell)
    families = dict.fromkeys(item.family for item in items)
    chosen = {family: pool.best_of(cells.get(family, [])) for family in families}
    return ask(items, [chosen[item.family] for item in items])


@routings.function("cell")
def ask_best_of_cell(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """An oracle: the best elite of the item's cell."""
    cells = dict.fromkeys(cell_name(item.cell) for item in items)
    chosen = {cell: pool.best_of([cell]) for cell in cells}
    return ask(items, [chosen[cell_name(item.cell)] for item in items])


@routings.function("habitat")
def ask_server(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The organelle that serves the item's habitat; the host where nobody does, or none is
    known."""
    return ask(items, [pool.server(item.habitat) for item in items])


@routings.function("learned")
def ask_favourite(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The label-free router's favourite, which may be the host."""
    return ask(items, [favourites[0] for favourites in _favourites(pool, items, 1)])


@routings.function("committed")
def ask_favourite_organelle(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The router's favourite among the organelles. The host answers only what is strange to all."""
    ranked = _favourites(pool, items, 2)
    return ask(items, [next((name for name in best if name != HOST), HOST) for best in ranked])


@routings.function("vote")
def vote(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """Most of the router's favourites agree on a final answer; in a tie the first has the say."""
    ballots = _in_turn(pool, items, ask, lambda ballot: True)
    return [_elected(ballot) for ballot in ballots]


@routings.function("cascade")
def cascade(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The favourite, and the next one where nobody is confident; the most confident stands."""

    def goes_on(ballot: Sequence[Rollout]) -> bool:
        """Whether nobody was confident so far."""
        return all(rollout.confidence < CONFIDENT for rollout in ballot)

    return [_most_confident(ballot) for ballot in _in_turn(pool, items, ask, goes_on)]


@routings.function("surest")
def ask_everyone(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """Everyone, the host too; the most confident has the say. It needs neither labels nor a router.

    Of an organelle that holds several cells, only its latest moment is asked.
    """
    moments = sorted(pool.elites, key=lambda elite: int(elite.partition("@")[2] or 0))
    latest = {elite.partition("@")[0]: elite for elite in moments}
    candidates = [HOST, *latest.values()]
    rollouts = ask([item for item in items for _ in candidates], candidates * len(items))
    starts = range(0, len(rollouts), len(candidates))
    return [_most_confident(rollouts[start : start + len(candidates)]) for start in starts]


def mapped(path: Path, known: Sequence[OrganelleId]) -> Routing:
    """The routing of a JSON file ``{"family" or "family/depth": "candidate"}``; else the host.

    Raises:
        DataError: the file cannot be used, or names nobody that can be asked.
    """
    try:
        table = parse_json(read_regular(path, 16))
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

    def by_map(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
        """Whom the file names for the cell, or for the family."""
        default = [table.get(item.family, HOST) for item in items]
        names = [cell_name(item.cell) for item in items]
        return ask(items, [table.get(*pair) for pair in zip(names, default, strict=True)])

    return by_map


def _favourites(pool: AdapterPool, items: Sequence[Item], most: int) -> list[list[OrganelleId]]:
    """The router's favourites for each item, best first, the host among them; the host alone where
    nobody else should be asked."""
    candidates = (HOST, *pool.elites)
    questions = [last_turn(item.prompt) for item in items]
    prompts = list(dict.fromkeys(questions))
    expected = pool.expectation(prompts)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :most]
    ranked = {
        prompt: [HOST] if is_strange else [candidates[place] for place in row]
        for prompt, row, is_strange in zip(prompts, order, np.isinf(expected[:, 0]), strict=True)
    }
    return [ranked[question] for question in questions]


def _in_turn(
    pool: AdapterPool, items: Sequence[Item], ask: Ask, goes_on: Callable[[Sequence[Rollout]], bool]
) -> list[list[Rollout]]:
    """Asks favourite after favourite about the items whose answers so far say ``goes_on``."""
    ranked = _favourites(pool, items, VOTERS)
    ballots: list[list[Rollout]] = [[] for _ in items]
    for place in range(max(map(len, ranked), default=0)):
        open_items = [
            index
            for index, favourites in enumerate(ranked)
            if place < len(favourites) and goes_on(ballots[index])
        ]
        rollouts = ask(
            [items[index] for index in open_items], [ranked[index][place] for index in open_items]
        )
        for index, rollout in zip(open_items, rollouts, strict=True):
            ballots[index].append(rollout)
    return ballots


def _most_confident(ballot: Sequence[Rollout]) -> Rollout:
    """The most confident rollout, at the cost of all."""
    chosen = max(ballot, key=lambda rollout: rollout.confidence)
    return replace(chosen, cost=sum((rollout.cost for rollout in ballot), Cost()))


def _elected(ballot: Sequence[Rollout]) -> Rollout:
    votes = Counter(final_answer(rollout.text) for rollout in ballot)
    most = max(votes.values())
    chosen = next(rollout for rollout in ballot if votes[final_answer(rollout.text)] == most)
    return replace(chosen, cost=sum((rollout.cost for rollout in ballot), Cost()))

"""Routings for studies: oracles that read labels, votes that ask several, parts of ΔW, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import PositiveShare, did_you_mean
from symbiont_ecology.base.types import Item, OrganelleId, cell_family, cell_name
from symbiont_ecology.base.untrusted import parse_json, read_regular
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.pool import TIMES, AdapterPool
from symbiont_ecology.evaluate.routings import Ask, Choice, favourites, routings
from symbiont_ecology.tasks.grading import final_answer

MAX_MAP_MB = 16
"""Size of a file that says who answers."""
MAX_VOTERS = 3
"""Candidates that are asked in a vote, and at most in a cascade."""
CONFIDENT = -0.05
"""Mean log-probability per token, in nats, from which an answer of a cascade stands."""


def best_of(pool: AdapterPool, cells: Sequence[str]) -> OrganelleId:
    """Return the elite with the highest success in one of the cells, or the host."""
    scores = [
        (score, name)
        for cell in cells
        for name, score in pool.scores.get(cell, {}).items()
        if name in pool.elites
    ]
    return max(scores, default=(0.0, HOST))[1]


@routings.register("family")
@dataclass(frozen=True)
class AskBestOfFamily(Choice):
    """An oracle: the best elite of any cell of the item's family."""

    needs_labels: ClassVar[bool] = True

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        cells: dict[str, list[str]] = {item.family: [] for item in items}
        for cell in pool.scores:
            cells.setdefault(cell_family(cell), []).append(cell)
        chosen = {item.family: best_of(pool, cells[item.family]) for item in items}
        return [chosen[item.family] for item in items]


@routings.register("cell")
@dataclass(frozen=True)
class AskBestOfCell(Choice):
    """An oracle: the best elite of the item's cell."""

    needs_labels: ClassVar[bool] = True

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        return [best_of(pool, [cell_name(item.cell)]) for item in items]


@routings.register("committed")
@dataclass(frozen=True)
class AskFavouriteOrganelle(Choice):
    """The router's favourite among the organelles. The host answers only what is strange to all."""

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        ranked = favourites(pool, items, 2)
        return [next((name for name in names if name != HOST), HOST) for names in ranked]


@routings.register("scaled")
@dataclass(frozen=True)
class AskBestScaled(Choice):
    """The candidate that is best over all cells, with a part of its ΔW, answers everything.

    On the embedded host 0.65 of it has nearly all of the skill and forgets half as much
    (docs/log.md).
    """

    scale: PositiveShare = 0.65  # part of ΔW

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        best = pool.best()
        return [HOST if best == HOST else f"{best}{TIMES}{self.scale:g}"] * len(items)


@routings.register("map")
@dataclass(frozen=True)
class AskByMap(Choice):
    """The candidate that a JSON file ``{"family" or "family/depth": "candidate"}`` names for an
    item; else the host."""

    path: str  # of the file

    @cached_property
    def table(self) -> dict[str, OrganelleId]:
        """The file's content.

        Raises:
            DataError: it cannot be used.
        """
        try:
            table = parse_json(read_regular(Path(self.path), MAX_MAP_MB))
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read the routing map {self.path}: {error}") from error
        if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
            raise DataError(
                f'routing map {self.path}: expected {{"family": "candidate", …}}, got {table!r:.60}'
            )
        return table

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        for where, candidate in self.table.items():
            if candidate != HOST and candidate not in pool.weights:
                known = sorted(pool.weights)
                raise DataError(
                    f"routing map {self.path}: {where!r} is given to {candidate!r};"
                    f"{did_you_mean(candidate, known)} candidates: {', '.join(known)}"
                )
        default = (self.table.get(item.family, HOST) for item in items)
        cells = (cell_name(item.cell) for item in items)
        return [self.table.get(*pair) for pair in zip(cells, default, strict=True)]


@routings.function("vote")
def vote(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """Most of the router's favourites agree on a final answer; in a tie the first has the say."""
    ballots = _in_turn(pool, items, ask, lambda ballot: True)
    return [_elected(ballot) for ballot in ballots]


@routings.function("cascade")
def cascade(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """The favourite, and the next one where nobody is confident; the most confident stands."""

    def goes_on(ballot: Sequence[Rollout]) -> bool:
        return all(rollout.confidence < CONFIDENT for rollout in ballot)

    return [_most_confident(ballot) for ballot in _in_turn(pool, items, ask, goes_on)]


@routings.function("surest")
def ask_everyone(pool: AdapterPool, items: Sequence[Item], ask: Ask) -> list[Rollout]:
    """Everyone, the host too; the most confident has the say. It needs neither labels nor a router.

    Of an organelle that holds several cells, only its latest moment is asked.
    """
    moments = sorted(pool.elites, key=lambda elite: int(elite.partition("@")[2] or 0))
    latest = {elite.partition("@")[0]: elite for elite in moments}
    return [_most_confident(ballot) for ballot in _everyone(items, [HOST, *latest.values()], ask)]


def _everyone(
    items: Sequence[Item], candidates: Sequence[OrganelleId], ask: Ask
) -> list[list[Rollout]]:
    """Ask all candidates about each item."""
    rollouts = ask([item for item in items for _ in candidates], [*candidates] * len(items))
    starts = range(0, len(rollouts), len(candidates))
    return [rollouts[start : start + len(candidates)] for start in starts]


def _in_turn(
    pool: AdapterPool, items: Sequence[Item], ask: Ask, goes_on: Callable[[Sequence[Rollout]], bool]
) -> list[list[Rollout]]:
    """Ask favourite after favourite about the items whose answers so far say ``goes_on``."""
    ranked = favourites(pool, items, MAX_VOTERS)
    ballots: list[list[Rollout]] = [[] for _ in items]
    for place in range(max(map(len, ranked), default=0)):
        open_items = [
            index
            for index, names in enumerate(ranked)
            if place < len(names) and goes_on(ballots[index])
        ]
        rollouts = ask(
            [items[index] for index in open_items], [ranked[index][place] for index in open_items]
        )
        for index, rollout in zip(open_items, rollouts, strict=True):
            ballots[index].append(rollout)
    return ballots


def _most_confident(ballot: Sequence[Rollout]) -> Rollout:
    """Return the most confident rollout, at the cost of all."""
    chosen = max(ballot, key=lambda rollout: rollout.confidence)
    return replace(chosen, cost=sum((rollout.cost for rollout in ballot), Cost()))


def _elected(ballot: Sequence[Rollout]) -> Rollout:
    """Return the first rollout with the answer that most agree on, at the cost of all."""
    votes = Counter(final_answer(rollout.text) for rollout in ballot)
    chosen = max(ballot, key=lambda rollout: votes[final_answer(rollout.text)])
    return replace(chosen, cost=sum((rollout.cost for rollout in ballot), Cost()))


# Transfer between families.

"""Routings for studies: oracles that read labels, votes that ask several, and the transfer of each
family's best organelle to other families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item, OrganelleId, cell_family, cell_name
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import Ask, AskOne, Choice, favourites, routings
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.grading import final_answer
from symbiont_ecology.tasks.mixture import TaskMixture

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


SELECTION_PER_CELL = 8
"""Selection items per cell that say which organelle is a family's best."""


@dataclass(frozen=True)
class TransferMatrix:
    """``organelles`` are each family's best, ``accuracy[owner][family]`` theirs on every family.

    ``gain`` is their mean gain over the host: on the family itself (``own``), on other families of
    its convention group, and on all others; None if there are none.
    """

    organelles: Mapping[str, OrganelleId]
    host: Mapping[str, float]
    accuracy: Mapping[str, Mapping[str, float]]
    gain: Mapping[str, float | None]


def transfer_matrix(
    run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
) -> TransferMatrix:
    """Ask the best organelle of every family about every family."""
    mixture = run.tasks
    selection = draw_shifts(mixture, ["in-distribution"], SELECTION_PER_CELL, split="selection")
    run = run.reselected(selection, host, progress)
    cells: dict[str, list[str]] = {name: [] for name in mixture.families}
    for cell in run.pool.scores:
        cells.setdefault(cell_family(cell), []).append(cell)
    best = {name: best_of(run.pool, cells[name]) for name in mixture.families}
    host_shares = run.evaluate(items, host, "host", progress=progress).by_family()
    accuracy, gains = {}, dict[str, list[float]](own=[], group=[], others=[])
    for owner, organelle_id in best.items():
        routing = ("transfer", AskOne(organelle_id))
        shares = run.evaluate(items, host, routing, progress=progress).by_family()
        accuracy[owner] = {name: share.estimate for name, share in shares.items()}
        for name, share in shares.items():
            is_near = _group(name, mixture) == _group(owner, mixture)
            kind = "own" if name == owner else "group" if is_near else "others"
            gains[kind].append(share.estimate - host_shares[name].estimate)
    means = {kind: sum(gain) / len(gain) if gain else None for kind, gain in gains.items()}
    return TransferMatrix(
        best, {name: share.estimate for name, share in host_shares.items()}, accuracy, means
    )


def _group(name: str, mixture: TaskMixture) -> str:
    """Return the convention group of a family, which may be one that the run never met, or a word
    of somebody's file."""
    if name not in mixture.families and name not in tasks.names():
        return name
    return (mixture.families.get(name) or tasks.build(name)).group

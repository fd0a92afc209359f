"""Measures of adapters and their controls on rows that nobody learned from, and what follows.

*AUC* (area under the curve): how often a reply that a user accepted gets a higher score than one
that the same user refused; .5 is chance. The score of an adapter is how much likelier it makes a
reply than the bare model does, in nats per token; that of the bare model is its own
log-probability. Intervals are of 95 %, over users (bootstrap, Efron 1979), paired where two are
compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from symbiont_ecology.base.types import HOST_SLOT, Decoding, Item, Request, last_turn
from symbiont_ecology.extensions.company.grouping import Group, Grouping
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.run import Run

OURS, BARE = "groups", "bare"
ARMS = {
    OURS: "an adapter for each group of users who want the same",
    "all": "one adapter for all users",
    "each": "an adapter for each user",
    "random": "an adapter for each of as many groups, of as many users, by chance",
}
"""Who has an adapter, by the name of the arm; all but the first are controls."""
RESAMPLES = 2000
"""Of a bootstrap."""
MAX_EACH = 64
"""Users, from which on nobody learns an adapter for each of them."""
QUESTIONS, REPLY_TOKENS, WARMTH = 6, 64, 0.7
"""New replies for each group, their longest, and the temperature at which they are drawn."""
MARGIN = 0.05
"""Acceptance that is given up for something simpler."""


@dataclass(frozen=True)
class Measured:
    """An estimate with its interval, and of how many."""

    estimate: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Reply:
    """New replies to one question: of the bare model, and of a group's adapter; and how likely the
    group is to accept each, by its judge."""

    prompt: str
    bare: str
    adapted: str
    bare_chance: float
    adapted_chance: float


def arms_of(grouping: Grouping, seed: int) -> dict[str, list[Group]]:
    """Return the groups of each arm. An arm that is the same as another is left out."""
    ours = {user: group.name for group in grouping.groups for user in group.users}
    users, generator = sorted(ours), np.random.default_rng([seed, 1])
    order = generator.permutation(len(users))
    mixed = {user: ours[users[place]] for user, place in zip(users, order, strict=True)}
    arms = {OURS: grouping.groups}
    if len(grouping.groups) > 1:
        arms["all"] = grouping.of({"all": dict.fromkeys(users, 1.0)})
        arms["random"] = grouping.of(_members(mixed))
    if len(grouping.groups) < len(users) <= MAX_EACH:
        alone = {user: f"u{number}" for number, user in enumerate(users, 1)}
        arms["each"] = grouping.of(_members(alone))
    return arms


def _members(group_of: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return the users of each group, whose place is given."""
    members: dict[str, dict[str, float]] = defaultdict(dict)
    for user, group in group_of.items():
        members[group][user] = 1.0
    return members


def scores_of(kernel: HostKernel, run: Run | None, items: Sequence[Item]) -> np.ndarray:
    """Return the log-probability of each logged reply, in nats per token, ``(items,)``, by the
    adapter of its user; without a run, by the bare model."""
    state = run.state if run else None
    prompts = [item.prompt for item in items]
    answers = kernel.encode_answers([item.logged.text for item in items if item.logged])
    scores = np.zeros(len(items))
    servers = [state.users[item.user].chosen if state else "" for item in items]
    for server in sorted({*servers}):
        rows = [row for row, name in enumerate(servers) if name == server]
        if run is not None:
            kernel.place(0, run.loaded.pool.weights[server])
        slot = HOST_SLOT if run is None else 0
        own = kernel.score([prompts[row] for row in rows], [answers[row] for row in rows], slot)
        scores[rows] = [float(values.mean()) for values in own]
    return scores


def pairs_of(items: Sequence[Item], scores: np.ndarray) -> np.ndarray:
    """Return, for each user, how many pairs of an accepted and a refused reply are in the right
    order (half of those with equal scores), and how many there are, ``(users, 2)``."""
    by_user: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for item, score in zip(items, scores.tolist(), strict=True):
        assert item.logged is not None
        by_user[item.user][0 if item.logged.is_accepted else 1].append(score)
    pairs = []
    for _, (accepted, refused) in sorted(by_user.items()):
        gaps = np.subtract.outer(accepted, refused)
        pairs.append(((gaps > 0).sum() + (gaps == 0).sum() / 2, gaps.size))
    return np.array(pairs, float).reshape(-1, 2)


def share(pairs: np.ndarray, other: np.ndarray | None = None, seed: int = 0) -> Measured:
    """Return the share of pairs in the right order; or by how much it is above another one's."""
    count = len(pairs)
    sums = [pairs[:, 0].copy(), pairs[:, 1]]
    if other is not None:
        sums[0] -= other[:, 0]
    total = float(sums[1].sum())
    if not total:
        return Measured(float("nan"), float("nan"), float("nan"), 0)
    drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    above, below = sums[0][drawn].sum(1), sums[1][drawn].sum(1)
    resampled = above[below > 0] / below[below > 0]
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
    return Measured(float(sums[0].sum() / total), low, high, int(total))


def mean(values: Sequence[float], seed: int = 0) -> Measured:
    """Return a mean with its interval by resampling."""
    if not values:
        return Measured(float("nan"), float("nan"), float("nan"), 0)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.array(values)[drawn].mean(1), (0.025, 0.975)).tolist()
    return Measured(float(np.mean(values)), low, high, len(values))


def new_replies(kernel: HostKernel, run: Run, group: Group, items: Sequence[Item]) -> list[Reply]:
    """Return replies of the bare model and of a group's adapter to the same questions, drawn by the
    same chance."""
    server = run.state.users[group.users[0]].chosen
    kernel.place(0, run.loaded.pool.weights[server])
    decoding, texts = Decoding(temperature=WARMTH), dict[int, list[str]]()
    for slot in (HOST_SLOT, 0):
        asked = [Request(item.prompt, slot, REPLY_TOKENS) for item in items]
        draws = [np.random.default_rng([2, number]) for number in range(len(items))]
        texts[slot] = list(kernel.rollout(asked, draws, decoding).texts)
    chances = {slot: group.chances_of(own).tolist() for slot, own in texts.items()}
    columns = texts[HOST_SLOT], texts[0], chances[HOST_SLOT], chances[0]
    return [
        Reply(last_turn(item.prompt), *row)
        for item, row in zip(items, zip(*columns, strict=True), strict=True)
    ]


def decided(above_bare: Measured, gain: Measured) -> tuple[str, str]:
    """Return what to do, and why: ``yes``, ``no``, or ``collect more``.

    ``above_bare`` is the AUC of the adapters less that of the bare model on rows that nobody
    learned from, ``gain`` how much more of their new replies the judges expect to be accepted.
    """
    if above_bare.n and above_bare.low > 0 and gain.low > 0:
        return "yes", "accepted replies got likelier than refused ones, and new replies please more"
    if above_bare.n and (above_bare.high < 0 or gain.high <= 0):
        return "no", "the adapters please no more than the bare model does"
    needed = _times_more(above_bare)
    more = f"about {needed:.0f} times as many verdicts would say" if needed else "add verdicts"
    return "collect more", f"what was seen may be chance: {more}"


def _times_more(measured: Measured) -> float:
    """Return how many times as much would make an interval leave 0 out; 0 if nobody can say."""
    half = (measured.high - measured.low) / 2
    if not measured.n or measured.estimate <= 0:
        return 0.0
    return max(float(np.ceil((half / measured.estimate) ** 2)), 2.0)


def as_record(measured: Measured) -> dict[str, float | int | None]:
    """Return it for JSON, rounded."""
    return {
        name: None if value != value else round(value, 4)
        for name, value in asdict(measured).items()
    }

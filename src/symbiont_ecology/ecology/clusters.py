"""Clusters of users: which users want the same, so that one adapter serves them.

This is what the ecology lives by. What a user accepted, and refused, says what they want. The
*sketches* of these answers (or their coordinates, ``Basis``) are vectors that do not depend
on what adapters have learned by then. Answers of one kind, in one family, are taken to lie around a
mean, with the same variance everywhere. So a set of users is summed up by ``ClusterStats``, and how
well one adapter explains it is the marginal likelihood of that model. The number of kinds is not
given: it is a Dirichlet-process mixture (Ferguson 1973; Neal 2000), whose assignments
``ClusterAssignment`` changes a little in every generation (iterated conditional modes, Besag 1986).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import combinations
from math import lgamma, log
from operator import add
from typing import TypeVar

import numpy as np

from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.success import SuccessPosterior
from symbiont_ecology.ecology.users import SURE, RememberedAnswer, shared_among

_Name = TypeVar("_Name", int, str)
MAX_ROUNDS = 10
"""Rounds in which ``cluster`` merges groups and moves their members."""
MIN_ACCEPTED = 2
"""Accepted answers that a new cluster needs."""
ENOUGH_ANSWERS = 10
"""Answers, right or wrong, after which a new cluster needs no accepted ones, if all clusters have
been tried."""
NEW_CLUSTER_SCORE = log(SuccessPosterior().mean)
"""Score of a new cluster for a user: nothing is known of an adapter that is still to be born."""


@dataclass(frozen=True, eq=False)
class ClusterStats:
    """Sums of answers' vectors by family ``(families, dimensions)``, and how many there are
    ``(families,)``. Where answers have no vectors, there is one dimension."""

    sums: np.ndarray
    counts: np.ndarray

    def __add__(self, other: ClusterStats) -> ClusterStats:
        return ClusterStats(self.sums + other.sums, self.counts + other.counts)

    def __sub__(self, other: ClusterStats) -> ClusterStats:
        return ClusterStats(self.sums - other.sums, self.counts - other.counts)

    def at_most(self, count: float) -> ClusterStats:
        """Return the same, said by fewer answers: n count as n · count ÷ (n + count)."""
        shares = count / (self.counts + count)
        return ClusterStats(self.sums * shares[:, None], self.counts * shares)

    @cached_property
    def is_empty(self) -> bool:
        """True if there are no answers."""
        return not self.counts.any()

    @cached_property
    def mass(self) -> np.ndarray:
        """The squared length of each family's sum, ``(families,)``."""
        mass: np.ndarray = np.einsum("fd,fd->f", self.sums, self.sums)
        return mass


@dataclass(frozen=True)
class MixturePrior:
    """Parameters of the mixture: how alike answers of one kind are, and what a cluster costs.

    ``precision`` is 1 ÷ the variance of a vector around the mean of its kind. ``prior_count`` is
    that variance ÷ the variance of means, in answers. ``cluster_cost`` is half of the number of
    directions that matter, in nats per log of answers. Answers that one adapter wrote resemble each
    other beyond their kind, so they count as ``max_count`` independent ones at most (design effect,
    Kish 1965). ``refusal_weight`` is what a refused answer counts, against its direction.
    ``uses_sizes``: large clusters attract users. docs/history has the measurements.
    """

    precision: float
    prior_count: float
    cluster_cost: float
    max_count: float = math.inf
    refusal_weight: float = 0.3
    uses_sizes: bool = True

    def log_odds(self, stats: ClusterStats, other: ClusterStats) -> float:
        """Return the log-odds that two sets of answers are of one kind, in nats, without prior.

        Of one kind, they have one mean in every family. Of two kinds, they have it in some of them
        by chance: so agreement about one says little, and a conflict says a lot.

        Anna accepted two answers in one direction, Ben two in another one:

        >>> anna = ClusterStats(sums=np.array([[2.0, 0.0]]), counts=np.array([2.0]))
        >>> ben = ClusterStats(sums=np.array([[0.0, 2.0]]), counts=np.array([2.0]))
        >>> round(SKETCHES.log_odds(anna, anna), 1), round(SKETCHES.log_odds(anna, ben), 1)
        (15.8, -7.1)
        """
        return float(self.all_log_odds([stats], other)[0])

    def all_log_odds(self, stats: Sequence[ClusterStats], other: ClusterStats) -> np.ndarray:
        """Return the ``log_odds`` of each of these with another one, ``(stats,)``."""
        if not stats:
            return np.zeros(0)
        if math.isfinite(self.max_count):
            stats = [one.at_most(self.max_count) for one in stats]
            other = other.at_most(self.max_count)
        sums = np.stack(np.broadcast_arrays(*(one.sums + other.sums for one in stats)))
        counts = np.stack([one.counts for one in stats])
        mass = np.stack([one.mass for one in stats])
        together = self._log_marginal(np.einsum("sfd,sfd->sf", sums, sums), counts + other.counts)
        apart = self._log_marginal(mass, counts)
        gains = together - apart - self._log_marginal(other.mass, other.counts)
        shared = shared_among(gains.shape[1])
        if shared:
            gains -= np.logaddexp(np.log(shared) + gains, np.log1p(-shared))
        log_odds: np.ndarray = gains.sum(1)
        return log_odds

    def attraction(self, size: int) -> int:
        """Return the prior weight of a cluster of so many users."""
        return max(size, 1) if self.uses_sizes else 1

    def union_log_odds(self, first: int, second: int) -> float:
        """Return the prior log-odds, in nats, that clusters of these sizes are one."""
        if not self.uses_sizes:
            return 0.0
        return lgamma(first + second) - lgamma(first) - lgamma(second)

    def _log_marginal(self, mass: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the log marginal likelihood of vectors around one mean, from the squared length of
        their sum and their number, in nats, up to a term that no grouping changes."""
        gain = self.precision * mass / (2 * (counts + self.prior_count))
        cost = self.cluster_cost * np.log1p(counts / self.prior_count)
        log_marginal: np.ndarray = gain - cost
        return log_marginal


SKETCHES = MixturePrior(precision=40.0, prior_count=3.0, cluster_cost=12.0)
"""Of sketches of the shipped families."""
CENTRED_SKETCHES = MixturePrior(precision=240.0, prior_count=25.0, cluster_cost=25.0)
"""Of sketches minus the mean of their family: open questions on a real model."""
COORDINATES = MixturePrior(
    precision=18.0,
    prior_count=0.9,
    cluster_cost=4.0,
    max_count=4.0,
    refusal_weight=0.0,
    uses_sizes=False,
)
"""Of coordinates: open questions on a real model. In few directions kinds are not at right angles,
so a refusal would speak for some of the others. Measured: it says nothing of them, and large
clusters attract users that do not belong to them."""


def prior_in(state: EcologyState) -> MixturePrior:
    """Return the prior for the vectors that answers have there."""
    if state.sketch_space.bases:
        return COORDINATES
    return CENTRED_SKETCHES if state.sketch_space.common else SKETCHES


def stats_of(
    answers: Iterable[RememberedAnswer], families: Sequence[str], *, refusal_weight: float = 0.0
) -> ClusterStats:
    """Return the statistics of accepted answers, minus those of refused ones.

    Statistics with refusals are to be compared with those without: that two users refuse the same
    says nothing.
    """
    place = {name: row for row, name in enumerate(families)}
    counted = (answer for answer in answers if answer.is_accepted or refusal_weight)
    pairs = [(answer, vector) for answer in counted if (vector := answer.vector) is not None]
    sums = np.zeros((len(families), len(pairs[0][1]) if pairs else 1))
    counts = np.zeros(len(families))
    for answer, vector in pairs:
        row, weight = place[answer.family], 1.0 if answer.is_accepted else refusal_weight
        sums[row] += vector if answer.is_accepted else -weight * vector
        counts[row] += weight
    return ClusterStats(sums, counts)


@dataclass(eq=False)
class ClusterAssignment:
    """The cluster of each user while it is being revised. A cluster is an adapter, by its name.

    ``shared`` is how often two kinds agree about a family. ``servers`` are adapters by user, or
    names of clusters whose adapter is still to be born. ``accepted`` are the statistics of users,
    ``with_refusals`` the same less what they refused. ``stats`` are those of clusters;
    ``remembered`` is what the living and the dormant remember of users that changed. ``sizes``
    counts the users of each cluster that accepted something: a cluster that pleases nobody attracts
    nobody.
    """

    state: EcologyState
    prior: MixturePrior
    shared: float
    move_penalty: float
    with_refusals: dict[str, ClusterStats]
    accepted: dict[str, ClusterStats]
    remembered: dict[str, ClusterStats]
    servers: dict[str, str]
    stats: dict[str, ClusterStats]
    sizes: Counter[str] = field(default_factory=Counter)
    new_clusters: int = 0

    @classmethod
    def of(
        cls, state: EcologyState, families: Sequence[str], move_penalty: float
    ) -> ClusterAssignment:
        """Return the present assignment. A user of whom nothing is known is left out."""
        prior = prior_in(state)
        with_refusals = {
            name: stats_of(user.answers, families, refusal_weight=prior.refusal_weight)
            for name, user in state.users.items()
            if user.answers
        }
        accepted = {name: stats_of(state.users[name].answers, families) for name in with_refusals}
        remembered = {
            organelle.id: stats_of(organelle.memories, families)
            for organelle in (*state.population.values(), *state.dormant.values())
            if organelle.memories
        }
        settings = prior, shared_among(len(families)), move_penalty
        assignment = cls(
            state, *settings, with_refusals, accepted, remembered, {}, dict(remembered)
        )
        for name in with_refusals:
            if (server := state.users[name].chosen) in state.population:
                assignment._place(name, server)
        return assignment

    def move(self, name: str) -> None:
        """Move a user to the cluster that explains it best, or to a new one.

        A cluster that pleases nobody is no choice, unless the user is in it. A user that accepted
        nothing yet has no reason to stay.
        """
        before = self._leave(name)
        scores = self._scores(name)
        if before is not None:
            penalty = self.move_penalty if self.state.users[name].accepted else 0.0
            scores[before] = penalty + scores.get(before, self._score_alone(name, before))
        best = max(scores, key=scores.__getitem__, default=None)
        if best is None or scores[best] < NEW_CLUSTER_SCORE:
            self.new_clusters += 1
            best = f"new cluster {self.new_clusters}"
        self._place(name, best)

    def may_found(self, *names: str) -> bool:
        """Return True if users accepted enough for a new cluster, or all others have failed."""
        users = [self.state.users[name] for name in names]
        servers = set(+self.sizes)
        return sum(len(user.accepted) for user in users) >= MIN_ACCEPTED or any(
            len(user.answers) >= ENOUGH_ANSWERS
            and servers <= {answer.organelle_id for answer in user.answers}
            for user in users
        )

    def merge(self) -> None:
        """Merge clusters whose users would be pleased by either, the best pair first."""
        stats = {server: self._with_refusals_of(server) for server in self._pleasing()}

        def join(first: str, second: str) -> None:
            server = self._join(first, second)
            stats[server] = self._with_refusals_of(server)

        agglomerate(self._pleasing, partial(self._gain, stats), join, self.move_penalty)

    def by_server(self) -> dict[OrganelleId, list[str]]:
        """Return the users of each cluster."""
        users: dict[str, list[str]] = {}
        for name, server in self.servers.items():
            users.setdefault(server, []).append(name)
        return users

    def _scores(self, name: str) -> dict[str, float]:
        """Return how well each cluster explains a user that is in none, in nats: likelihood,
        verdicts on its adapter, size, and the adapter's record with others."""
        user = self.state.users[name]
        servers = [
            server for server in self.stats if self.sizes[server] or server in self.remembered
        ]
        stats = [self.stats[server] for server in servers]
        log_odds = self.prior.all_log_odds(stats, self.with_refusals[name]).tolist()
        return {
            server: odds
            + user.trust(server, self.shared)
            + log(
                self.prior.attraction(self.sizes[server]) * self.state.record(server, but_for=name)
            )
            for server, odds in zip(servers, log_odds, strict=True)
        }

    def _score_alone(self, name: str, server: str) -> float:
        """Return a user's score for its own adapter, which pleases nobody else: it is left for a
        new cluster on sure evidence alone."""
        trust = self.state.users[name].trust(server, self.shared)
        return min(trust + SURE, 0.0) + log(self.state.record(server, but_for=name))

    def _pleasing(self) -> list[str]:
        """Return the clusters of users that accepted something."""
        return [server for server in self.by_server() if self.sizes[server]]

    def _with_refusals_of(self, server: str) -> ClusterStats:
        return reduce(add, map(self.with_refusals.__getitem__, self._users(server)))

    def _join(self, first: str, second: str) -> str:
        """Move all users of the worse of two clusters to the better one, which is returned."""
        worse, better = sorted(
            (first, second),
            key=lambda server: (
                server in self.state.population,
                self.stats[server].counts.sum(),  # the adapter with more answers has learned more
            ),
        )
        self.servers |= dict.fromkeys(self._users(worse), better)
        self.sizes[better] += self.sizes.pop(worse)
        self.stats[better] += self.stats.pop(worse)
        if worse in self.remembered:
            self.stats[better] -= self.remembered[worse]
            self.stats[worse] = self.remembered[worse]
        return better

    def _users(self, server: str) -> list[str]:
        return [name for name, owner in self.servers.items() if owner == server]

    def _gain(self, stats: Mapping[str, ClusterStats], first: str, second: str) -> float:
        """Return the gain in log-likelihood if both clusters are one, in nats."""
        prior = self.prior.union_log_odds(self.sizes[first], self.sizes[second])
        one, other = self._fit(stats, first, second), self._fit(stats, second, first)
        return min(one, other) + prior

    def _fit(self, stats: Mapping[str, ClusterStats], server: str, rival: str) -> float:
        """Return what the users of a rival say for a cluster, in nats."""
        users = (self.state.users[name] for name in self._users(rival))
        trust = sum(user.trust(server, self.shared) for user in users)
        return self.prior.log_odds(self.stats[server], stats[rival]) + trust

    def _leave(self, name: str) -> str | None:
        """Take a user out of its cluster, which is returned; forget it if it is empty then."""
        before, accepted = self.servers.pop(name, None), self.accepted[name]
        if before is not None:
            self.sizes[before] -= not accepted.is_empty
            self.stats[before] -= accepted
            if before not in self.remembered and before not in self.servers.values():
                del self.stats[before]
        return before

    def _place(self, name: str, server: str) -> None:
        self.servers[name] = server
        accepted = self.accepted[name]
        self.sizes[server] += not accepted.is_empty
        known = self.stats.get(server)
        self.stats[server] = accepted if known is None else known + accepted


def cluster(stats: Sequence[ClusterStats], prior: MixturePrior) -> list[list[int]]:
    """Return clusters as lists of places, the largest first.

    The best pair of clusters becomes one as long as that explains more, and each member goes to the
    cluster that explains it best, until nothing changes.
    """
    groups = [[place] for place in range(len(stats))]
    for _ in range(MAX_ROUNDS):
        before = sorted(map(sorted, groups))
        groups = _moved(_merged(groups, stats, prior), stats, prior)
        if sorted(map(sorted, groups)) == before:
            break
    return sorted(map(sorted, groups), key=lambda group: (-len(group), group))


def agglomerate(
    names: Callable[[], Iterable[_Name]],
    gain: Callable[[_Name, _Name], float],
    join: Callable[[_Name, _Name], object],
    min_gain: float = 0.0,
) -> None:
    """Join the best pair as long as that gains more than so many nats.

    ``names`` returns who is there. ``gain`` is what it gains if two are one; it may change for the
    two that ``join`` made one, and for nobody else.
    """
    known: dict[tuple[_Name, _Name], float] = {}
    while True:
        gains: dict[tuple[_Name, _Name], float] = {
            pair: known[pair] if pair in known else gain(*pair) for pair in combinations(names(), 2)
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= min_gain:
            return
        first, second = best
        join(first, second)
        known = {key: old for key, old in gains.items() if first not in key and second not in key}


def _merged(
    groups: list[list[int]], stats: Sequence[ClusterStats], prior: MixturePrior
) -> list[list[int]]:
    """Return the groups, the best pair made one as long as that explains more."""
    members = dict(enumerate(groups))
    sums = {name: _sum(group, stats) for name, group in members.items()}

    def gain(first: int, second: int) -> float:
        union = prior.union_log_odds(len(members[first]), len(members[second]))
        return prior.log_odds(sums[first], sums[second]) + union

    def join(first: int, second: int) -> None:
        members[first] = members[first] + members.pop(second)
        sums[first] = sums[first] + sums.pop(second)

    agglomerate(lambda: members, gain, join)
    return list(members.values())


def _moved(
    groups: list[list[int]], stats: Sequence[ClusterStats], prior: MixturePrior
) -> list[list[int]]:
    """Return the groups after each member went where it is explained best, or to its own group."""
    for place, own in enumerate(stats):
        rest = [members for group in groups if (members := [p for p in group if p != place])]
        log_odds = prior.all_log_odds([_sum(group, stats) for group in rest], own)
        scores = [
            odds + log(prior.attraction(len(group)))
            for odds, group in zip(log_odds, rest, strict=True)
        ]
        best = max(range(len(rest)), key=scores.__getitem__, default=None)
        if best is None or scores[best] <= 0:
            rest.append([])
            best = -1
        rest[best].append(place)
        groups = rest
    return groups


def _sum(group: Sequence[int], stats: Sequence[ClusterStats]) -> ClusterStats:
    return reduce(add, (stats[place] for place in group))

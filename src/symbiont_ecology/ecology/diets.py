"""Diets: who eats what, and whether two diets are of one kind.

A diet is the sum of the sketches of accepted answers, or of their coordinates, for each family
apart; a taste is a diet less what was refused. Answers of one kind point the same way. So those of
one kind, in one family, are taken to lie around a mean (Gaussian, the same width everywhere), and
how well a set of habitats is explained by one organelle is the marginal likelihood of that model.
The model also says what one more organelle costs: it is a mixture, and the number of its components
is not given (Dirichlet process, Ferguson 1973; Neal 2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from math import lgamma, log
from operator import add
from typing import TypeVar

import numpy as np

from symbiont_ecology.ecology.habitats import RememberedAnswer, shared_among
from symbiont_ecology.ecology.state import EcologyState

_Name = TypeVar("_Name", int, str)
MOST_ROUNDS = 10
"""Rounds in which groups of diets are put together and moved."""


@dataclass(frozen=True, eq=False)
class Diet:
    """Sums of sketches by family ``(families, dimensions)``, and how many there are
    ``(families,)``. Where there are no sketches, there is one dimension."""

    sums: np.ndarray
    counts: np.ndarray

    def __add__(self, other: Diet) -> Diet:
        return Diet(self.sums + other.sums, self.counts + other.counts)

    def __sub__(self, other: Diet) -> Diet:
        return Diet(self.sums - other.sums, self.counts - other.counts)

    def at_most(self, most: float) -> Diet:
        """The same, said by fewer answers: n count as n · most ÷ (n + most)."""
        shares = most / (self.counts + most)
        return Diet(self.sums * shares[:, None], self.counts * shares)

    @cached_property
    def is_empty(self) -> bool:
        """Whether nothing is known of it."""
        return not self.counts.any()

    @cached_property
    def mass(self) -> np.ndarray:
        """The squared length of each family's sum, ``(families,)``."""
        mass: np.ndarray = np.einsum("fd,fd->f", self.sums, self.sums)
        return mass


@dataclass(frozen=True)
class Likeness:
    """How alike answers of one kind are.

    ``sharpness`` is 1 ÷ the variance of a sketch around the mean of its kind; ``doubt`` is that
    variance ÷ the variance of means, in answers; ``price`` is what another mean costs, half of the
    directions that matter (docs/log.md has the measurement). Answers that one adapter wrote
    resemble each other beyond their kind, so a diet counts as ``most`` independent answers at most
    (design effect, Kish 1965). ``refused`` is what a refused answer counts, against the direction
    in which it points. ``heeds_sizes`` says whether large groups of habitats grow.
    """

    sharpness: float
    doubt: float
    price: float
    most: float = math.inf
    refused: float = 0.3
    heeds_sizes: bool = True

    def agreement(self, diet: Diet, other: Diet) -> float:
        """Log-odds that two diets are of one kind, in nats, without the prior.

        Of one kind, they have one mean in every family. Of two kinds, they have it in some of them
        by chance: so agreement about one says little, and a conflict says a lot.
        """
        return float(self.agreements([diet], other)[0])

    def agreements(self, diets: Sequence[Diet], other: Diet) -> np.ndarray:
        """``agreement`` of each of these diets with another one, ``(diets,)``."""
        if not diets:
            return np.zeros(0)
        if math.isfinite(self.most):
            diets, other = [diet.at_most(self.most) for diet in diets], other.at_most(self.most)
        sums = np.stack(np.broadcast_arrays(*(diet.sums + other.sums for diet in diets)))
        counts = np.stack([diet.counts for diet in diets])
        mass = np.stack([diet.mass for diet in diets])
        together = self._evidence(np.einsum("sfd,sfd->sf", sums, sums), counts + other.counts)
        apart = self._evidence(mass, counts)
        gains = together - apart - self._evidence(other.mass, other.counts)
        shared = shared_among(gains.shape[1])
        if shared:
            gains -= np.logaddexp(np.log(shared) + gains, np.log1p(-shared))
        agreements: np.ndarray = gains.sum(1)
        return agreements

    def weight_of(self, size: int) -> int:
        """How much a group of so many habitats attracts another one, whatever they want."""
        return max(size, 1) if self.heeds_sizes else 1

    def prior_of_union(self, first: int, second: int) -> float:
        """What the sizes of two groups of habitats say for one kind, in nats."""
        if not self.heeds_sizes:
            return 0.0
        return lgamma(first + second) - lgamma(first) - lgamma(second)

    def _evidence(self, mass: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of sketches around one mean, from the squared length of their sum
        and their number, in nats, up to what does not depend on how they are grouped."""
        gain = self.sharpness * mass / (2 * (counts + self.doubt))
        evidence: np.ndarray = gain - self.price * np.log1p(counts / self.doubt)
        return evidence


LIKENESS = Likeness(sharpness=40.0, doubt=3.0, price=12.0)
"""Of answers of the shipped families (docs/log.md)."""
LIKENESS_LESS_COMMON = Likeness(sharpness=240.0, doubt=25.0, price=25.0)
"""Of sketches less what those of the family have in common: open questions on a real model
(docs/log.md)."""
LIKENESS_IN_BASIS = Likeness(
    sharpness=18.0, doubt=0.9, price=4.0, most=4.0, refused=0.0, heeds_sizes=False
)
"""Of coordinates: open questions on a real model (docs/log.md). In few directions kinds are not at
right angles, so a refusal would speak for some of the others. It is measured that it says nothing
of them, and that large groups attract what does not belong to them."""


def likeness_in(state: EcologyState) -> Likeness:
    """How alike answers of one kind are there."""
    if state.bases:
        return LIKENESS_IN_BASIS
    return LIKENESS_LESS_COMMON if state.common else LIKENESS


def diet_of(answers: Iterable[RememberedAnswer], families: Sequence[str]) -> Diet:
    """What was accepted among remembered answers."""
    return taste_of(answers, families, refused=0.0)


def taste_of(
    answers: Iterable[RememberedAnswer], families: Sequence[str], *, refused: float
) -> Diet:
    """What was accepted among remembered answers, less what was refused (``Likeness.refused``).

    It is to be compared with diets alone: that two habitats refuse the same says nothing.
    """
    place = {name: row for row, name in enumerate(families)}
    counted = (answer for answer in answers if answer.is_accepted or refused)
    pairs = [(answer, vector) for answer in counted if (vector := answer.vector) is not None]
    sums = np.zeros((len(families), len(pairs[0][1]) if pairs else 1))
    counts = np.zeros(len(families))
    for answer, vector in pairs:
        row, weight = place[answer.family], 1.0 if answer.is_accepted else refused
        sums[row] += vector if answer.is_accepted else -weight * vector
        counts[row] += weight
    return Diet(sums, counts)


def kinds_among(diets: Sequence[Diet], likeness: Likeness) -> list[list[int]]:
    """Places of the diets that are of one kind, the largest group first.

    The best pair of groups becomes one as long as that explains more, and each diet goes to the
    group that explains it best, until nothing changes (iterated conditional modes, Besag 1986).
    """
    groups = [[place] for place in range(len(diets))]
    for _ in range(MOST_ROUNDS):
        before = sorted(map(sorted, groups))
        groups = _moved(_joined(groups, diets, likeness), diets, likeness)
        if sorted(map(sorted, groups)) == before:
            break
    return sorted(map(sorted, groups), key=lambda group: (-len(group), group))


def join_alike(
    names: Callable[[], Iterable[_Name]],
    gain: Callable[[_Name, _Name], float],
    join: Callable[[_Name, _Name], object],
    least: float = 0.0,
) -> None:
    """The best pair becomes one as long as that gains more than so many nats.

    ``names`` says who is there. ``gain`` is what it gains if two are one; it may change for the two
    that ``join`` made one, and for nobody else.
    """
    known: dict[tuple[_Name, _Name], float] = {}
    while True:
        gains: dict[tuple[_Name, _Name], float] = {
            pair: known[pair] if pair in known else gain(*pair) for pair in combinations(names(), 2)
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= least:
            return
        first, second = best
        join(first, second)
        known = {key: old for key, old in gains.items() if first not in key and second not in key}


def _joined(groups: list[list[int]], diets: Sequence[Diet], likeness: Likeness) -> list[list[int]]:
    """The groups, the best pair made one as long as that explains more."""
    members = dict(enumerate(groups))
    eaten = {name: _eaten(group, diets) for name, group in members.items()}

    def gain(first: int, second: int) -> float:
        """What it explains more if both are one, in nats."""
        prior = likeness.prior_of_union(len(members[first]), len(members[second]))
        return likeness.agreement(eaten[first], eaten[second]) + prior

    def join(first: int, second: int) -> None:
        """Makes them one group."""
        members[first] = members[first] + members.pop(second)
        eaten[first] = eaten[first] + eaten.pop(second)

    join_alike(lambda: members, gain, join)
    return list(members.values())


def _moved(groups: list[list[int]], diets: Sequence[Diet], likeness: Likeness) -> list[list[int]]:
    """The groups after each diet went where it is explained best, or to one of its own."""
    for place, diet in enumerate(diets):
        rest = [members for group in groups if (members := [p for p in group if p != place])]
        agreements = likeness.agreements([_eaten(group, diets) for group in rest], diet)
        scores = [
            gain + log(likeness.weight_of(len(group)))
            for gain, group in zip(agreements, rest, strict=True)
        ]
        best = max(range(len(rest)), key=scores.__getitem__, default=None)
        if best is None or scores[best] <= 0:
            rest.append([])
            best = -1
        rest[best].append(place)
        groups = rest
    return groups


def _eaten(group: Sequence[int], diets: Sequence[Diet]) -> Diet:
    return reduce(add, (diets[place] for place in group))

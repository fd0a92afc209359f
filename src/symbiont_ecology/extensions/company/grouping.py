"""Groups of users of a log that want the same, how surely each belongs there, and in words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from symbiont_ecology.ecology.judges import Evidence, Judge, ReplyFeatures, groups_of, together
from symbiont_ecology.tasks.log_rows import LogRow

MIN_ACCEPTED = 4
"""Accepted replies that a group needs for an adapter of its own."""
ENOUGH_ACCEPTED, SURE = 8, 0.8
"""Accepted replies of a user from which on its group is usually right; and the probability from
which on it is called sure."""
OWN_CHANCE, OTHERS_CHANCE = 0.3, 0.6
"""Probability, by its judge, that a group accepts a reply, from which on its adapter learns the
reply: one that was accepted there, and any other."""
SKETCH_VARIANCE, SKETCH_NOISE = 0.5, 0.3
"""Variance of verdicts that gradients explain, where they are known, and that nothing does."""
MAX_LIKES = 4
"""Features that the description of a group names."""
MIN_LIKED = 0.08
"""A smaller weight is not worth a word."""


@dataclass(frozen=True, eq=False)
class Group:
    """Users that want the same. ``chances`` says how surely each belongs here, ``rate`` is the part
    of replies that they ``accepted``, and ``least_words`` the number of different words that a
    reply has at least that they accepted."""

    name: str
    chances: Mapping[str, float]
    judge: Judge
    features: ReplyFeatures
    rate: float
    accepted: int
    least_words: int

    @property
    def users(self) -> list[str]:
        """Its users, the surest first."""
        return sorted(self.chances, key=lambda user: (-self.chances[user], user))

    @property
    def likes(self) -> list[tuple[str, float]]:
        """The features that matter, each with its weight: above 0 it pleases."""
        weights = self.judge.weights
        order = np.argsort(-np.abs(weights))[:MAX_LIKES]
        return [
            (self.features.names[place], float(weights[place]))
            for place in order
            if abs(weights[place]) >= MIN_LIKED
        ]

    def chances_of(self, replies: Sequence[str]) -> np.ndarray:
        """Return the probability that each reply is accepted here, as the judge expects; 0 where it
        says less than any that was."""
        if not replies:
            return np.zeros(0)
        scores = self.judge.scores(self.features.standardised(replies))
        spread = np.sqrt(self.rate * (1 - self.rate))
        says_enough = [_count_of_words(reply) >= self.least_words for reply in replies]
        chances: np.ndarray = np.clip(self.rate + spread * scores, 0.0, 1.0) * says_enough
        return chances

    def lessons(self, rows: Sequence[LogRow]) -> list[LogRow]:
        """Return the rows whose replies its adapter should learn, whoever got them: those that its
        judge expects to be accepted, and those that were, unless they look like a slip."""
        lessons = []
        for row, chance in zip(rows, self.chances_of([row.reply for row in rows]), strict=True):
            is_liked = row.is_accepted and row.user in self.chances
            if chance >= (OWN_CHANCE if is_liked else OTHERS_CHANCE):
                lessons.append(replace(row, is_accepted=True, learner=self.name, correction=""))
        return lessons

    def in_words(self) -> str:
        """Return what pleases these users, in words."""
        liked = [_worded(name) for name, weight in self.likes if weight > 0]
        disliked = [_worded(name) for name, weight in self.likes if weight < 0]
        parts = [f"more: {', '.join(liked)}"] if liked else []
        parts += [f"less: {', '.join(disliked)}"] if disliked else []
        return "; ".join(parts) or "nothing stands out"


def _count_of_words(reply: str) -> int:
    """Return how many different words a reply has."""
    return len(set(re.findall(r"\w+", reply.lower())))


def _worded(feature: str) -> str:
    """Return a feature in words: those in quotes are words of replies."""
    if feature[:1] == "^":
        return f"{_worded(feature[1:])} at the beginning"
    if feature[-1:] == "$" and len(feature) > 1:
        return f"{_worded(feature[:-1])} at the end"
    if feature == "0":  # as digits are counted
        return "a number"
    is_named = " " in feature or feature in ("length", "sentences", "commas", "money")
    return feature if is_named or feature in ("time", "courtesy", "steps") else f"“{feature}”"


@dataclass(frozen=True, eq=False)
class Grouping:
    """The ``groups`` of users that were found, the largest first, and what makes others of the same
    rows: ``of`` takes their names, and the chances of the users of each."""

    groups: list[Group]
    of: Callable[[Mapping[str, Mapping[str, float]]], list[Group]]


def group_users(
    rows: Sequence[LogRow],
    seed: int = 0,
    others: Iterable[str] = (),
    sketches: Callable[[Sequence[LogRow]], np.ndarray] | None = None,
) -> Grouping:
    """Return the groups of the users of some rows.

    A group in which next to nothing was accepted gets no adapter: each of its users is put where it
    most likely belongs, and its chance says how surely. Of ``others`` nothing is known, so they go
    to the largest group. ``sketches`` of replies, ``(rows,
    dimensions)``, are more evidence, where rows are of the same family.
    """
    users = sorted({row.user for row in rows})
    place = {user: number for number, user in enumerate(users)}
    features = ReplyFeatures.of([row.reply for row in rows])
    standardised = features.standardised([row.reply for row in rows])
    places, verdicts = [place[row.user] for row in rows], [row.is_accepted for row in rows]
    known = features.variances, features.log_prior, places, verdicts
    evidence = (
        Evidence(standardised, *known)
        if sketches is None
        else Evidence(standardised, *known, _likeness(rows, sketches(rows)), SKETCH_NOISE)
    )
    found = groups_of(evidence)
    shared = together(evidence, found, np.random.default_rng(seed))
    accepted = np.array([sum(r.is_accepted for r in rows if r.user == user) for user in users])
    enough = [group for group in found if accepted[sorted(group)].sum() >= MIN_ACCEPTED]
    enough = enough or [frozenset().union(*found)]
    of_user: dict[int, tuple[int, float]] = {}
    for user in range(len(users)):
        chances = [_mean_shared(shared, user, group) for group in enough]
        own = next((n for n, group in enumerate(enough) if user in group), int(np.argmax(chances)))
        of_user[user] = own, chances[own]
    members = defaultdict[int, dict[str, float]](dict)
    for user, (own, chance) in of_user.items():
        members[own][users[user]] = round(chance, 3)
    sizes = {own: len(names) / len(users) for own, names in members.items()}
    largest = max(sizes, key=sizes.__getitem__)
    members[largest] |= dict.fromkeys({*others}.difference(users), round(sizes[largest], 3))

    def of(chances_of: Mapping[str, Mapping[str, float]]) -> list[Group]:
        return [
            _group(name, chances, rows, features, evidence.judge(_numbers(chances, place)))
            for name, chances in chances_of.items()
        ]

    order = sorted(members, key=lambda own: -len(members[own]))
    return Grouping(of({f"g{number}": members[own] for number, own in enumerate(order, 1)}), of)


def _numbers(users: Iterable[str], place: Mapping[str, int]) -> list[int]:
    return [place[user] for user in users if user in place]


def _group(
    name: str,
    chances: Mapping[str, float],
    rows: Sequence[LogRow],
    features: ReplyFeatures,
    judge: Judge,
) -> Group:
    mine = [row for row in rows if row.user in chances]
    liked = [row.reply for row in mine if row.is_accepted]
    rate, least = (len(liked) + 1) / (len(mine) + 3), min(map(_count_of_words, liked), default=0)
    return Group(name, chances, judge, features, rate, len(liked), least)


def _mean_shared(shared: np.ndarray, user: int, group: frozenset[int]) -> float:
    """Return the probability that a user wants what a group wants; alone in it, that nobody else
    does."""
    others = sorted(group - {user})
    if others:
        return float(shared[user, others].mean())
    rest = np.delete(shared[user], user)
    return float(1 - rest.max(initial=0.0))


def _likeness(rows: Sequence[LogRow], sketches: np.ndarray) -> np.ndarray:
    families = np.array([row.family for row in rows])
    are_alike = families[:, None] == families[None]
    likeness: np.ndarray = SKETCH_VARIANCE * are_alike * (sketches @ sketches.T)
    return likeness

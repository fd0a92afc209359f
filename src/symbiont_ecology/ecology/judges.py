"""Judges: what users like, by features of the replies that they accepted and refused.

*Would what pleases you please me?* Users want the same if one judge explains the verdicts of both.
A judge is a linear function of a reply's features with a Gaussian prior on its weights: a Gaussian
process (Rasmussen and Williams 2006). So how well one judge explains the verdicts of a set of users
is known in closed form, the ``Evidence``, and it uses refusals as much as acceptances. All features
have small weights, and one may have a large one: most people who judge replies mind one thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from numpy.random import Generator
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import gammaln, logsumexp

NAMED_VARIANCE, WORD_VARIANCE, ONE_VARIANCE, NOISE = 0.1, 0.25, 0.5, 0.5
"""Variance of a verdict that named features explain, that words explain, that one feature alone
explains, and that nothing does, before anything is known; chosen on logs of drawn tastes, where
half and twice of each do about as well."""
ONE_FEATURE = 0.8
"""Prior probability that one feature has a large weight."""
MIN_SHARE, MIN_ROWS = 0.012, 3
"""Share, and number, of replies that have a word, and that do not, for it to be a feature."""
SWEEPS, BURN_IN = 60, 10
"""Sweeps of the sampler, and those at its beginning that do not count."""
_TOKEN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]|[^\W\d_]+|\d+|[^\w\s]|\n")
_BULLET = re.compile(r"(?m)^\s*(?:[-*•]|\d+[.)])\s")
_END = re.compile(r"[.!?](?:\s|$)")


def _says(pattern: str) -> Callable[[str], float]:
    found = re.compile(pattern, re.IGNORECASE)
    return lambda text: found.search(text) is not None


_NAMED: dict[str, Callable[[str], float]] = {
    "length": lambda text: np.log1p(len(re.findall(r"[^\W\d_]+", text))),
    "sentences": lambda text: np.log1p(len(_END.findall(text))),
    "list items": lambda text: np.log1p(len(_BULLET.findall(text))),
    "several lines": lambda text: "\n" in text,
    "commas": lambda text: np.log1p(text.count(",")),
    "words in capitals": _says(r"(?-i:\b[A-Z]{2,}\b)"),
    "a question at the end": lambda text: text.rstrip().endswith("?"),
    "a question": _says(r"\?"),
    "an exclamation": _says("!"),
    "bold, a heading or code": _says(r"\*\*|`|(?m:^#)"),
    "an emoji": _says("[\u2600-\u27bf\U0001f300-\U0001faff]"),
    "a link": _says(r"https?:|www\."),
    "a number": lambda text: re.search(r"\d", _BULLET.sub("", text)) is not None,
    "money": _says(
        r"[$€£¥]|\b(costs?|prices?|priced|cheap\w*|expensive|fees?|dollars?|euros?|budget)\b"
    ),
    "time": _says(r"\b(seconds?|minutes?|hours?|days?|weeks?|months?|years?)\b"),
    "a caution": _says(
        r"\b(careful|caution\w*|warn\w*|beware|avoid\w*|danger\w*|risk\w*|unsafe|harm\w*|never)\b"
    ),
    "a source": _says(
        r"\b(according|sources?|stud(y|ies)|research\w*|reports?|universit(y|ies)|manual|surveys?)\b"
    ),
    "courtesy": _says(
        r"\b(please|thanks?|of course|happy to|glad|pleasure|welcome|(good|great) question)\b"
    ),
    "an apology": _says(r"\b(sorry|apologi[sz]e\w*|apolog(y|ies)|unfortunately|regret)\b"),
    "a doubt": _says(r"\b(maybe|perhaps|might|possibly|probably|it depends|not sure)\b"),
    "an example": _says(r"\b(examples?|instance|such as|e\.g\.)"),
    "steps": _says(r"\b(first(ly)?|second(ly)?|then|next|finally|steps?)\b"),
    "first person": _says(r"\b(i|i'm|i've|me|my|we|our)\b"),
    "second person": _says(r"\b(you|your|you're)\b"),
}
"""Features that have a name: the shape of a reply, and lists of English words for what it
holds."""


def _words(text: str) -> set[str]:
    """Return the words and pairs of words of a reply, its first and its last one; a number is 0."""
    tokens = ["0" if token.isdigit() else token for token in _TOKEN.findall(text.lower())]
    ends = {f"^{tokens[0]}", f"{tokens[-1]}$"} if tokens else set()
    return {*tokens, *(f"{one} {other}" for one, other in pairwise(tokens)), *ends}


@dataclass(frozen=True, eq=False)
class ReplyFeatures:
    """Features of replies, as the replies of a log have them: the shape in units of its standard
    deviation, and words that enough replies have, and enough do not."""

    words: tuple[str, ...]
    means: np.ndarray
    spreads: np.ndarray
    word_scale: float

    @classmethod
    def of(cls, replies: Sequence[str]) -> ReplyFeatures:
        """Return those of at least one reply."""
        least = max(MIN_ROWS, round(MIN_SHARE * len(replies)))
        counts = Counter(word for reply in replies for word in _words(reply))
        words = tuple(
            sorted(word for word, n in counts.items() if least <= n <= len(replies) - least)
        )
        raw = _raw(replies, words)
        means, spreads = raw.mean(0), raw.std(0)
        own = (raw - means)[:, len(_NAMED) :]
        scale = float(np.sqrt((own**2).sum(1).mean())) if words else 1.0
        return cls(words, means, np.maximum(spreads, 1e-6), scale or 1.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each feature: named first, then words."""
        return (*_NAMED, *self.words)

    def standardised(self, replies: Sequence[str]) -> np.ndarray:
        """Return the features of replies, ``(replies, features)``."""
        standardised: np.ndarray = (_raw(replies, self.words) - self.means) / self.spreads
        return standardised

    @cached_property
    def variances(self) -> np.ndarray:
        """The prior variance of each weight, ``(features,)``."""
        named = len(_NAMED)
        words = WORD_VARIANCE * (self.spreads[named:] / self.word_scale) ** 2
        return np.concatenate([np.full(named, NAMED_VARIANCE / named), words])

    @cached_property
    def log_prior(self) -> np.ndarray:
        """The log-probability that each feature is the one, ``(features,)``: half of it for
        named."""
        sizes = [len(_NAMED), len(self.words)]
        shares = [1 / sum(map(bool, sizes)) / size for size in sizes if size]
        log_prior: np.ndarray = np.log(np.repeat(shares, [size for size in sizes if size]))
        return log_prior


def _raw(replies: Sequence[str], words: Sequence[str]) -> np.ndarray:
    places = {word: len(_NAMED) + number for number, word in enumerate(words)}
    raw = np.zeros((len(replies), len(_NAMED) + len(words)))
    for row, reply in zip(raw, replies, strict=True):
        row[: len(_NAMED)] = [feature(reply) for feature in _NAMED.values()]
        row[[places[word] for word in _words(reply) if word in places]] = 1.0
    return raw


class Evidence:
    """Log marginal likelihood of the verdicts of a set of users under one judge, in nats.

    Args:
        features: of the replies, ``(replies, features)``, in units of their standard deviation.
        variances: the prior variance of each weight, ``(features,)``.
        log_prior: the log-probability that each feature is the one that matters, ``(features,)``.
        users: the number of the user of each reply, from 0.
        verdicts: true where a reply was accepted.
        likeness: what else says that two replies please alike, ``(replies, replies)``: added to the
            covariance of verdicts.
        noise: the variance of a verdict that nothing explains.
    """

    def __init__(
        self,
        features: np.ndarray,
        variances: np.ndarray,
        log_prior: np.ndarray,
        users: Sequence[int],
        verdicts: Sequence[bool],
        likeness: np.ndarray | None = None,
        noise: float = NOISE,
    ) -> None:
        self.features, self.variances, self.log_prior = features, variances, log_prior
        self.rows = [np.flatnonzero(np.equal(users, user)) for user in range(max(users) + 1)]
        self.noise = noise
        self.kernel = (features * variances) @ features.T
        if likeness is not None:
            self.kernel += likeness
        self.values = np.zeros(len(users))
        for rows in self.rows:
            accepted = np.asarray(verdicts, float)[rows]
            rate = (accepted.sum() + 1) / (len(rows) + 3)
            self.values[rows] = (accepted - rate) / np.sqrt(rate * (1 - rate))
        self._known: dict[frozenset[int], float] = {frozenset(): 0.0}

    def __call__(self, members: Iterable[int]) -> float:
        """Return the evidence that these users have one judge."""
        key = frozenset(members)
        if key not in self._known:
            self._known[key] = self._of(np.concatenate([self.rows[user] for user in sorted(key)]))
        return self._known[key]

    def gain(self, user: int, others: frozenset[int]) -> float:
        """Return what it gains if a user's judge is that of the others."""
        return self(others | {user}) - self(others)

    def _of(self, rows: np.ndarray) -> float:
        factor, (values, features) = self._whitened(rows)
        dense = -0.5 * values @ values - np.log(np.diag(factor)).sum()
        one = float(logsumexp(_gain_of_one(values, features) + self.log_prior))
        return float(dense + np.logaddexp(np.log1p(-ONE_FEATURE), np.log(ONE_FEATURE) + one))

    def _whitened(self, rows: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the Cholesky factor of the covariance of verdicts, and verdicts and features in
        units of it."""
        factor = np.linalg.cholesky(
            self.kernel[np.ix_(rows, rows)] + self.noise * np.eye(len(rows))
        )
        both = np.column_stack([self.values[rows], self.features[rows]])
        whitened = solve_triangular(factor, both, lower=True, check_finite=False)
        return factor, (whitened[:, 0], whitened[:, 1:])

    def judge(self, members: Iterable[int]) -> Judge:
        """Return the judge of these users; of nobody, one that likes everything alike."""
        rows = np.concatenate([np.zeros(0, int), *(self.rows[user] for user in sorted(members))])
        if not len(rows):
            return Judge(np.zeros(len(self.variances)))
        _, (values, features) = self._whitened(rows)
        gains = _gain_of_one(values, features) + self.log_prior
        odds = np.log(ONE_FEATURE / (1 - ONE_FEATURE)) + logsumexp(gains)
        share = 1 / (1 + np.exp(-odds))
        variances = self.variances + ONE_VARIANCE * share * np.exp(gains - logsumexp(gains))
        own = self.features[rows]
        factor = np.linalg.cholesky((own * variances) @ own.T + self.noise * np.eye(len(rows)))
        return Judge(variances * (own.T @ cho_solve((factor, True), self.values[rows])))


def _gain_of_one(values: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return what each feature gains with a large weight of its own, in nats, ``(features,)``: the
    matrix determinant lemma, and that of Sherman and Morrison."""
    scale = 1 + ONE_VARIANCE * (features**2).sum(0)
    gain: np.ndarray = -0.5 * np.log(scale) + 0.5 * ONE_VARIANCE * (values @ features) ** 2 / scale
    return gain


@dataclass(frozen=True, eq=False)
class Judge:
    """The mean weight of each feature, ``(features,)``: how much it pleases."""

    weights: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return how much replies please, ``(replies,)``: 0 for the usual reply, in standard
        deviations of a verdict."""
        scores: np.ndarray = features @ self.weights
        return scores


def groups_of(evidence: Evidence) -> list[frozenset[int]]:
    """Return groups of users that have one judge each, the largest first.

    The number of groups is not given: a Dirichlet-process mixture (Ferguson 1973). The best pair of
    groups becomes one while that gains, and then each user goes where it fits best, until nothing
    changes (iterated conditional modes, Besag 1986).
    """
    groups = [frozenset({user}) for user in range(len(evidence.rows))]

    def gain(one: frozenset[int], other: frozenset[int]) -> float:
        prior = gammaln(len(one) + len(other)) - gammaln(len(one)) - gammaln(len(other))
        return evidence(one | other) - evidence(one) - evidence(other) + float(prior)

    while len(groups) > 1:
        one, other = max(combinations(groups, 2), key=lambda pair: gain(*pair))
        if gain(one, other) <= 0:
            break
        groups = [group for group in groups if group not in (one, other)] + [one | other]
    before: set[frozenset[int]] = set()
    for _ in range(SWEEPS):
        if before == set(groups):
            break
        before = set(groups)
        for user in range(len(evidence.rows)):
            groups, scores = _without(user, groups, evidence)
            groups = _joined(user, groups, int(np.argmax(scores)))
    return sorted(groups, key=lambda group: (-len(group), sorted(group)))


def together(
    evidence: Evidence, groups: Sequence[frozenset[int]], generator: Generator
) -> np.ndarray:
    """Return the probability that each two users want the same, ``(users, users)``, by sampling
    groups from their posterior (Gibbs sampling, Neal 2000), from these groups on."""
    count = len(evidence.rows)
    shared, groups = np.zeros((count, count)), list(groups)
    for sweep in range(SWEEPS):
        for user in generator.permutation(count).tolist():
            groups, scores = _without(user, groups, evidence)
            chances = np.exp(scores - logsumexp(scores))
            groups = _joined(user, groups, int(generator.choice(len(chances), p=chances)))
        for group in groups if sweep >= BURN_IN else ():
            shared[np.ix_(sorted(group), sorted(group))] += 1 / (SWEEPS - BURN_IN)
    return shared


def _without(
    user: int, groups: Sequence[frozenset[int]], evidence: Evidence
) -> tuple[list[frozenset[int]], np.ndarray]:
    """Return the groups without a user, and the log-odds that it belongs to each, and last to none
    of them."""
    rest = [others for group in groups if (others := group - {user})]
    scores = [evidence.gain(user, others) + np.log(len(others)) for others in rest]
    return rest, np.array([*scores, evidence({user})])


def _joined(user: int, groups: list[frozenset[int]], place: int) -> list[frozenset[int]]:
    if place == len(groups):
        return [*groups, frozenset({user})]
    return [*groups[:place], groups[place] | {user}, *groups[place + 1 :]]

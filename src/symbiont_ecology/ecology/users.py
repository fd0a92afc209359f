"""Users: who serves each, its last answers and their verdicts, and vectors that stand for answers.

Answers to different questions differ for many reasons, and who wants what is one of them. Solved
examples of several kinds differ by kind more than by anything else. So the few directions in which
examples differ most (principal components, Pearson 1901) keep what says who wants what, and leave
out nearly all else: they are the ``Basis`` of a family.
"""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from symbiont_ecology.base.types import Item, OrganelleId, judged_elsewhere

NOBODY: OrganelleId = ""
"""The server of a user that none was chosen for."""
MAX_ANSWERS = 24
"""The newest answers of a user that are remembered."""
DIRECTIONS = 8
"""Kept of a family: with 4 or 16, users of four styles find servers less surely (docs/history)."""
MIN_PART = 1e-5
"""A shorter vector, beside what it was made of, says nothing."""
SHARED = 0.3
"""Chance that two kinds agree about a family, where there are several."""
OTHER_KIND_RATE = 0.1
"""Rate at which answers are accepted where another kind is right."""
MAX_RELIABILITY = 0.97
"""The highest rate at which answers are accepted where the user's own kind is right."""
SURE = 6.0
"""Evidence, in nats, from which on a user counts as changed."""
MIN_KNOWN = 4
"""Accepted answers of its server that must be known before a user can count as changed."""
PRIOR_RATE = 0.9
"""Rate at which sure answers are accepted where nothing is known."""
PRIOR_ANSWERS = 5.0
"""Number of answers for which the prior rate counts."""


@dataclass(frozen=True)
class RememberedAnswer:
    """An answer that a user was given, and its verdict.

    ``reply`` is the answer as text; empty in a world without users. ``confidence`` is the
    probability that ``organelle_id`` gave to it, or where replies are open how often it pleased its
    other users. ``sketch`` stands for the answer's gradient at the bare host
    (``model.sketches``), and ``coordinates`` say where the answer lies in the basis of its family
    (``Basis``), if it has one: signed bytes in base64, or empty. ``token_ids`` hold the
    end of answer.
    """

    family: str
    depth: str
    prompt: str
    token_ids: tuple[int, ...]
    is_accepted: bool
    organelle_id: OrganelleId = ""
    confidence: float = 1.0
    sketch: str = ""
    reply: str = ""
    coordinates: str = ""

    @property
    def item(self) -> Item:
        """The question, as far as learning asks for it: its verdict is known."""
        return Item("", self.family, self.depth, "", self.prompt, 0, verifier=judged_elsewhere)

    @cached_property
    def vector(self) -> np.ndarray | None:
        """Its coordinates, or else its sketch, as numbers ``(dimensions,)``; None if it has
        neither."""
        text = self.coordinates or self.sketch
        return read_vector(text) if text else None

    def sketched(self, sketch: np.ndarray) -> RememberedAnswer:
        """Return the same answer with the sketch of its gradient, ``(dimensions,)``: a unit vector,
        less what answers of its family have in common if that is known. If some numbers are not
        finite, it has none."""
        is_known = np.isfinite(sketch).all()
        return replace(self, sketch=written_vector(sketch) if is_known else "")

    def located(self, coordinates: np.ndarray) -> RememberedAnswer:
        """Return the same answer with its coordinates, ``(directions,)``. Zeros say nothing, and
        neither do numbers that are not finite: then it has none."""
        is_somewhere = np.isfinite(coordinates).all() and coordinates.any()
        return replace(self, coordinates=written_vector(coordinates) if is_somewhere else "")


def written_vector(vector: np.ndarray) -> str:
    """Return a vector about as long as 1, ``(dimensions,)``, as signed bytes in base64."""
    numbers = np.clip(np.rint(vector * _scale(len(vector))), -127, 127).astype(np.int8)
    return base64.b64encode(numbers.tobytes()).decode()


def read_vector(text: str) -> np.ndarray:
    """Return the numbers of a written vector, ``(dimensions,)``."""
    numbers = np.frombuffer(base64.b64decode(text), np.int8).astype(np.float64)
    return numbers / _scale(len(numbers))


def _scale(dimensions: int) -> float:
    """Return what a unit is in bytes. Of the 256 numbers of a sketch hardly one is above 0.3; one
    of a few coordinates may be 1."""
    return 127.0 if dimensions <= DIRECTIONS else 400.0


@dataclass(frozen=True)
class SketchSpace:
    """The space of answers' vectors, as a warm start's examples show it; on large hosts alone.

    ``common`` is what answers of a family have in common, whatever is wanted: the mean sketch of
    its examples. ``bases`` are those of families, as ``Basis`` writes them, where all replies are
    open and the examples were enough. ``examples`` have their sketches, and coordinates if there
    are bases.
    """

    common: Mapping[str, str] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)
    examples: tuple[RememberedAnswer, ...] = ()


@dataclass(frozen=True)
class User:
    """A place that asks.

    ``chosen`` is the organelle that a strategy chose to serve it, or ``NOBODY``; ``asked`` counts
    its questions.
    """

    chosen: OrganelleId = NOBODY
    asked: int = 0
    answers: tuple[RememberedAnswer, ...] = ()

    @property
    def server(self) -> OrganelleId:
        """The organelle that learns what it accepted: the chosen one, or who answered it last."""
        return self.chosen or (self.answers[-1].organelle_id if self.answers else NOBODY)

    @cached_property
    def accepted(self) -> tuple[RememberedAnswer, ...]:
        """Those of its last answers that it accepted."""
        return tuple(answer for answer in self.answers if answer.is_accepted)

    def trust(self, organelle_id: OrganelleId, shared: float = SHARED) -> float:
        """Return what its verdicts say for an organelle, in nats: 0 for who never answered it.

        Who is right in some families may still be wrong in others. So an accepted answer says
        little, and a refused one a lot, the more the surer the organelle was. ``shared`` is how
        often two kinds agree about a family (``shared_among``).
        """
        answers = [answer for answer in self.answers if answer.organelle_id == organelle_id]
        return -_conflict(answers, self.reliability, shared) if answers else 0.0

    @cached_property
    def reliability(self) -> float:
        """Accepted answers ÷ those that were to be expected if organelles are as right as sure.

        Families of which next to nothing is accepted say nothing: another kind may be right there.
        """
        by_family: dict[str, list[RememberedAnswer]] = defaultdict(list)
        for answer in self.answers:
            by_family[answer.family].append(answer)
        right, sure = PRIOR_RATE * PRIOR_ANSWERS, PRIOR_ANSWERS
        for group in by_family.values():
            accepted = sum(answer.is_accepted for answer in group)
            if accepted > SHARED * len(group):
                right += accepted
                sure += sum(answer.confidence for answer in group)
        return min(right / sure, MAX_RELIABILITY)

    def after(self, answer: RememberedAnswer, shared: float = SHARED) -> User:
        """Return it with one more answer. What is older than a change of the user is
        forgotten."""
        answers = (*self.answers, answer)[-MAX_ANSWERS:]
        return replace(self, asked=self.asked + 1, answers=answers[_change_in(answers, shared) :])

    def has_changed_from(self, before: User) -> bool:
        """Return true if the newest answer showed that it wants something else than ``before`` it.

        ``after`` forgets what is older than a change. So fewer answers are left then than one more
        than before, but for the oldest, which always goes where there are ``MAX_ANSWERS``.
        """
        return len(self.answers) < min(len(before.answers) + 1, MAX_ANSWERS)


def shared_among(families: int) -> float:
    """Return the chance that two kinds agree about a family, in a world of so many: kinds that
    agree about the only one are the same."""
    return SHARED if families > 1 else 0.0


def _change_in(answers: Sequence[RememberedAnswer], shared: float) -> int:
    """Return the place of the first answer since the user wants something else; 0 if it does
    not.

    The moment that explains the verdicts on its server best (generalised likelihood ratio, Lorden
    1971), if there is evidence enough.
    """
    newest = answers[-1]
    if newest.is_accepted:  # evidence of a change grows with refusals alone
        return 0
    server = newest.organelle_id
    latest = list(takewhile(lambda one: one.organelle_id == server, reversed(answers)))
    start, best, change = len(answers) - len(latest), SURE, 0
    for place in range(start, len(answers)):
        before = User(answers=tuple(answers[start:place]))
        if len(before.accepted) >= MIN_KNOWN:
            evidence = _conflict(answers[place:], before.reliability, shared)
            if evidence > best:
                best, change = evidence, place
    return change


def _conflict(answers: Sequence[RememberedAnswer], usual: float, shared: float) -> float:
    """Return how much more likely verdicts are if another kind is right than the same, in nats.

    Another kind may be right in the same way, family by family.
    """
    gains: dict[str, float] = defaultdict(float)
    for answer in answers:
        expected = max(usual * answer.confidence, OTHER_KIND_RATE)
        gains[answer.family] += (
            math.log(OTHER_KIND_RATE / expected)
            if answer.is_accepted
            else math.log((1 - OTHER_KIND_RATE) / (1 - expected))
        )
    return sum(math.log(shared + (1 - shared) * math.exp(gain)) for gain in gains.values())


@dataclass(frozen=True, eq=False)
class Basis:
    """The ``mean (dimensions,)`` of a family's examples, and the ``directions (DIRECTIONS,
    dimensions)`` in which they differ most; zeros where they differ in fewer."""

    mean: np.ndarray
    directions: np.ndarray

    @classmethod
    def of(cls, examples: np.ndarray) -> Basis:
        """Return that of at least one example, ``(examples, dimensions)``; numbers that are not
        finite say nothing."""
        examples = examples[np.isfinite(examples).all(1)]
        directions = np.zeros((DIRECTIONS, examples.shape[1]), dtype=np.float32)
        if not len(examples):
            return cls(directions[0], directions)
        mean = examples.mean(0)
        _, spread, found = np.linalg.svd(examples - mean, full_matrices=False)
        least = MIN_PART * float(np.linalg.norm(examples))
        found = found[:DIRECTIONS][spread[:DIRECTIONS] > least]
        directions[: len(found)] = found
        return cls(mean, directions)

    def coordinates(self, vector: np.ndarray) -> np.ndarray:
        """Return an answer's place, a unit vector ``(DIRECTIONS,)``; zeros if it lies nowhere."""
        coordinates: np.ndarray = self.directions @ (vector - self.mean)
        length, least = np.linalg.norm(coordinates), MIN_PART * np.linalg.norm(vector)
        return coordinates / length if length > least else np.zeros_like(coordinates)

    def written(self) -> str:
        """Return it as text: numbers in base64."""
        numbers = np.vstack([self.mean[None], self.directions]).astype("<f4")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def read(cls, text: str) -> Basis:
        """Return what was written."""
        numbers = np.frombuffer(base64.b64decode(text), "<f4").reshape(1 + DIRECTIONS, -1)
        return cls(numbers[0], numbers[1:])

"""A rollout is one judged answer. An assignment asks for some; its outcome holds them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np

from symbiont_ecology.adapters.adapter import Perturbation
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Cell, Item, OrganelleId

Purpose = Literal["practice", "probe", "probation"]
"""*practice* is paid, learned from, and changes posteriors. A *probe* only informs. *probation*
compares a merged child with its parents (``run.trial``)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rollout:
    """One answer of one organelle (or the bare host) to one item, and what came of it.

    ``token_ids`` hold the end-of-answer token, if the answer ended by itself; both they and
    ``log_probabilities`` (tokens,), in nats, are those of the weights that answered. ``verdict`` is
    the verifier's, in [0, 1]; ``fault`` says what was wrong with the verifier, if anything.
    ``reward`` is what the answer is worth to learning. ``host_log_probabilities`` (tokens,) are the
    bare host's of the same tokens, if the learning rule or the assignment needs them. ``ended_ids``
    are the tokens of an answer that a stop text cut, written as one that ends. ``extra`` is what
    the learning rule's own estimator noted of it (``learning.Estimator``).
    """

    item: Item
    organelle_id: OrganelleId
    token_ids: tuple[int, ...]
    log_probabilities: np.ndarray
    text: str
    verdict: float
    reward: float
    cost: Cost
    fault: str = ""
    host_log_probabilities: np.ndarray | None = None
    ended_ids: tuple[int, ...] | None = None
    extra: object = None

    def __repr__(self) -> str:
        return f"<{self.organelle_id}: {self.text!r:.60} to {self.item.id!r:.60}, {self.verdict:g}>"

    @property
    def is_right(self) -> bool:
        """True if it has half of the marks or more."""
        return self.verdict >= 0.5

    @property
    def has_verdict(self) -> bool:
        """True if it was judged: a reference answer that was only read is nobody's success."""
        return self.item.logged is None or self.item.logged.is_accepted is not None

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """Tokens to imitate the answer by: its own, or those of the cut text and the end of answer.

        So what is learned from a stopped answer ends by itself, as a reference answer does. A
        policy gradient is about what was drawn, so it takes ``token_ids``.
        """
        return self.token_ids if self.ended_ids is None else self.ended_ids

    @property
    def confidence(self) -> float:
        """Mean log-probability per token, in nats; 0 if there are no tokens."""
        return float(self.log_probabilities.mean()) if len(self.token_ids) else 0.0


@dataclass(frozen=True)
class Assignment:
    """One organelle (or the bare host) answers each of the items ``samples`` times.

    All items belong to one cell, and come from one user if there are any. An exam is answered
    greedily, as it would be in use, and nothing is learned from it. With a ``perturbation`` the
    organelle answers as it would be with that change. Where it ``is_compared``, the bare host
    reads the answers.
    """

    organelle_id: OrganelleId
    items: tuple[Item, ...]
    samples: int = 1
    purpose: Purpose = "practice"
    is_exam: bool = False
    is_compared: bool = False
    perturbation: Perturbation | None = None

    @property
    def cell(self) -> Cell:
        """The cell that all items belong to."""
        return self.items[0].cell

    @property
    def niche(self) -> str:
        """Name under which success with them is counted, paid and archived."""
        return self.items[0].niche

    @property
    def is_practice(self) -> bool:
        """True if it is paid, and changes what is known."""
        return self.purpose == "practice"

    @property
    def is_learned_from(self) -> bool:
        """True for practice that is no exam."""
        return self.is_practice and not self.is_exam


@dataclass(frozen=True, repr=False)
class Outcome:
    """The rollouts of an assignment: all samples of its first item, of its second, …"""

    assignment: Assignment
    rollouts: tuple[Rollout, ...]

    def by_item(self) -> Iterator[tuple[Item, tuple[Rollout, ...]]]:
        """Yield each item of the assignment with its samples."""
        samples = self.assignment.samples
        for index, item in enumerate(self.assignment.items):
            yield item, self.rollouts[index * samples : (index + 1) * samples]

    @cached_property
    def verdicts(self) -> tuple[float, ...]:
        """The verdict of every rollout that has one."""
        return tuple(rollout.verdict for rollout in self.rollouts if rollout.has_verdict)

    @cached_property
    def cost(self) -> Cost:
        """Cost of all rollouts."""
        return sum((rollout.cost for rollout in self.rollouts), Cost())

    @property
    def accuracy(self) -> float:
        """Mean verdict over all rollouts that have one."""
        return sum(self.verdicts) / len(self.verdicts)


def practice_of(outcomes: Iterable[Outcome]) -> dict[OrganelleId, list[Outcome]]:
    """Return the outcomes of practice, by organelle."""
    practice: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.assignment.is_practice:
            practice[outcome.assignment.organelle_id].append(outcome)
    return dict(practice)


def map_rollouts(
    outcomes: Sequence[Outcome],
    change: Callable[[Sequence[Rollout]], Iterable[Rollout]],
    where: Callable[[Assignment], bool] = lambda assignment: True,
) -> list[Outcome]:
    """Return the same outcomes with changed rollouts, ``where`` an assignment is meant. ``change``
    gets their rollouts in one call, and gives as many back in their order."""
    chosen = [outcome for outcome in outcomes if where(outcome.assignment)]
    rollouts = iter(change([rollout for outcome in chosen for rollout in outcome.rollouts]))
    return [
        replace(outcome, rollouts=tuple(islice(rollouts, len(outcome.rollouts))))
        if where(outcome.assignment)
        else outcome
        for outcome in outcomes
    ]

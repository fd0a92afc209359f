"""What a strategy may decide. Decisions are values; ``population.execute`` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from symbiont_ecology.ecology.challengers import Challenger
from symbiont_ecology.ecology.organelle import FormerSelf
from symbiont_ecology.operators import Operator
from symbiont_ecology.types import BlobRef, OrganelleId

Inheritance = Literal["lamarckian", "darwinian"]


@dataclass(frozen=True)
class Found:
    """A new organelle without living parents; the world pays its dowry.

    It has weights of that rank from the store, or else they are drawn (A random, B normal with
    ``b_std``).
    """

    traits: dict[str, float]
    rank: int
    weights: BlobRef | None = None
    b_std: float = 0.0
    operator: str = "founder"


@dataclass(frozen=True)
class Birth:
    """A child of living parents, who pay its dowry in equal parts.

    Its weights are ``operator`` applied to the parents' weights; it inherits, discounted, what was
    believed of the first. What parents learned in their lives is handed down (Lamarckian), with the
    memory of an only parent of equal rank, or not at all (Darwinian).
    """

    parents: tuple[OrganelleId, ...]
    operator: Operator
    name: str
    traits: dict[str, float]
    inheritance: Inheritance = "lamarckian"


@dataclass(frozen=True)
class Propose:
    """What an operator makes of living organelles goes on probation, and is judged by the mechanism
    ``by``.

    A child is born if it is admitted. Its parents put its dowry aside in equal parts, and nothing
    comes of it if one of them cannot. With ``is_child`` false it is what its only parent may
    become. ``cells`` says where each parent is at home, ``rank`` how large it may be: what its
    operator makes beyond that is cut off.
    """

    cells: Mapping[OrganelleId, tuple[str, ...]]
    operator: Operator
    name: str
    traits: dict[str, float]
    rank: int
    by: str
    is_child: bool = True


@dataclass(frozen=True)
class KeepSelf:
    """What an organelle is now is kept as its former self, unless more was once believed of it."""

    organelle_id: OrganelleId


@dataclass(frozen=True)
class Recall:
    """The former self of an organelle goes on probation against what became of it, in some
    cells."""

    organelle_id: OrganelleId
    former: FormerSelf
    cells: tuple[str, ...]
    by: str


@dataclass(frozen=True)
class Probation:
    """What a child on probation has shown since it was last looked at; it goes on, is admitted, or
    rejected.

    The admitted takes over the cells of its parents, who live on as long as they can; the dowry of
    the rejected goes back to them. With ``operator``, another self is made anew of its only parent
    at every look, and is what the parent becomes once it is admitted: nobody is born. So it is with
    an admitted former self.
    """

    child: Challenger
    verdict: Literal["go on", "admit", "reject"]
    operator: Operator | None = None


@dataclass(frozen=True)
class Resize:
    """An organelle grows or shrinks by rank, if the spectrum of its ΔW says so.

    ``share`` is what the weakest direction must carry at least to grow, or may carry at most to
    shrink, in units of an even share.
    """

    organelle_id: OrganelleId
    rank: int
    share: float


@dataclass(frozen=True)
class Retire:
    """An organelle leaves; what it owns or owes goes to the world."""

    organelle_id: OrganelleId
    cause: str


@dataclass(frozen=True)
class Upheaval:
    """The world is taken to have changed in some cells: nobody is believed there or holds them any
    more."""

    cells: tuple[str, ...]


Decision: TypeAlias = (
    Found | Birth | Propose | KeepSelf | Recall | Probation | Resize | Retire | Upheaval
)

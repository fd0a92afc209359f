"""What a strategy may decide. Decisions are values; ``population.execute`` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from symbiont_ecology.ecology.nursery import Candidate
from symbiont_ecology.ecology.organelle import Former, Genome
from symbiont_ecology.operators import Operator
from symbiont_ecology.types import OrganelleId

Inheritance = Literal["lamarckian", "darwinian"]


@dataclass(frozen=True)
class Found:
    """A new organelle without living parents; the world pays its dowry.

    With ``genome`` None its weights are drawn afresh (A random, B normal with ``b_std``); otherwise it is
    refounded from the archive.
    """

    traits: dict[str, float]
    rank: int
    genome: Genome | None = None
    b_std: float = 0.0
    operator: str = "founder"


@dataclass(frozen=True)
class Birth:
    """A child of living parents, who pay its dowry in equal parts.

    Its weights are ``operator`` applied to the parents' weights; it inherits, discounted, what was believed
    of the first. What parents learned in their lives is handed down (Lamarckian), with the memory of an only
    parent of equal rank, or not at all (Darwinian).
    """

    parents: tuple[OrganelleId, ...]
    operator: Operator
    name: str
    traits: dict[str, float]
    inheritance: Inheritance = "lamarckian"


@dataclass(frozen=True)
class Propose:
    """A child of living parents, who put its dowry aside, goes on probation. ``cells`` says where each parent is at home, ``rank`` how
    large the child may be: what its operator makes beyond that is cut off."""

    cells: Mapping[OrganelleId, tuple[str, ...]]
    operator: Operator
    name: str
    traits: dict[str, float]
    rank: int


@dataclass(frozen=True)
class Note:
    """What an organelle is now is kept as its former self, unless more was once believed of it."""

    who: OrganelleId


@dataclass(frozen=True)
class Recall:
    """The former self of an organelle goes on probation against what became of it, in some cells."""

    who: OrganelleId
    former: Former
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Probation:
    """What a child on probation has shown since it was last looked at; it goes on, is admitted, or rejected.

    The admitted takes over the cells of its parents, who live on as long as they can; the dowry of the
    rejected goes back to them. With ``operator``, the child is made anew of its only parent at every look, and
    once admitted, is what the parent becomes: nobody is born. An admitted former self takes the place of what
    became of it.
    """

    child: Candidate
    verdict: Literal["go on", "admit", "reject"]
    operator: Operator | None = None


@dataclass(frozen=True)
class Resize:
    """An organelle grows or shrinks by rank, if the spectrum of its ΔW says so.

    ``share`` is what the weakest direction must carry at least to grow, or may carry at most to shrink, in
    units of an even share.
    """

    who: OrganelleId
    rank: int
    share: float


@dataclass(frozen=True)
class Retire:
    """An organelle leaves; what it owns or owes goes to the world."""

    who: OrganelleId
    cause: str


@dataclass(frozen=True)
class Upheaval:
    """The world is taken to have changed in some cells.

    Nobody living is believed there any more, and the elites go to the seed bank, from which they may come
    back if the world does.
    """

    cells: tuple[str, ...]


Decision: TypeAlias = Found | Birth | Propose | Note | Recall | Probation | Resize | Retire | Upheaval

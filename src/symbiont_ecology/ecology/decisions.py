"""What a strategy may decide. Decisions are values; ``population.carry_out`` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from symbiont_ecology.ecology.gate import Challenger, GateDecision
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

    Its weights are ``operator`` applied to the parents' weights. It inherits, discounted, the
    posteriors of the first parent. What parents learned in their lives is handed down (Lamarckian),
    with the optimiser state of an only parent of equal rank, or not at all (Darwinian).
    """

    parents: tuple[OrganelleId, ...]
    operator: Operator
    name: str
    traits: dict[str, float]
    inheritance: Inheritance = "lamarckian"


@dataclass(frozen=True)
class ProposeChild:
    """A child of several parents goes on probation, and is judged by the mechanism ``by``.

    It is born if it is admitted. Its parents put its dowry aside in equal parts; if one of them
    cannot, nothing happens. ``cells`` says where each parent is at home. ``rank`` is the most that
    the child may have: what its operator makes beyond that is cut off.
    """

    cells: Mapping[OrganelleId, tuple[str, ...]]
    operator: Operator
    name: str
    traits: dict[str, float]
    rank: int
    by: str


@dataclass(frozen=True)
class ProposeVariant:
    """A variant of an organelle, made by an operator, goes on probation against it.

    The organelle becomes the variant if that is admitted: nobody is born.
    """

    organelle_id: OrganelleId
    cells: tuple[str, ...]
    operator: Operator
    name: str
    by: str


@dataclass(frozen=True)
class ProposeFormerSelf:
    """The former self of an organelle goes on probation against what it is now, in some cells."""

    organelle_id: OrganelleId
    former: FormerSelf
    cells: tuple[str, ...]
    by: str


@dataclass(frozen=True)
class Judge:
    """A challenger with what it has shown since the last look: it goes on, is admitted or rejected.

    An admitted child takes over the cells of its parents, who live on as long as they can; the
    dowry of a rejected one goes back to them. ``operator`` makes a variant anew at every look, from
    what its organelle is then.
    """

    challenger: Challenger
    decision: GateDecision
    operator: Operator | None = None


@dataclass(frozen=True)
class KeepSelf:
    """What an organelle is now is kept as its former self, unless it was once more able."""

    organelle_id: OrganelleId


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
    """The world is taken to have changed in some cells: posteriors and claims there are void."""

    cells: tuple[str, ...]


Decision: TypeAlias = (
    Found
    | Birth
    | ProposeChild
    | ProposeVariant
    | ProposeFormerSelf
    | Judge
    | KeepSelf
    | Resize
    | Retire
    | Upheaval
)

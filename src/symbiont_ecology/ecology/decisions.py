"""What a strategy may decide. Decisions are values; ``population.execute`` carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from symbiont_ecology.ecology.organelle import Genome
from symbiont_ecology.operators import Operator
from symbiont_ecology.types import OrganelleId


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

    Its weights are ``operator`` applied to the parents' weights; it inherits the first parent's memory and,
    discounted, what was believed of it.
    """

    parents: tuple[OrganelleId, ...]
    operator: Operator
    name: str
    traits: dict[str, float]


@dataclass(frozen=True)
class Retire:
    """An organelle leaves; what it owns or owes goes to the world."""

    who: OrganelleId
    cause: str


Decision: TypeAlias = Found | Birth | Retire

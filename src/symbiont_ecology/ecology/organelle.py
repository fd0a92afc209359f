"""An organelle: one adapter with a genome, a memory and a history."""

from __future__ import annotations

from dataclasses import dataclass

from symbiont_ecology.types import BlobRef, OrganelleId

HOST: OrganelleId = "host"
"""The id under which the bare host appears in trials and events; it owns no account and never learns."""


@dataclass(frozen=True)
class Genome:
    """What is inherited: adapter weights by reference, and traits (``learning_rate`` is Adam's step size)."""

    weights: BlobRef
    rank: int
    traits: dict[str, float]


@dataclass(frozen=True)
class Organelle:
    """One living adapter. ``overdrawn`` counts the generations in a row that it ended below zero."""

    id: OrganelleId
    genome: Genome
    memory: BlobRef
    parents: tuple[OrganelleId, ...]
    operator: str
    born: int
    overdrawn: int = 0

"""Energy becomes offspring: who can pay a child's dowry has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt

from symbiont_ecology.ecology import Birth, Decision, EcologyState, Inheritance, Organelle, Outcome
from symbiont_ecology.operators import operators
from symbiont_ecology.registry import Share, Spec
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Scene
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("breeding")
@dataclass(frozen=True)
class Breeding(Mechanism):
    """The rich breed while there is room; a child has its parent's weights and step size, varied.

    A child may also take over part of its parent's families, as when a valley splits a population in two
    (vicariance): both then have questions enough to learn from, and grow apart.
    """

    at: NonNegativeInt = 1_000_000  # balance from which an organelle breeds, in mATP, dowry included
    inheritance: Inheritance = "lamarckian"  # whether what parents learned is handed down (darwinian: is not)
    takes: Share = 0.0  # part of the families in which its parent is at home that a child takes over
    spread: NonNegativeFloat = 0.3  # std of a child's log step size around its parent's, >= 0
    mutation: Spec = field(default_factory=lambda: {"kind": "gaussian"})  # operator on a child's weights

    def __post_init__(self) -> None:
        operators.build(self.mutation)

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, room: Room, draw: Draw
    ) -> Sequence[Decision]:
        """One child for everyone who is rich, in a drawn order, until there is no place left."""
        rich = [o for o in state.population.values() if state.ledger.balance(o.id) >= self.at]
        order = draw("breeders").permutation(len(rich))[: room.places]
        return [self._child(rich[index], state, draw) for index in order]

    def _child(self, parent: Organelle, state: EcologyState, draw: Draw) -> Birth:
        step = float(np.exp(self.spread * draw("traits", parent.id).standard_normal()))
        traits = {**parent.genome.traits, "learning_rate": parent.genome.traits["learning_rate"] * step}
        name = self.mutation if isinstance(self.mutation, str) else self.mutation["kind"]
        return Birth(
            (parent.id,),
            operators.build(self.mutation),
            str(name),
            traits,
            self._dowry(parent, state, draw),
            self.inheritance,
        )

    def _dowry(self, parent: Organelle, state: EcologyState, draw: Draw) -> tuple[str, ...]:
        """Cells that the child takes over: all depths of some families that the parent holds, at random."""
        held = [name for name, elite in sorted(state.archive.elites.items()) if elite.who == parent.id]
        families = sorted({name.rpartition("/")[0] for name in held})
        chosen = draw("territory", parent.id).permutation(len(families))[: int(self.takes * len(families))]
        taken = {families[index] for index in chosen}
        return tuple(name for name in held if name.rpartition("/")[0] in taken)

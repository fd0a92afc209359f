"""Controls for worlds with habitats: an adapter for each of them, or for each of their kinds.

Nobody breeds or goes bankrupt. ``per_habitat`` shares nothing between habitats; with
``learning_rule.replay`` it is the strong control. ``told`` is the ceiling: it knows what nobody is
told.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Found, Habitat, Retire
from symbiont_ecology.ecology.habitats import MOST_ANSWERS
from symbiont_ecology.strategies import LearningStrategy, StrategyContext, assignments, strategies
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.tasks.habitats import Habitats, SyntheticHabitats
from symbiont_ecology.types import Item, OrganelleId


@dataclass(frozen=True)
class Residents(LearningStrategy):
    """Every question goes to the organelle of its niche, which is founded when it is first asked.

    A subclass says what a niche is.
    """

    fits_habitats: ClassVar[bool] = True
    needs_habitats: ClassVar[bool] = True
    service_fault: ClassVar[str] = "it founds adapters for who asks next, which nobody knows"

    @abstractmethod
    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        """The number of the niche that each item belongs to."""

    def found(self, context: StrategyContext) -> list[Decision]:
        """An organelle for every niche that asks in the first generation."""
        return self._founded(context, context.state.generation)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """Each question to the resident of its niche, unless that is gone."""
        generation, residents = context.state.generation, _residents(context.state)
        items, niches = self._asked(context, generation)
        takers = [
            (residents[niche], item)
            for niche, item in zip(niches, items, strict=True)
            if niche in residents
        ]
        return self.sampled(assignments(takers, self.samples), context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Founds who is asked next and is not there yet, or is gone (a NaN, a catastrophe)."""
        return self._founded(context, context.state.generation + 1)

    def _founded(self, context: StrategyContext, generation: int) -> list[Decision]:
        residents = _residents(context.state)
        niches = dict.fromkeys(self._asked(context, generation)[1])
        return [
            Found({**self.traits, NICHE: float(niche)}, context.rank)
            for niche in niches
            if niche not in residents
        ]

    def _asked(self, context: StrategyContext, generation: int) -> tuple[Sequence[Item], list[int]]:
        world = context.tasks.habitats
        assert world is not None  # engine.build has checked it
        items = world.questions(generation)
        return items, self.niches(items, world, generation)


@strategies.register("per_habitat")
@dataclass(frozen=True)
class PerHabitat(Residents):
    """One adapter per habitat: nothing is shared, and a newcomer starts from the host.

    With ``reset`` it starts anew when its habitat changed (``Habitat.after``): the control for
    changes, which keeps nothing.
    """

    reset: bool = False  # whether an adapter starts anew when its habitat changed

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Founds who is missing; whose habitat changed since its birth is founded anew."""
        state, world = context.state, context.tasks.habitats
        assert world is not None
        outdated = {
            niche: resident
            for niche, resident in _residents(state).items()
            if self.reset and _has_outlived(state.habitats.get(world.names[niche]), resident)
        }
        decisions: list[Decision] = [Retire(resident, "reset") for resident in outdated.values()]
        for niche in outdated:
            decisions.append(Found({**self.traits, NICHE: float(niche)}, context.rank))
        return [*decisions, *super().tell(context)]

    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        """The number of the habitat."""
        return [world.number(item.habitat) for item in items]


@strategies.register("told")
@dataclass(frozen=True)
class Told(Residents):
    """One adapter per kind. It is told the kind of every habitat at any time: the ceiling."""

    needs_kinds: ClassVar[bool] = True

    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        """The number of the kind."""
        assert isinstance(world, SyntheticHabitats)  # engine.build has checked it
        kinds = world.kinds(generation)
        return [int(kinds[world.number(item.habitat)]) for item in items]


def _has_outlived(habitat: Habitat | None, resident: OrganelleId) -> bool:
    """Whether a habitat changed while this organelle was its resident: then what it remembers
    begins with an answer of it, and is shorter than its past."""
    if habitat is None or len(habitat.answers) >= min(habitat.asked, MOST_ANSWERS):
        return False
    return habitat.answers[0].organelle_id == resident


def _residents(state: EcologyState) -> dict[int, OrganelleId]:
    return {int(o.genome.traits[NICHE]): o.id for o in state.population.values()}

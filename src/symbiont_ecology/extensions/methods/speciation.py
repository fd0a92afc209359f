"""Speciation: organelles keep to prompts like those that they met; for strange ones comes another.

Nobody says that something new has come. A prompt that is far from what everyone alive has met is
left to the bare host. In the next generation there is a newcomer, who takes what is strange to all
others. So what the old know is not overwritten by what is new.

A prompt is a unit vector of hashed character n-grams (feature hashing: Weinberger et al. 2009,
arXiv:0902.2206). A range knows their mean, and how near to it its own prompts are. Families and
labels are not looked at.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from pydantic import JsonValue, PositiveFloat, PositiveInt

from symbiont_ecology.base.events import Event
from symbiont_ecology.base.types import Item, OrganelleId, last_turn
from symbiont_ecology.ecology import HOST, Decision, Found, Organelle, practice_of
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.strategies import StrategyContext, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

NOTE = "speciation"
"""The note of an organelle in which its range is kept."""
PROFILE_SIZE, MAX_GRAM = 256, 4
"""Numbers of a profile; longest n-gram, in characters."""
USUAL_SPREAD, WORTH = 0.01, 4.0
"""Standard deviation of cosines where nothing is known, and for how many prompts that counts."""
FADE = 0.98
"""Weight of an older cosine after each generation: means get better known, so cosines rise."""
MAX_PROMPTS = 512
"""Prompts whose mean is kept; then older ones fade, too."""


@mechanisms.register("speciation")
@dataclass(frozen=True)
class Speciation(Mechanism):
    """Takers by how familiar a prompt is to them, and newcomers for strange prompts."""

    strange: PositiveFloat = 5.0  # standard deviations from its prompts that are too far for it
    least: PositiveInt = 4  # strange questions of one generation that bring a newcomer
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})  # users say who asks

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Return who knows such prompts best; a newcomer where nobody does, or else the host."""
        prompt = last_turn(item.prompt)
        ranges = {o.id: range_of(o) for o in context.state.population.values()}
        familiarity = {
            name: known.familiarity(prompt) for name, known in ranges.items() if not known.is_open
        }
        best = max(familiarity, key=familiarity.__getitem__, default=None)
        if best is not None and familiarity[best] >= -self.strange:
            return best
        return next((name for name, known in ranges.items() if known.is_open), HOST)

    def tell(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """Note which prompts were met; return a newcomer, if the host was asked what is strange to
        all, and there is room."""
        living = context.state.population
        met: list[Decision] = [
            Met(name, tuple(last_turn(i.prompt) for o in practice for i in o.assignment.items))
            for name, practice in practice_of(context.outcomes).items()
            if name in living
        ]
        strange = [
            o.assignment.items for o in context.outcomes if o.assignment.organelle_id == HOST
        ]
        if sum(map(len, strange)) < self.least or not room.places or not living:
            return met
        return [*met, Found(dict(room.traits), context.rank, operator="newcomer")]


@dataclass(frozen=True)
class Met(Decision):
    """An organelle met these prompts: its range is noted."""

    organelle_id: OrganelleId
    prompts: tuple[str, ...]

    def apply(self, context: ApplyContext) -> list[Event]:
        population = context.state.population
        organelle = population[self.organelle_id]
        noted: JsonValue = asdict(range_of(organelle).after(self.prompts))
        notes = {**organelle.notes, NOTE: noted}
        population[organelle.id] = replace(organelle, notes=notes)
        return []


def range_of(organelle: Organelle) -> PromptRange:
    """Return the range that an organelle has noted; an open one if it met nothing."""
    noted: Any = organelle.notes.get(NOTE, {})
    return PromptRange(**noted)


@dataclass(frozen=True)
class PromptRange:
    """The prompts that an organelle has met, as far as their letters tell.

    ``total`` is the sum of their profiles, float32 ``(dimensions,)`` in base64; ``count`` is how
    many there were. ``seen`` is the weight of the cosines between prompts and the mean of the
    others, ``mean`` and ``squares`` are their mean and their weighted squared deviations.
    """

    total: str = ""
    count: float = 0.0
    seen: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @cached_property
    def vector(self) -> np.ndarray:
        """The sum of all profiles."""
        if not self.total:
            return np.zeros(PROFILE_SIZE)
        return np.frombuffer(base64.b64decode(self.total), np.float32).astype(np.float64)

    @property
    def is_open(self) -> bool:
        """True if too little is known to find anything strange."""
        return self.seen == 0

    def familiarity(self, prompt: str) -> float:
        """Return how near a prompt is to the mean, in standard deviations of the own prompts: about
        0 for those, far below for strange ones."""
        cosine = float(_unit(self.vector) @ profile(prompt))
        variance = (self.squares + WORTH * USUAL_SPREAD**2) / (self.seen + WORTH)
        return (cosine - self.mean) / math.sqrt(variance)

    def after(self, prompts: Sequence[str]) -> PromptRange:
        """Return it with the prompts of one more generation."""
        profiles = np.array([profile(prompt) for prompt in prompts])
        part = min(1.0, MAX_PROMPTS / max(self.count, 1.0))
        total, count = part * self.vector + profiles.sum(axis=0), part * self.count + len(profiles)
        seen, mean, squares = FADE * self.seen, self.mean, FADE * self.squares
        for row in profiles if count > 1 else ():
            cosine = float(_unit(total - row) @ row)
            seen += 1
            step = (cosine - mean) / seen
            squares += (cosine - mean) * (cosine - mean - step)
            mean += step
        text = base64.b64encode(total.astype(np.float32).tobytes()).decode()
        return PromptRange(text, count, seen, mean, squares)


@lru_cache(maxsize=1 << 14)
def profile(prompt: str) -> np.ndarray:
    """Return the unit vector ``(dimensions,)`` of square roots of the counts of hashed n-grams;
    read only."""
    data = prompt.encode()
    codes = [
        zlib.crc32(data[start : start + size]) % PROFILE_SIZE
        for size in range(1, MAX_GRAM + 1)
        for start in range(len(data) - size + 1)
    ]
    vector = _unit(np.sqrt(np.bincount(codes, minlength=PROFILE_SIZE)))
    vector.setflags(write=False)
    return vector


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector

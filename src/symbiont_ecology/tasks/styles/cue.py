"""Asks for one convention outright: ``math.add#1: 47+8``. For evaluation, never for learning.

The cue for the target convention shows what the host can do when it knows what is wanted (its
ceiling); the other cues show what it still can do after learning (retention).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.family import TaskFamily, ended
from symbiont_ecology.types import Item


@prompt_styles.register("cue")
@dataclass(frozen=True)
class Cue:
    """Names the item's own convention by its index."""

    is_chat: ClassVar[bool] = False
    tells_convention: ClassVar[bool] = True
    extra_tokens: ClassVar[int] = 0

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt of an item."""
        if family.is_written:
            return ended(item.payload)
        return f"{family.name}#{item.convention}: {item.payload}\n"

    def reworded(self) -> Cue:
        """Itself: a cue has one form."""
        return self

    def cued(self) -> Cue:
        """Itself."""
        return self

"""The embedded host's canonical form: ``math.add: 47+8``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.family import TaskFamily, ended
from symbiont_ecology.tasks.styles.cue import Cue
from symbiont_ecology.tasks.styles.wording import Wording
from symbiont_ecology.types import Item


@prompt_styles.register("terse")
@dataclass(frozen=True)
class Terse:
    """Family name, payload, new line."""

    is_chat: ClassVar[bool] = False
    tells_convention: ClassVar[bool] = False
    extra_tokens: ClassVar[int] = 0

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt of an item."""
        if family.is_written:
            return ended(item.payload)
        return f"{family.name}: {item.payload}\n"

    def reworded(self) -> Wording:
        """The frame that a family is denied in all training."""
        return Wording()

    def cued(self) -> Cue:
        """With the convention's index."""
        return Cue()

"""The same question in other words: a frame around the family's keyword phrase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.family import FRAMES, TaskFamily, ended
from symbiont_ecology.tasks.styles.cue import Cue
from symbiont_ecology.types import Item


@prompt_styles.register("wording")
@dataclass(frozen=True)
class Wording:
    """``find the sum: 47+8``.

    ``shift`` counts from the frame that this family is denied in all training: 0 is that unseen
    frame (wording shift), 1 to 4 are frames the host was pre-trained on.
    """

    shift: int = 0
    is_chat: ClassVar[bool] = False
    tells_convention: ClassVar[bool] = False
    extra_tokens: ClassVar[int] = 0

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt of an item."""
        if family.is_written:
            return ended(item.payload)
        return (
            f"{family.wording((family.unseen_frame + self.shift) % len(FRAMES))}: {item.payload}\n"
        )

    def reworded(self) -> Wording:
        """The next frame."""
        return Wording((self.shift + 1) % len(FRAMES))

    def cued(self) -> Cue:
        """With the convention's index."""
        return Cue()

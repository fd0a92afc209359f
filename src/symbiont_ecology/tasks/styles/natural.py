"""A plain request for a general language model, with or without its chat template."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.family import TaskFamily
from symbiont_ecology.types import Item


@prompt_styles.register("natural")
@dataclass(frozen=True)
class Natural:
    """States the task and the wanted format. ``is_chat`` wraps the request in the host's chat
    template.

    A prompt that somebody else wrote is left as it is: it ends in its own lead-in, if it has one.

    ``extra_tokens`` is room for words around the answer.
    """

    is_chat: bool = False
    extra_tokens: int = 24
    opening: str = ""  # words in front of the request
    tells_convention: ClassVar[bool] = True
    lead_in: ClassVar[str] = "\nAnswer: "

    def render(self, family: TaskFamily, item: Item) -> str:
        """The prompt of an item; a host without chat template is led to the answer."""
        if family.is_written:
            return item.payload
        request = family.instruction.format(
            payload=item.payload, format=family.formats[item.convention]
        )
        request = self.opening + request
        return request if self.is_chat else request + self.lead_in

    def reworded(self) -> Natural:
        """The request behind other words."""
        return replace(self, opening="Here is something for you to solve, dear assistant. ")

    def cued(self) -> Natural:
        """Itself: the request says which format is wanted."""
        return self

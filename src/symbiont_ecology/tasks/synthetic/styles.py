"""Prompt styles: how a synthetic question is put to a host.

A style is a knob of a run (``tasks.style``). Tasks of other kinds make their own prompts. They have
no style, apart from the host's chat template; data also get the line end of the style.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from symbiont_ecology.registry import Registry

if TYPE_CHECKING:
    from symbiont_ecology.tasks.synthetic.family import SyntheticTask


class PromptStyle(ABC):
    """How a question becomes a prompt.

    ``is_chat``: the host's chat template goes around the prompt. ``tells_convention``: a prompt
    says which convention is wanted, so a change of it is no secret. ``line_end`` is what a prompt
    ends in; prompts that somebody else wrote get it, too. ``extra_tokens`` are new tokens to allow
    beyond the family's own limit.
    """

    is_chat: bool = False
    tells_convention: ClassVar[bool] = False
    line_end: ClassVar[str] = "\n"
    extra_tokens: int = 0

    @abstractmethod
    def render(self, family: SyntheticTask, question: str) -> str:
        """The prompt of a question."""

    def reworded(self) -> PromptStyle:
        """The same questions in words that no adapter learned from: for wording shift. A style
        with one form stays as it is."""
        return self

    def cued(self) -> PromptStyle:
        """The same questions with the wanted convention told: for ceilings and retention."""
        return self


prompt_styles: Registry[PromptStyle] = Registry("prompt style", "symbiont_ecology.tasks.synthetic")

FRAMES = ("{}", "find {}", "give {}", "what is {}", "now {}")
"""Wordings are frames around a family's keyword. Each family is denied one frame in all training
(``unseen_frame``), yet every frame is familiar from other families."""


@prompt_styles.register("cue")
@dataclass(frozen=True)
class Cue(PromptStyle):
    """Names the convention by its index: ``math.add#1: 47+8``. For evaluation, not for learning.

    The cue for the target convention shows what the host can do when it knows what is wanted (its
    ceiling). The other cues show what it can still do after learning (retention).
    """

    tells_convention: ClassVar[bool] = True

    def render(self, family: SyntheticTask, question: str) -> str:
        """The prompt of a question."""
        return f"{family.name}#{family.convention}: {question}\n"


@prompt_styles.register("wording")
@dataclass(frozen=True)
class Wording(PromptStyle):
    """A frame around the family's keyword: ``find the sum: 47+8``.

    ``shift`` counts from the frame that this family is denied in all training: 0 is that unseen
    frame (wording shift), 1 to 4 are frames that the host was pre-trained on.
    """

    shift: int = 0  # frames behind the one that is denied in training

    def render(self, family: SyntheticTask, question: str) -> str:
        """The prompt of a question."""
        frame = FRAMES[(family.unseen_frame + self.shift) % len(FRAMES)]
        return f"{frame.format(family.keyword)}: {question}\n"

    def reworded(self) -> Wording:
        """The next frame."""
        return Wording((self.shift + 1) % len(FRAMES))

    def cued(self) -> Cue:
        """With the convention's index."""
        return Cue()


@prompt_styles.register("terse")
@dataclass(frozen=True)
class Terse(PromptStyle):
    """The embedded host's own form, family and question: ``math.add: 47+8``."""

    def render(self, family: SyntheticTask, question: str) -> str:
        """The prompt of a question."""
        return f"{family.name}: {question}\n"

    def reworded(self) -> Wording:
        """The frame that a family is denied in all training."""
        return Wording()

    def cued(self) -> Cue:
        """With the convention's index."""
        return Cue()


@prompt_styles.register("natural")
@dataclass(frozen=True)
class Natural(PromptStyle):
    """A plain request for a general model: the task and the wanted format.

    ``is_chat`` puts every prompt, of tasks of other kinds too, into the host's chat template.
    ``extra_tokens`` is room for words around the answer.
    """

    is_chat: bool = False  # the host's chat template goes around every prompt
    extra_tokens: int = 24  # room for words around the answer
    opening: str = ""  # words in front of the request
    tells_convention: ClassVar[bool] = True
    line_end: ClassVar[str] = ""
    lead_in: ClassVar[str] = "\nAnswer: "

    def render(self, family: SyntheticTask, question: str) -> str:
        """The request. A host without chat template is led to the answer."""
        wanted = family.formats[family.convention]
        request = self.opening + family.instruction.format(payload=question, format=wanted)
        return request if self.is_chat else request + self.lead_in

    def reworded(self) -> Natural:
        """The request behind other words."""
        return replace(self, opening="Here is something for you to solve, dear assistant. ")

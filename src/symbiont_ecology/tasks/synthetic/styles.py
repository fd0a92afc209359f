"""Prompt styles: how a question is put to a host.

A style is a knob of a run (``tasks.style``). Synthetic questions get their words from it. Data have
their own words, and get what a style puts around them: solved examples, a line end, what the system
says. Tasks of other kinds make their own prompts, and only the host's chat template goes around
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.tasks.task import Task

if TYPE_CHECKING:
    from symbiont_ecology.tasks.synthetic.family import SyntheticTask


class PromptStyle(ABC):
    """Form of prompts.

    ``is_chat``: the host's chat template goes around the turns of a prompt. ``tells_convention``: a
    prompt says which convention is wanted, so a change of it is no secret. ``line_end`` is what a
    prompt ends in; prompts that somebody else wrote get it, too. ``extra_tokens`` are new tokens to
    allow beyond the family's own limit. ``is_tolerant``: what a family's convention is not about,
    such as a sentence around the answer, does not count (``SyntheticTask.verify``). ``system`` is
    said before everything else.
    """

    is_chat: bool = False
    tells_convention: ClassVar[bool] = False
    extra_tokens: int = 0
    is_tolerant: bool = False
    system: str | None = None

    @property
    def line_end(self) -> str:
        """End of a prompt."""
        return "\n"

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer, beside the host's end token."""
        return ()

    @abstractmethod
    def render(self, family: SyntheticTask, question: str) -> str:
        """Return the words of a question: the last turn of its prompt."""

    def before(self, task: Task, question: str) -> tuple[str, ...]:
        """Return the turns in front of a question."""
        return () if self.system is None else (self.system,)

    def reworded(self) -> PromptStyle:
        """Return the same questions in words that no adapter learned from: for wording shift. A
        style with one form stays as it is."""
        return self

    def cued(self) -> PromptStyle:
        """Return the same questions with the wanted convention told: for ceilings and retention."""
        return self if self.tells_convention else Cue()


prompt_styles: Registry[PromptStyle] = Registry("prompt style", "symbiont_ecology.tasks.synthetic")

FRAMES = ("{}", "find {}", "give {}", "what is {}", "now {}")
"""Wordings are frames around a family's keyword. Each family is denied one frame in all training
(``unseen_frame``), yet every frame is familiar from other families."""
OTHER_OPENING = "Here is something for you to solve, dear assistant. "
"""Other words for a request to a general model."""


@prompt_styles.register("cue")
@dataclass(frozen=True)
class Cue(PromptStyle):
    """Names the convention by its index: ``math.add#1: 47+8``. For evaluation, not for learning.

    The cue for the target convention shows what the host can do when it knows what is wanted (its
    ceiling). The other cues show what it can still do after learning (retention).
    """

    tells_convention: ClassVar[bool] = True

    def render(self, family: SyntheticTask, question: str) -> str:
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
        frame = FRAMES[(family.unseen_frame + self.shift) % len(FRAMES)]
        return f"{frame.format(family.keyword)}: {question}\n"

    def reworded(self) -> Wording:
        return Wording((self.shift + 1) % len(FRAMES))


@prompt_styles.register("terse")
@dataclass(frozen=True)
class Terse(PromptStyle):
    """The embedded host's own form, family and question: ``math.add: 47+8``."""

    def render(self, family: SyntheticTask, question: str) -> str:
        return f"{family.name}: {question}\n"

    def reworded(self) -> Wording:
        return Wording()


@prompt_styles.register("natural")
@dataclass(frozen=True)
class Natural(PromptStyle):
    """A plain request for a general model: the task and the wanted format.

    ``is_chat`` puts every prompt, of tasks of other kinds too, into the host's chat template.
    ``extra_tokens`` is room for words around the answer.
    """

    is_chat: bool = False  # the host's chat template goes around every prompt
    system: str | None = None  # what the system says in a chat; None is the template's own
    extra_tokens: int = 24  # room for words around the answer
    opening: str = ""  # words in front of the request
    is_tolerant: bool = False  # what a convention is not about does not count
    tells_convention: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.system is not None and not self.is_chat:
            raise ValueError("system is for chats: set is_chat, or leave it out")

    @property
    def line_end(self) -> str:
        return ""

    def render(self, family: SyntheticTask, question: str) -> str:
        request = self.opening + family.instructed(question)
        return request if self.is_chat else f"{request}\nAnswer: "

    def reworded(self) -> Natural:
        return replace(self, opening=OTHER_OPENING)


@prompt_styles.register("few_shot")
@dataclass(frozen=True)
class FewShot(Natural):
    """A few solved examples, then the question (Brown et al. 2020, arXiv:2005.14165).

    They tell a general model what is wanted and in which form. They are train questions of the same
    family, or lines of the same data, fixed for a run. With ``is_chat`` they are turns of a
    conversation in the host's chat template; without it they are text, and an answer ends with its
    line.
    """

    extra_tokens: NonNegativeInt = 4  # room beyond the family's own limit
    examples: PositiveInt = 4  # solved ones in front of every question
    request: Literal["name", "instruction"] = "name"  # words of a synthetic question
    stop: tuple[str, ...] | None = None  # texts that end an answer; None: its line end, if no chat

    @property
    def line_end(self) -> str:
        return "" if self.is_chat else "\n"

    @property
    def stops(self) -> tuple[str, ...]:
        usual = () if self.is_chat else ("\n",)
        return usual if self.stop is None else self.stop

    def render(self, family: SyntheticTask, question: str) -> str:
        is_named = self.request == "name"
        words = f"{family.name}: {question}" if is_named else family.instructed(question)
        return f"{self.opening}{words}{self.line_end}"

    def before(self, task: Task, question: str) -> tuple[str, ...]:
        turns = list(super().before(task, question))
        drawn = _drawn_examples(task, self.examples + 1)  # one to spare: never the question itself
        for example, answer in [pair for pair in drawn if pair[0] != question][: self.examples]:
            turns += [task.worded(example), f"{answer}{self.line_end}"]
        return tuple(turns)


DRAWS_PER_EXAMPLE = 100
"""Draws for each different example that is wanted; a small task has fewer."""


@lru_cache(maxsize=256)
def _drawn_examples(task: Task, count: int) -> tuple[tuple[str, str], ...]:
    """Return so many train questions with their answers, depths by turns, the easiest first: a
    function of the task's name."""
    depths = task.trained_depths or task.depths
    generator = Draw(0)("examples", task.name)
    examples: dict[str, str] = {}
    for turn in range(DRAWS_PER_EXAMPLE * count):
        if len(examples) == count:
            break
        with suppress(DataError):  # data may have no train question of some depth
            question = task.valid_question(depths[turn % len(depths)], generator)
            examples.setdefault(question, task.answer(question))
    return tuple(examples.items())

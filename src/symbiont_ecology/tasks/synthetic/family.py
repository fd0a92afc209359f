"""A synthetic family: questions of three depths, one answer for each of three conventions.

Every family answers each question in three *conventions* (``12``, ``=12``, ``(12)``). One of them,
the target, is what the verifier accepts. A change of convention during a run makes another family
object, so what counts as right is data. Families of a convention group share its conventions and
its target: what is learned about one carries over to the others (measured in docs/results.md).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from numpy.random import Generator

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.types import is_text
from symbiont_ecology.tasks import Task
from symbiont_ecology.tasks.grading import answer_lines, statements
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, Terse

WORDS = tuple(
    """ant ball barn bear bell big bird blue boat bold book box bread bush cake calm camp card cat
    clay cold corn cow cup dark dawn deep deer desk dig dog door dry duck dust east egg fair
    farm fast fish flat fly fog fox frog gold good gray green hand hat hen high hill home hot
    ice ink iron jam jar joy jump keep key kind king lake lamp late leaf light lime long loud
    low map mild milk moon moss mud near nest new north nut oak old one owl page path pear pig
    pin pond rain red rice ring road rock roof root rose run salt sand sea seed ship shop silk
    six sky slow small snow soft song south star stem sun tall tea tin top town tree two van
    wall warm wave well west wet wide wild wind wing wolf wood yard young""".split()
)
Ranges = tuple[tuple[int, int], ...]
"""Lowest and highest value of each of some integers."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Option = TypeVar("Option")

DEPTHS = ("short", "medium", "long")
CONVENTIONS = 3


@dataclass(frozen=True)
class SyntheticTask(Task):
    """Base of all synthetic families. A subclass is ``draw`` + ``answers`` and a few class facts;
    it adds no field, so it needs no ``@dataclass``.

    ``convention`` is the one in force; ``style`` makes the prompts. Both belong to a run.

    ``role`` says who meets a family. Adapters train on *trained* alone. *shared* and *unrelated*
    families are kept for family shift (a convention group known from training, or a group of their
    own); the host was pre-trained on all three. *composition* families ask for a convention that
    pre-training never showed.

    ``keyword`` stands for the family in wordings (``the sum``), ``instruction`` tells a general
    model what to do with the question below it, ``formats`` say how each convention is described
    there. ``reply_limits`` are the
    longest replies by depth in characters, so in tokens at most, end of answer included.
    ``answer_shape`` is what a line looks like that offers an answer: two offers in one reply score
    0. ``convention_group`` is the family's own name if it has conventions of its own.
    ``ignores_case`` says that none of them is about case.
    """

    style: PromptStyle = field(default_factory=Terse, repr=False)
    chosen: int | None = field(default=None, repr=False)

    depths = DEPTHS
    trained_depths = DEPTHS[:2]
    variants = CONVENTIONS
    convention_group = ""
    target = 0
    keyword = ""
    instruction = ""
    formats: ClassVar[tuple[str, ...]] = ()
    reply_limits = (8, 8, 8)
    answer_shape = re.compile(r"\S+")
    unseen_frame = 4
    ignores_case: ClassVar[bool] = False

    @property
    def convention(self) -> int:
        """The convention in force: the target, unless another one was chosen."""
        return self.target if self.chosen is None else self.chosen

    def instructed(self, question: str) -> str:
        """Return what to do, in words, and the question below it: so questions of a family begin
        alike, and what they begin with is read once."""
        request = self.instruction.format(format=self.formats[self.convention])
        return f"{request}\n{question}"

    @property
    def group(self) -> str:
        return self.convention_group or self.name

    @abstractmethod
    def answers(self, question: str) -> tuple[str, ...]:
        """Return the right answer under each convention."""

    def is_right(self, question: str, reply: str, right: str) -> bool:
        """Return true if a final answer is accepted. Families with many right answers override
        this."""
        return reply == right

    def in_variant(self, variant: int) -> SyntheticTask:
        return replace(self, chosen=variant)

    def in_style(self, style: PromptStyle) -> SyntheticTask:
        """Return the same family with prompts of another style."""
        return replace(self, style=style)

    def flipped(self) -> SyntheticTask:
        """Return the same family under the convention that is neither the target nor the embedded
        host's favourite."""
        return self.in_variant(max(one for one in range(CONVENTIONS) if one != self.target))

    def worded(self, question: str) -> str:
        words = self.style.render(self, question)
        if not is_text(words):
            raise ConfigError(f"tasks.style: expected texts as prompts, got {words!r:.60}")
        return words

    def turns_before(self, question: str) -> tuple[str, ...]:
        return self.style.before(self, question)

    def answer(self, question: str) -> str:
        return self.answers(question)[self.convention]

    def verify(self, question: str, reply: str) -> float:
        """Return 1.0 for the right final answer in the convention in force, else 0.0.

        A reply that offers more than one answer (other conventions, other values) scores 0. In a
        tolerant style an answer may stand in a sentence, with punctuation and quotation marks, and
        in another case where no convention is about case.
        """
        is_right = self._is_offered(question, answer_lines(reply))
        if self.style.is_tolerant and not is_right:
            is_right = self._is_offered(question, self._tolerated(question, reply))
        return float(is_right)

    def _is_offered(self, question: str, lines: Sequence[str]) -> bool:
        """Return true if the last of some lines is right, and no other one offers anything else."""
        final, answers = (lines[-1] if lines else ""), self.answers(question)
        right = answers[self.convention]
        if not final or not self.is_right(question, final, right):
            return False
        rivals = {line for line in lines if line != final and self.answer_shape.fullmatch(line)}
        return not rivals and {*answers}.isdisjoint({*lines} - {right})

    def _tolerated(self, question: str, reply: str) -> list[str]:
        """Return the statements of the sentences of a reply, the question that it repeats left out,
        and every answer in its own case where case does not matter."""
        texts = [text.removeprefix(question).strip() or text for text in statements(reply)]
        if self.ignores_case:
            offers = {offer.lower(): offer for offer in self.answers(question)}
            texts = [offers.get(text.lower(), text) for text in texts]
        return texts

    def is_valid(self, question: str) -> bool:
        answers = self.answers(question)
        return len(set(answers)) == CONVENTIONS and "" not in answers

    def reply_limit(self, depth: str) -> int:
        return self.reply_limits[DEPTHS.index(depth)] + self.style.extra_tokens

    def variant_of(self, question: str) -> int:
        return self.convention


def by_depth(depth: str, options: Sequence[Option]) -> Option:
    """Return the option of a depth, from options for short, medium and long."""
    return options[DEPTHS.index(depth)]


def draw_words(generator: Generator, count: int) -> list[str]:
    """Draw ``count`` different words in random order."""
    return [WORDS[index] for index in generator.choice(len(WORDS), size=count, replace=False)]


def draw_letters(generator: Generator, count: int) -> str:
    """Draw ``count`` independent lower-case letters."""
    return "".join(LETTERS[index] for index in generator.integers(0, len(LETTERS), size=count))


def integer(generator: Generator, low: int, high: int) -> int:
    """Return a uniform integer in ``[low, high]``, both ends included."""
    return int(generator.integers(low, high + 1))


def integers(generator: Generator, ranges: Ranges) -> list[int]:
    """Return a uniform integer of each range."""
    return [integer(generator, low, high) for low, high in ranges]

"""Tasks: draw a question, make a prompt, verify a reply.

A question is a text, and it is all that there is to know of what is asked: a prompt, a verdict and
a reference answer are functions of it. So a question can be written down, hashed into a split, and
asked again in another run::

    @tasks.register("capital")
    @dataclass(frozen=True)
    class Capital(Task):
        def draw(self, depth, generator):
            return str(generator.choice(sorted(CAPITALS)))

        def prompt(self, question):
            return f"What is the capital of {question}?"

        def verify(self, question, reply):
            return CAPITALS[question] in reply

The verifier must accept the reference answer, if there is one, and refuse an empty reply. A reply
is untrusted text: a verifier reads it and never runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from numpy.random import Generator

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.types import Item, in_turns, is_text
from symbiont_ecology.tasks.splits import Split, split_of

if TYPE_CHECKING:
    from symbiont_ecology.tasks.config import UsersConfig
    from symbiont_ecology.tasks.users import Users

MAX_DRAWS = 10_000
"""Draws until a question of some split must have been found."""
DRAWS_PER_ITEM = 30
"""Draws for each different item that is wanted."""


class Task(ABC):
    """A family of questions. A subclass writes ``draw``, ``prompt`` and ``verify``.

    ``name`` is the name that it is registered under. ``depths`` are its levels of difficulty, the
    easiest first. ``trained_depths`` are those that a run takes if its config names none. Adapters
    train on tasks of the role ``trained`` alone; any other role is kept for evaluation.
    ``variants`` is how many ways to be right there are: users of as many kinds can ask it.
    ``is_open`` says that so many replies are right that the probability of one of them tells
    nothing.
    """

    name: str
    depths: Sequence[str] = ("all",)
    trained_depths: Sequence[str] | None = None
    role: str = "trained"
    reply_tokens: int = 64
    variants: int = 1
    is_open: bool = False

    @abstractmethod
    def draw(self, depth: str, generator: Generator) -> str:
        """Return a random question of that depth. It need not be valid: ``sample`` draws again."""

    @abstractmethod
    def verify(self, question: str, reply: str) -> object:
        """Return true or false for a reply, or a number from 0 to 1."""

    def worded(self, question: str) -> str:
        """Return the last turn of a prompt: the question as it stands, unless a subclass says
        otherwise."""
        return question

    def prompt(self, question: str) -> str:
        """Return the prompt of a question: all its turns."""
        return in_turns(*self.turns_before(question), self.worded(question))

    def turns_before(self, question: str) -> tuple[str, ...]:
        """Return the turns of a prompt in front of a question: none, unless there is a style
        that says something."""
        return ()

    def answer(self, question: str) -> str:
        """Return the reference answer; empty if there is none. Supervised learning needs one."""
        return ""

    def reply_limit(self, depth: str) -> int:
        """Return most new tokens that a reply may have."""
        return self.reply_tokens

    def split_key(self, question: str) -> str:
        """Return the text that decides the split. Questions that give each other's answer away
        share a key."""
        return question

    def is_valid(self, question: str) -> bool:
        """Return true if a drawn question may be asked."""
        return True

    def in_variant(self, variant: int) -> Task:
        """Return the same task with another way to be right in force. Most tasks have one way
        only."""
        return self

    def flipped(self) -> Task:
        """Return the same task after what counts as right has changed; itself if it cannot."""
        return self

    def own_users(self, config: UsersConfig) -> Users | None:
        """Return the users that come with the task; None if the config's world has its own."""
        return None

    @property
    def group(self) -> str:
        """Tasks of one group teach each other. A task by itself is its own group."""
        return self.name

    def variant_of(self, question: str) -> int:
        """Return the number of the variant in force."""
        return 0

    def item(self, question: str, depth: str) -> Item:
        """Return the item that asks this question, as it is judged in the variant in force.

        Raises:
            ConfigError: the task says something else than texts, or allows no reply.
        """
        variant = self.variant_of(question)
        item = Item(
            id=f"{self.name}/{depth}/{variant}/{question}",
            family=self.name,
            depth=depth,
            question=question,
            prompt=self.prompt(question),
            reply_limit=self.reply_limit(depth),
            verifier=partial(self.verify, question),
            answer=self.answer(question),
            variant=variant,
        )
        if is_text(item.prompt) and is_text(item.answer) and item.reply_limit >= 1:
            return item
        raise ConfigError(
            f"task {self.name!r}: expected texts and a reply limit from 1, got the prompt "
            f"{item.prompt!r:.60}, the answer {item.answer!r:.60}, the limit {item.reply_limit!r}"
        )

    def sample(self, depth: str, generator: Generator, *, split: Split = "train") -> Item:
        """Return one valid item of that depth and split.

        Raises:
            DataError: no question of that split came in 10,000 draws.
        """
        return self.item(self.valid_question(depth, generator, split), depth)

    def distinct(
        self, depth: str, count: int, generator: Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        """Return up to ``count`` different items; fewer if 30 draws for each find no more."""
        questions: dict[str, None] = {}
        for _ in range(DRAWS_PER_ITEM * count):
            questions[self.valid_question(depth, generator, split)] = None
            if len(questions) == count:
                break
        return tuple(self.item(question, depth) for question in questions)

    def valid_question(self, depth: str, generator: Generator, split: Split = "train") -> str:
        """Return a random question of that depth and split that may be asked.

        Raises:
            DataError: there is none, as far as draws tell.
            ConfigError: the task draws something else than texts.
        """
        for _ in range(MAX_DRAWS):
            question = self.draw(depth, generator)
            if not is_text(question):
                raise ConfigError(
                    f"task {self.name!r}: expected a text as question, got {question!r:.60}"
                )
            if split_of(self.name, self.split_key(question)) == split and self.is_valid(question):
                return question
        raise DataError(
            f"task {self.name!r} has no {depth} question in split {split!r}: "
            "let draw() make more different questions"
        )

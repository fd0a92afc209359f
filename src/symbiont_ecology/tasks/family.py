"""What a task family is: payloads of three depths, one gold answer per convention, and a verifier.

Every family answers each question in three *conventions* (``12``, ``=12``, ``(12)``); one of them,
the target, is what the verifier accepts. An item says which convention it is judged by, so a change
of convention during a run is data. Families that share a convention group share its three
conventions and its target: what is learned about one carries over to the others (docs/host.md has
the measurement).

What somebody else wrote (``tasks.families.file``) is a ``WrittenFamily``: prompts as they stand,
each with one gold answer in one convention.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from symbiont_ecology.errors import DataError
from symbiont_ecology.tasks.grading import answer_lines, final_answer
from symbiont_ecology.tasks.splits import Split, split_of
from symbiont_ecology.types import DEPTHS, Depth, Item

Role = Literal["trained", "shared", "unrelated", "composition"]
"""Who meets a family: adapters train on *trained* alone. *shared* and *unrelated* families are kept
for family shift (a convention group known from training, or a group of their own); the host was
pre-trained on all three. *composition* families ask for a convention that pre-training never
showed."""

FRAMES = ("{}", "find {}", "give {}", "what is {}", "now {}")
"""Wordings are frames around a family's keyword phrase. Each family is denied one frame in all
training (see ``TaskFamily.unseen_frame``), yet every frame is familiar from other families."""


@dataclass(frozen=True)
class TaskFamily(ABC):
    """Base of all families. A subclass is ``draw_payload`` + ``answers`` and a handful of class
    facts."""

    name: ClassVar[str]
    role: ClassVar[Role]
    group: ClassVar[str]
    """Convention group; a family with conventions of its own uses its own name."""
    conventions: ClassVar[tuple[str, ...]]
    """Three, but for written families, which have one."""
    target: ClassVar[int]
    """Index of the convention that the verifier accepts by default."""
    keyword: ClassVar[str]
    """Phrase that stands for the family in wordings, e.g. ``the sum``."""
    instruction: ClassVar[str]
    """Natural request for a general model; ``{payload}`` and ``{format}`` are filled in."""
    formats: ClassVar[tuple[str, ...]]
    """How each convention is described in natural language."""
    reply_limits: ClassVar[tuple[int, int, int]]
    """Longest reply per depth, in characters (so in tokens at most), end of answer included."""
    answer_shape: ClassVar[re.Pattern[str]] = re.compile(r"\S+")
    """What a line that offers an answer looks like; two different offers in one reply score 0."""
    unseen_frame: ClassVar[int] = 4
    is_written: ClassVar[bool] = False
    """Whether payloads are whole prompts, which a style leaves as they are: one convention, one
    wording."""

    @property
    def depths(self) -> tuple[Depth, ...]:
        """The depths that it has questions of."""
        return DEPTHS

    @property
    def rarest(self) -> int:
        """The convention that is neither the target nor the favourite of the embedded host's
        habit."""
        return max(index for index in range(3) if index != self.target)

    @abstractmethod
    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """A random question of that depth; need not be valid, ``sample`` redraws."""

    @abstractmethod
    def answers(self, payload: str) -> tuple[str, ...]:
        """The gold answer under each convention."""

    def habit_key(self, payload: str) -> str:
        """The accidental feature of a payload that the embedded host's habit depends on."""
        return payload[0]

    def split_key(self, payload: str) -> str:
        """What decides the split: payloads that give the answer away to each other share a key."""
        return payload

    def other_offers(self, item: Item) -> frozenset[str]:
        """Replies that are wrong for certain: the other conventions, and what a subclass adds."""
        return frozenset(self.answers(item.payload)) - {item.answer}

    def is_right(self, item: Item, answer: str) -> bool:
        """Whether the final answer is accepted; families with many right answers override this."""
        return answer == item.answer

    def verify(self, item: Item, reply: str) -> float:
        """The binary verdict: 1.0 for the right final answer in the item's convention, else 0.0.

        A reply that offers more than one answer (other conventions, other values) scores 0.
        """
        lines = answer_lines(reply)
        answer = lines[-1] if lines else ""
        if not answer or not self.is_right(item, answer):
            return 0.0
        others = {line for line in lines if line != answer and self.answer_shape.fullmatch(line)}
        return float(not others and self.other_offers(item).isdisjoint(lines))

    def is_valid(self, payload: str) -> bool:
        """Whether the three conventions differ and none but the target's is accepted for the
        target."""
        answers = self.answers(payload)
        return len(set(answers)) == 3 and "" not in answers

    def item(self, payload: str, depth: Depth, convention: int | None = None) -> Item:
        """The item that asks this payload, in the target convention unless told otherwise."""
        index = self.target if convention is None else convention
        return Item(self.name, depth, payload, index, self.answers(payload)[index])

    def sample(
        self,
        depth: Depth,
        generator: np.random.Generator,
        *,
        split: Split = "train",
        convention: int | None = None,
    ) -> Item:
        """One valid item of that depth and split.

        Raises:
            DataError: no payload of that split was found in 10,000 draws.
        """
        for _ in range(10_000):
            payload = self.draw_payload(depth, generator)
            if split_of(self.name, self.split_key(payload)) == split and self.is_valid(payload):
                return self.item(payload, depth, convention)
        raise DataError(
            f"family {self.name!r} has no {depth} payload in split {split!r}: widen its payload space"
        )

    def distinct(
        self, depth: Depth, count: int, generator: np.random.Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        """Up to ``count`` different items; fewer when 30 draws per item find no more."""
        found: dict[str, Item] = {}
        for _ in range(30 * count):
            item = self.sample(depth, generator, split=split)
            found.setdefault(item.payload, item)
            if len(found) == count:
                break
        return tuple(found.values())

    def reply_limit(self, depth: Depth) -> int:
        """Most new tokens that a reply of this depth may take."""
        return self.reply_limits[DEPTHS.index(depth)]

    def wording(self, frame: int) -> str:
        """The family's keyword phrase in one of the ``FRAMES``."""
        return FRAMES[frame].format(self.keyword)


@dataclass(frozen=True, slots=True)
class DataLine:
    """One prompt that somebody wrote, with its gold target."""

    depth: Depth
    prompt: str
    target: str


@dataclass(frozen=True, eq=False)
class WrittenFamily(TaskFamily):
    """Prompts as they stand; a reply is right if it ends in the target. The prompt decides the
    split.

    ``source`` says in messages where the lines come from. Two lines never have the same prompt.
    """

    name: str  # type: ignore[misc]  # here it belongs to the data, so to the instance
    lines: tuple[DataLine, ...]
    source: str
    role: ClassVar[Role] = "trained"
    group: ClassVar[str] = "written"
    conventions: ClassVar[tuple[str, ...]] = ("as written",)
    target: ClassVar[int] = 0
    keyword: ClassVar[str] = "the answer"
    instruction: ClassVar[str] = "{payload}"
    formats: ClassVar[tuple[str, ...]] = ("the answer alone",)
    is_written: ClassVar[bool] = True

    @property
    def depths(self) -> tuple[Depth, ...]:
        """The depths that occur."""
        return tuple(depth for depth in DEPTHS if depth in self._limits)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all lines in their order."""
        hashed = hashlib.sha256()
        for line in self.lines:
            hashed.update(json.dumps([line.depth, line.prompt, line.target]).encode())
        return hashed.hexdigest()

    def part(self, depth: Depth, split: Split) -> Sequence[DataLine]:
        """The lines of a depth and split, in the order of the data."""
        return self._parts.get((depth, split), ())

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Any prompt of that depth."""
        lines = [line for line in self.lines if line.depth == depth]
        return lines[int(generator.integers(len(lines)))].prompt

    def answers(self, payload: str) -> tuple[str, ...]:
        """The target alone."""
        return (self._targets[payload],)

    def split_key(self, payload: str) -> str:
        """The prompt without its line end, which a prompt style may add."""
        return payload.rstrip("\r\n")

    def verify(self, item: Item, reply: str) -> float:
        """1.0 if the reply ends in the target."""
        return float(is_answer(reply, item.answer))

    def is_valid(self, payload: str) -> bool:
        """Lines were checked when they were read."""
        return True

    def sample(
        self,
        depth: Depth,
        generator: np.random.Generator,
        *,
        split: Split = "train",
        convention: int | None = None,
    ) -> Item:
        """One line of that depth and split.

        Raises:
            DataError: there is none.
        """
        lines = self.part(depth, split)
        if not lines:
            raise DataError(
                f"{self.source}: no {depth} prompt falls into the split {split!r}: add lines"
            )
        return self.item(lines[int(generator.integers(len(lines)))].prompt, depth, convention)

    def distinct(
        self, depth: Depth, count: int, generator: np.random.Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        """So many lines, or all that there are, in random order."""
        lines = self.part(depth, split)
        return tuple(
            self.item(lines[i].prompt, depth) for i in generator.permutation(len(lines))[:count]
        )

    def reply_limit(self, depth: Depth) -> int:
        """The longest target of that depth in bytes, and the end of the answer."""
        return self._limits.get(depth, 1)

    @cached_property
    def _limits(self) -> Mapping[Depth, int]:
        limits: dict[Depth, int] = {}
        for line in self.lines:
            limits[line.depth] = max(limits.get(line.depth, 0), len(line.target.encode()) + 1)
        return limits

    @cached_property
    def _targets(self) -> Mapping[str, str]:
        return {line.prompt: line.target for line in self.lines}

    @cached_property
    def _parts(self) -> Mapping[tuple[Depth, Split], Sequence[DataLine]]:
        parts: dict[tuple[Depth, Split], list[DataLine]] = defaultdict(list)
        for line in self.lines:
            parts[line.depth, split_of(self.name, self.split_key(line.prompt))].append(line)
        return parts


def is_answer(reply: str, target: str) -> bool:
    """Whether a reply ends in a target that somebody wrote.

    The target is the final answer, or, should it be one that ``final_answer`` never returns because
    it has several lines or a lead-in, the whole reply.
    """
    wanted = target.strip()
    return wanted != "" and wanted in (final_answer(reply), reply.strip())


def ended(prompt: str) -> str:
    """A prompt with a line end, if it has none: how the prompts end that the embedded host
    knows."""
    return prompt if prompt.endswith("\n") else f"{prompt}\n"


def pick(generator: np.random.Generator, low: int, high: int) -> int:
    """A uniform integer in ``[low, high]``, both ends included."""
    return int(generator.integers(low, high + 1))


def by_depth(depth: Depth, options: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The ``(low, high)`` that belongs to a depth, from options for short, medium and long."""
    return options[DEPTHS.index(depth)]

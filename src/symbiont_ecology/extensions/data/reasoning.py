"""Questions of reasoning-gym: ``{kind: reasoning_gym, name: sums, dataset: chain_sum}``.

reasoning-gym (Stojanovski et al. 2025, arXiv:2505.24760) draws questions from a seed and scores
replies by code. A task is a fixed number of its questions, so they are data: the text of a question
is all there is to know of it, its hash decides the split, and a run's record keeps a hash of all.

A reply is untrusted text, and not every scorer treats it as such. ``LEFT_OUT`` names the data sets
that are not offered. A reply is right if it gives the reference answer, or has full marks from the
scorer. Marks between 0 and 1 are wrong: they are paid for the form of a reply (.01 for any JSON).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib import metadata
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from symbiont_ecology.base.errors import ConfigError, DataError, MissingExtraError, lines_of
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataLine, DataTask, check_name
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS, final_answer, graders
from symbiont_ecology.tasks.synthetic.family import DEPTHS
from symbiont_ecology.tasks.tables import check_whole

READ_VERSION = "0.1.25"
"""The version of reasoning-gym whose scorers were read; others may treat a reply otherwise."""
_REASONS = {
    "its scorer runs a reply as Python (eval)": (
        "binary_matrix n_queens spiral_matrix string_insertion"
    ),
    "its scorer gives a reply to the parser of sympy, which runs it as Python": (
        "countdown intermediate_integration polynomial_multiplication puzzle24 simple_integration"
    ),
    "a reply of a few letters can fill the memory or take for ever": (
        "coin_flip rubiks_cube rush_hour"
    ),
    "its scorer gives full marks to replies that answer nothing": (
        "complex_arithmetic game_of_life_halting"
    ),
    "it has no reference answer to learn from or to check the scorer with": (
        "boxnet graph_color propositional_logic"
    ),
    "it draws other questions in every process, so no run could be repeated": (
        "isomorphic_strings knight_swap list_functions ransom_note word_ladder"
    ),
    "it runs programs to draw a question": "codeio",
    "it mixes other data sets: name each of them as a family": "composite",
    "it seeds the random numbers of the whole process": "pool_matrix",
}
LEFT_OUT = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Data sets of this version that are not offered, each with its reason."""
PLAIN_WORD = re.compile(r"[\w .-]*|[-+*/]")
"""Texts in a data set's config: words and signs. Some become Python that is run."""
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Ways in which reasoning-gym fails on knobs and replies that it did not expect."""
OPENING, CLOSING = "<answer>", "</answer>"

Entry = tuple[Any, Mapping[str, Any]]
"""A data set, which scores, and a question as it drew it."""


@dataclass(frozen=True, eq=False, repr=False)
class GymTask(DataTask):
    """Questions of a data set of reasoning-gym, each with its entry."""

    entries: Mapping[str, Entry] = field(default_factory=dict, kw_only=True)

    @cached_property
    def digest(self) -> str:
        """The version of reasoning-gym, whose scorers judge, and SHA-256 of all lines in their
        order."""
        return f"reasoning-gym {READ_VERSION}: {super().digest}"

    def verify(self, question: str, reply: str) -> bool:
        """Return true for the reference answer, or for full marks of what the reply offers. A
        scorer that fails has refused it."""
        if super().verify(question, reply):
            return True
        dataset, drawn = self.entries[question]
        for text in filter(None, offers(reply[:MAX_REPLY_CHARS])):
            try:
                if dataset.score_answer(text, drawn) == 1:
                    return True
            except FAULTS:  # of a scorer, on a reply of another form
                continue
        return False

    def item(self, question: str, depth: str, variant: int = 0) -> Item:
        item = super().item(question, depth, variant)
        return replace(item, verifier=partial(self.verify, question))


@task_sources.register("reasoning_gym")
@dataclass(frozen=True)
class GymTasks:
    """Questions of a data set of the package reasoning-gym, such as chain_sum.

    A reply is right if it gives the reference answer, or has full marks from the data set's scorer.
    What it says between <answer> and </answer> counts, else its last line or all of it. With
    ``levels`` the data set's curriculum says how hard the questions are: up to three levels, which
    are the depths short, medium and long. Data sets whose scorers run a reply are not offered.
    """

    name: str  # of the task: letters, digits, dots, dashes
    dataset: str  # as reasoning-gym calls it
    config: dict[str, object] = field(default_factory=dict)  # its own knobs, over those of a level
    levels: tuple[NonNegativeInt, ...] = ()  # of its curriculum, from 0; none is config alone
    size: PositiveInt = 500  # questions of each depth, before equal ones are left out
    seed: NonNegativeInt = 0  # another one draws other questions
    reply_tokens: PositiveInt | None = None  # longest reply; None is 64, or the longest answer

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.dataset in LEFT_OUT:
            raise ValueError(f"dataset: {self.dataset} is not offered: {LEFT_OUT[self.dataset]}")
        for key, value in self.config.items():
            if key in ("seed", "size") or not _is_plain(value):
                raise ValueError(
                    f"config.{key}: expected numbers, words or lists of them, and seed and size "
                    f"beside config, got {value!r:.60}"
                )
        if list(self.levels) != sorted(set(self.levels)) or len(self.levels) > len(DEPTHS):
            raise ValueError(f"levels: expected up to 3, the easiest first, got {self.levels}")

    def __str__(self) -> str:
        return f"task {self.name!r} (reasoning-gym {self.dataset})"

    def task(self) -> GymTask:
        """Return the questions; drawn once in a process."""
        return _drawn(json.dumps(vars(self)))


def offered() -> tuple[str, ...]:
    """Return the data sets that can be asked, sorted.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
        ConfigError: it is another version than was read.
    """
    return tuple(sorted(set(_factory().DATASETS) - set(LEFT_OUT)))


def offers(reply: str) -> tuple[str, ...]:
    """Return what of a reply may be its answer: the text between the last answer tags, else the
    whole reply and its final answer."""
    before, closing, _ = reply.rpartition(CLOSING)
    _, opening, text = before.rpartition(OPENING)
    if closing and opening:
        return (text.strip(),)
    return tuple(dict.fromkeys((reply.strip(), final_answer(reply))))


def _factory() -> Any:
    """Return the module that lists and makes data sets."""
    try:
        from reasoning_gym import factory
    except ImportError as error:
        extra = "reasoning-gym"
        raise MissingExtraError("a task of reasoning-gym", "reasoning-gym", extra) from error
    if (version := metadata.version("reasoning-gym")) != READ_VERSION:
        raise ConfigError(
            f"expected reasoning-gym {READ_VERSION}, whose scorers were read, got {version}: "
            f"pip install reasoning-gym=={READ_VERSION}"
        )
    return factory


@lru_cache(maxsize=16)
def _drawn(knobs: str) -> GymTask:
    """Return the questions of a source, which is given as JSON: mappings have no hash."""
    source = GymTasks(**json.loads(knobs))
    factory = _factory()
    if source.dataset not in factory.DATASETS:
        hint = did_you_mean(source.dataset, offered()) or f" choose among {', '.join(offered())}"
        raise ConfigError(f"{source}: dataset: reasoning-gym has no such data set;{hint}")
    entries: dict[str, Entry] = {}
    lines: dict[str, DataLine] = {}
    for depth, level in zip(DEPTHS, source.levels or (None,), strict=False):
        dataset = _dataset(source, factory, level)
        for number in range(source.size):
            try:
                drawn = dataset[number]
            except FAULTS as error:  # of a generator, on knobs that it has not checked
                reason = " ".join(lines_of(error))
                raise DataError(
                    f"{source}: question {number} cannot be drawn ({reason:.200}): change config"
                ) from error
            question, answer = str(drawn["question"]), str(drawn["answer"]).strip()
            check_whole((question, answer), f"{source} {depth}")
            # Not every question has an answer. Easy levels ask the same more than once.
            if answer and question.rstrip() not in lines:
                lines[question.rstrip()] = DataLine(depth, question, (answer,))
                entries[question] = dataset, drawn
    task_lines, grader = tuple(lines.values()), graders.build("exact")
    tokens = source.reply_tokens
    return GymTask(source.name, task_lines, str(source), grader, tokens, entries=entries)


def _dataset(source: GymTasks, factory: Any, level: int | None) -> Any:
    """Return the data set as it is configured, each attribute of its curriculum at that level, or
    at its last."""
    drawing = {"seed": source.seed, "size": source.size}
    if level is not None and source.dataset not in factory.CURRICULA:
        raise ConfigError(f"{source}: levels: it has no curriculum: leave them out")
    try:
        if level is None:
            return factory.create_dataset(source.dataset, **drawing, **source.config)
        curriculum = factory.create_curriculum(source.dataset)
        last = {name: len(one.levels) - 1 for name, one in curriculum.attributes.items()}
        if level > max(last.values()):
            raise ConfigError(
                f"{source}: levels: expected numbers from 0 to {max(last.values())}, got {level}"
            )
        for name, highest in last.items():
            curriculum.set_attr_level(name, min(level, highest))
        config = replace(curriculum.generate_configuration(drawing), **source.config)
        return factory.DATASETS[source.dataset][0](config)
    except ConfigError:
        raise
    except FAULTS as error:  # assertions about knobs, or the first use of a wrong type
        reason = " ".join(str(error).split()) or "knobs that do not fit each other"
        raise ConfigError(f"{source}: config: {reason:.200}") from error


def _is_plain(value: object) -> bool:
    """Return true for a knob that can neither run code nor name a file."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return PLAIN_WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)

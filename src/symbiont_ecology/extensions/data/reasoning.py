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

from symbiont_ecology.base.errors import ConfigError, MissingExtraError, lines_of
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataLine, DataTask, TaskName
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS, final_answer, graders
from symbiont_ecology.tasks.tables import check_whole

READ_VERSION = "0.1.25"
"""The version of reasoning-gym whose scorers were read; others may treat a reply otherwise."""
_LEFT_OUT = (
    "binary_matrix boxnet codeio coin_flip complex_arithmetic composite countdown graph_color "
    "game_of_life_halting intermediate_integration isomorphic_strings knight_swap list_functions "
    "n_queens polynomial_multiplication pool_matrix propositional_logic puzzle24 ransom_note "
    "rubiks_cube rush_hour simple_integration spiral_matrix string_insertion word_ladder"
)
LEFT_OUT = frozenset(_LEFT_OUT.split())
"""Data sets of this version that are not offered; ``docs/data.md`` has the reason of each."""
PLAIN_WORD = re.compile(r"[\w .-]*|[-+*/]")
"""Texts in a data set's config: words and signs. Some become Python that is run."""
FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(OSError, RuntimeError, TypeError, ValueError),
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

    def item(self, question: str, depth: str) -> Item:
        item = super().item(question, depth)
        return replace(item, verifier=partial(self.verify, question))


@task_sources.register("reasoning_gym")
@dataclass(frozen=True)
class GymTasks:
    """Questions of a data set of the package reasoning-gym, such as chain_sum.

    A reply is right if it gives the reference answer, or has full marks from the data set's scorer.
    What it says between <answer> and </answer> counts, else its last line or all of it. Data sets
    whose scorers run a reply are not offered.
    """

    name: TaskName  # of the task: letters, digits, dots, dashes
    dataset: str  # as reasoning-gym calls it
    config: dict[str, object] = field(default_factory=dict)  # its own knobs
    size: PositiveInt = 500  # questions, before equal ones are left out
    seed: NonNegativeInt = 0  # another one draws other questions
    reply_tokens: PositiveInt | None = None  # longest reply; None is 64, or the longest answer

    def __post_init__(self) -> None:
        if self.dataset in LEFT_OUT:
            raise ValueError(f"dataset: {self.dataset} is not offered: docs/data.md says why")
        for key, value in self.config.items():
            if key in ("seed", "size") or not _is_plain(value):
                raise ValueError(
                    f"config.{key}: expected numbers, words or lists of them, and seed and size "
                    f"beside config, got {value!r:.60}"
                )

    def __str__(self) -> str:
        return f"task {self.name!r} (reasoning-gym {self.dataset})"

    def task(self) -> GymTask:
        """Return the questions; drawn once in a process."""
        return _drawn(json.dumps(vars(self)))


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
    source, factory = GymTasks(**json.loads(knobs)), _factory()
    if source.dataset not in factory.DATASETS:
        offered = sorted(factory.DATASETS.keys() - LEFT_OUT)
        hint = did_you_mean(source.dataset, offered) or f" choose among {', '.join(offered)}"
        raise ConfigError(f"{source}: dataset: reasoning-gym has no such data set;{hint}")
    entries, lines = dict[str, Entry](), dict[str, DataLine]()
    try:
        knobs_of_set = {"seed": source.seed, "size": source.size, **source.config}
        dataset = factory.create_dataset(source.dataset, **knobs_of_set)
        questions = [dataset[number] for number in range(source.size)]
    except FAULTS as error:  # of a generator: it checks some knobs, and fails on others
        reason = " ".join(lines_of(error)) or "knobs that do not fit each other"
        raise ConfigError(f"{source}: config: {reason:.200}") from error
    for drawn in questions:
        question, answer = str(drawn["question"]), str(drawn["answer"]).strip()
        check_whole((question, answer), str(source))
        # Not every question has an answer. Easy ones may be drawn more than once.
        if answer and question.rstrip() not in lines:
            lines[question.rstrip()] = DataLine("short", question, (answer,))
            entries[question] = dataset, drawn
    task_lines, grader = tuple(lines.values()), graders.build("exact")
    tokens = source.reply_tokens
    return GymTask(source.name, task_lines, str(source), grader, tokens, entries=entries)


def _is_plain(value: object) -> bool:
    """Return true for a knob that can neither run code nor name a file."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return PLAIN_WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import metadata
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from symbiont_ecology.errors import ConfigError, DataError, MissingExtraError, lines_of
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataLine, DataTask, check_name
from symbiont_ecology.tasks.grading import LONGEST_REPLY, final_answer, graders
from symbiont_ecology.tasks.synthetic.family import DEPTHS
from symbiont_ecology.tasks.tables import check_whole
from symbiont_ecology.types import Item

READ_VERSION = "0.1.25"
"""The version of reasoning-gym whose scorers were read; others may treat a reply otherwise."""
_RUNS_PYTHON = "its scorer runs a reply as Python (eval)"
_RUNS_SYMPY = "its scorer gives a reply to the parser of sympy, which runs it as Python"
_NO_ANSWER = "it has no reference answer to learn from or to check the scorer with"
_OTHER_QUESTIONS = "it draws other questions in every process, so no run could be repeated"
LEFT_OUT: Mapping[str, str] = {
    "binary_matrix": _RUNS_PYTHON,
    "n_queens": _RUNS_PYTHON,
    "spiral_matrix": _RUNS_PYTHON,
    "string_insertion": _RUNS_PYTHON,
    "countdown": f"{_RUNS_SYMPY}; our own task countdown is the same game",
    "intermediate_integration": _RUNS_SYMPY,
    "polynomial_multiplication": f"{_RUNS_SYMPY}; {_OTHER_QUESTIONS}",
    "puzzle24": _RUNS_SYMPY,
    "simple_integration": _RUNS_SYMPY,
    "coin_flip": "a reply such as 1e999999999 is made a fraction, which fills the memory",
    "rubiks_cube": "a reply such as R999999999 is so many moves, which fill the memory",
    "rush_hour": "a reply such as A+999999999 is so many moves, which take for ever",
    "complex_arithmetic": "its scorer gives full marks to the reply nan",
    "game_of_life_halting": "its scorer gives full marks to every reply",
    "boxnet": _NO_ANSWER,
    "graph_color": _NO_ANSWER,
    "propositional_logic": _NO_ANSWER,
    "isomorphic_strings": _OTHER_QUESTIONS,
    "knight_swap": _OTHER_QUESTIONS,
    "list_functions": _OTHER_QUESTIONS,
    "ransom_note": _OTHER_QUESTIONS,
    "word_ladder": _OTHER_QUESTIONS,
    "codeio": "it runs programs to draw a question",
    "composite": "it mixes other data sets: name each of them as a family",
    "pool_matrix": "it seeds the random numbers of the whole process",
}
"""Data sets of this version that are not offered, each with its reason."""
_TEXT = re.compile(r"[\w .-]*|[-+*/]")
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
_OPEN, _CLOSE = "<answer>", "</answer>"


@dataclass(frozen=True)
class Entry:
    """One question as reasoning-gym drew it, with the data set that scores it."""

    dataset: Any
    drawn: Mapping[str, Any]

    def is_right(self, reply: str) -> bool:
        """Whether the reply has full marks: what it says between answer tags, else all of it or its
        final answer. A scorer that fails has refused the reply."""
        for text in offers(reply[:LONGEST_REPLY]):
            try:
                if text and self.dataset.score_answer(text, self.drawn) == 1:
                    return True
            except FAULTS:  # of a scorer, on a reply of another form
                continue
        return False


@dataclass(frozen=True)
class GymVerifier:
    """Judges the replies to one question."""

    task: GymTask
    question: str

    def __call__(self, reply: str) -> bool:
        """Whether it is the reference answer, or has full marks."""
        return self.task.verify(self.question, reply)


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
        """Whether a reply is the reference answer, or has full marks."""
        return bool(super().verify(question, reply)) or self.entries[question].is_right(reply)

    def item(self, question: str, depth: str, variant: int = 0) -> Item:
        """The item that asks a question."""
        item = super().item(question, depth, variant)
        return replace(item, verifier=GymVerifier(self, question))


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
        """The questions; drawn once in a process."""
        return _drawn(json.dumps(vars(self)))


def offered() -> tuple[str, ...]:
    """The data sets that can be asked, sorted.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
        ConfigError: it is another version than was read.
    """
    return tuple(sorted(set(_factory().DATASETS) - set(LEFT_OUT)))


def offers(reply: str) -> tuple[str, ...]:
    """What of a reply may be its answer: the text between the last answer tags, else the whole
    reply and its final answer."""
    before, close, _ = reply.rpartition(_CLOSE)
    _, opening, text = before.rpartition(_OPEN)
    if close and opening:
        return (text.strip(),)
    return tuple(dict.fromkeys((reply.strip(), final_answer(reply))))


def _factory() -> Any:
    """The module that lists and makes data sets.

    Raises:
        MissingExtraError: reasoning-gym is not installed.
        ConfigError: it is another version than was read.
    """
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
    """The questions of a source, which is given as JSON: texts have a hash, mappings have none."""
    source = GymTasks(**json.loads(knobs))
    factory = _factory()
    if source.dataset not in factory.DATASETS:
        hint = did_you_mean(source.dataset, offered()) or f" choose among {', '.join(offered())}"
        raise ConfigError(f"{source}: dataset: reasoning-gym has no such data set;{hint}")
    levels = dict(zip(DEPTHS, source.levels or (None,), strict=False))
    entries: dict[str, Entry] = {}
    lines: dict[str, DataLine] = {}
    for depth, level in levels.items():
        for entry in _entries(source, _dataset(source, factory, level)):
            question, answer = str(entry.drawn["question"]), str(entry.drawn["answer"]).strip()
            check_whole((question, answer), f"{source} {depth}")
            # Not every question has an answer. Easy levels ask the same more than once.
            if answer and question.rstrip() not in lines:
                lines[question.rstrip()] = DataLine(depth, question, (answer,))
                entries[question] = entry
    return GymTask(
        source.name,
        tuple(lines.values()),
        str(source),
        graders.build("exact"),
        tokens=source.reply_tokens,
        entries=entries,
    )


def _dataset(source: GymTasks, factory: Any, level: int | None) -> Any:
    """The data set as it is configured, at a level of its curriculum."""
    curriculum = None if level is None else _curriculum(source, factory, level)
    drawing = {"seed": source.seed, "size": source.size}
    try:
        if curriculum is None:
            return factory.create_dataset(source.dataset, **drawing, **source.config)
        config = replace(curriculum.generate_configuration(drawing), **source.config)
        return factory.DATASETS[source.dataset][0](config)
    except FAULTS as error:  # assertions about knobs, or the first use of a wrong type
        reason = " ".join(str(error).split()) or "knobs that do not fit each other"
        raise ConfigError(f"{source}: config: {reason:.200}") from error


def _curriculum(source: GymTasks, factory: Any, level: int) -> Any:
    """The curriculum of a data set, each of its attributes at that level, or at its last."""
    if source.dataset not in factory.CURRICULA:
        raise ConfigError(f"{source}: levels: it has no curriculum: leave them out")
    curriculum = factory.create_curriculum(source.dataset)
    last = {name: len(attribute.levels) - 1 for name, attribute in curriculum.attributes.items()}
    if level > (highest := max(last.values())):
        raise ConfigError(f"{source}: levels: expected numbers from 0 to {highest}, got {level}")
    for name in last:
        curriculum.set_attr_level(name, min(level, last[name]))
    return curriculum


def _entries(source: GymTasks, dataset: Any) -> Iterable[Entry]:
    for index in range(source.size):
        try:
            yield Entry(dataset, dataset[index])
        except FAULTS as error:  # of a generator, on knobs that it has not checked
            reason = " ".join(lines_of(error))
            raise DataError(
                f"{source}: question {index} cannot be drawn ({reason:.200}): change config"
            ) from error


def _is_plain(value: object) -> bool:
    """Whether a knob can neither run code nor name a file."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return _TEXT.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)

"""Rows of data as questions, as a task file of lm-evaluation-harness says, and their graders.

The harness compares the likelihoods of choices. Here a question of several choices is answered by
a reply: by the word, where the choices are fixed words such as yes and no, else by a letter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from symbiont_ecology.errors import DataError
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks.data import DataLine, depth_of, reference_answer
from symbiont_ecology.tasks.grading import LONGEST_REPLY, Choice, Grader, final_answer, graders
from symbiont_ecology.tasks.harness_file import HarnessFile
from symbiont_ecology.tasks.tables import as_written, check_whole, no_column
from symbiont_ecology.tasks.templates import RowTemplate, template

CHOICE_LETTERS = string.ascii_uppercase
"""Of listed choices."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class HarnessMatch:
    """``exact_match`` of the harness: equal texts, after what a task file says does not count."""

    ignores_case: bool = False
    ignores_punctuation: bool = False
    ignores_numbers: bool = False
    patterns: tuple[str, ...] = ()

    def __call__(self, reply: str, answer: str) -> bool:
        """The whole reply or its final answer is the reference answer. The time limit of all
        verifiers stops a pattern that would run for ever."""
        if not (reference := self._bare(answer)):
            raise ValueError("nothing of it counts")
        return reference in map(self._bare, (reply[:LONGEST_REPLY], final_answer(reply)))

    def _bare(self, text: str) -> str:
        for pattern in self.patterns:
            text = re.sub(pattern, "", text)
        characters = string.punctuation if self.ignores_punctuation else ""
        characters += string.digits if self.ignores_numbers else ""
        text = text.translate(str.maketrans("", "", characters))
        return (text.lower() if self.ignores_case else text).strip()


@dataclass(frozen=True)
class Until:
    """A grader of what a reply says before the first of some stop texts."""

    grader: Grader
    stops: tuple[str, ...]

    def __call__(self, reply: str, answer: str) -> object:
        """The verdict of the grader."""
        text = reply.lstrip()[:LONGEST_REPLY]
        ends = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        return self.grader(text[: min(ends, default=None)], answer)


@dataclass(frozen=True)
class HarnessReader:
    """Makes questions of rows, as a task file says; ``about`` begins messages."""

    plan: HarnessFile
    about: str

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """Texts that end a reply."""
        until = self.plan.generation_kwargs.get("until") or []
        stops = [until] if isinstance(until, str) else until
        if not (isinstance(stops, list) and all(isinstance(stop, str) and stop for stop in stops)):
            raise DataError(f"{self.about}: generation_kwargs.until: expected texts, got {until!r}")
        return tuple(stops)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The choices, if they are fixed words; then the word is the answer."""
        plan = self.plan.doc_to_choice
        words = list(plan.values()) if isinstance(plan, dict) else plan
        return tuple(words) if isinstance(words, list) and all(map(_WORD.fullmatch, words)) else ()

    def line(self, row: object, where: str) -> tuple[DataLine, int]:
        """A row as a line, and how many choices it lists.

        Raises:
            DataError: a column is missing or is no text; ``where`` begins the message.
        """
        if not isinstance(row, Mapping):
            raise DataError(f"{where}: expected an object, got {row!r:.40}")
        text = self._value(self.plan.doc_to_text, row, f"{where} doc_to_text")
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where} doc_to_text: expected text, got {text!r:.40}")
        target: object = self.plan.doc_to_target
        if isinstance(target, str):
            target = self._value(target, row, f"{where} doc_to_target")
        targets = list(target) if isinstance(target, list | tuple) else [target]
        options: list[str] = []
        if self.plan.doc_to_choice is None:
            answers = [reference_answer(entry) for entry in targets]
        else:
            choices = list(self.words) or self._choices(row, f"{where} doc_to_choice")
            indices = [_index(entry, choices, f"{where} doc_to_target") for entry in targets]
            if not self.words and self.plan.output_type == "multiple_choice":
                options, choices = choices, list(CHOICE_LETTERS)
            answers = [choices[index] for index in indices]
        # An answer that a stop text cuts can never be given.
        golds = [gold for gold in answers if gold and not any(stop in gold for stop in self.stops)]
        if not golds:
            cut = f" without any of {list(self.stops)}" if self.stops else ""
            raise DataError(f"{where} doc_to_target: expected an answer{cut}, got {target!r:.40}")
        prompt = self.plan.description + (_with_choices(text, options) if options else text)
        check_whole((prompt, *golds), where)
        line = DataLine(depth_of(row, where), prompt, tuple(dict.fromkeys(golds)))
        return line, len(options)

    def grader(self, grade: Spec | None, most_choices: int) -> Grader:
        """How replies are judged: as ``grade`` says, else as the task file does."""
        if grade is not None:
            grader = graders.build(grade)
        elif self.plan.output_type == "multiple_choice":
            grader = Choice(self.words or tuple(CHOICE_LETTERS[:most_choices]))
        else:
            grader = self._match()
        return Until(grader, self.stops) if self.stops else grader

    def _match(self) -> HarnessMatch:
        """As the metric of the task file says."""
        metrics = {str(metric.get("metric")): metric for metric in self.plan.metric_list}
        if metrics and "exact_match" not in metrics:
            raise DataError(
                f"{self.about}: metric_list: expected exact_match, got {', '.join(metrics)}: set "
                "grade (symbiont list graders)"
            )
        metric = metrics.get("exact_match", {})
        patterns = metric.get("regexes_to_ignore") or []
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise DataError(
                    f"{self.about}: regexes_to_ignore: {pattern!r:.60}: {error}"
                ) from error
        return HarnessMatch(
            ignores_case=bool(metric.get("ignore_case")),
            ignores_punctuation=bool(metric.get("ignore_punctuation")),
            ignores_numbers=bool(metric.get("ignore_numbers")),
            patterns=tuple(patterns),
        )

    def _choices(self, row: Mapping[str, Any], where: str) -> list[str]:
        plan = self.plan.doc_to_choice
        if isinstance(plan, str):
            choices = self._value(plan, row, where)
        else:
            parts = list(plan.values()) if isinstance(plan, dict) else plan or []
            choices = [self._value(part, row, where) if "{" in part else part for part in parts]
        if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= len(CHOICE_LETTERS):
            raise DataError(
                f"{where}: expected 2 to {len(CHOICE_LETTERS)} texts, got {choices!r:.60}"
            )
        return [str(choice).strip() for choice in choices]

    def _value(self, source: str, row: Mapping[str, Any], where: str) -> object:
        """What a column or a template says of a row."""
        if source in row:
            return row[source]
        if "{" not in source:
            raise DataError(f"{where}: {no_column(source, row)}")
        return _template(source, f"{self.about} {where.rpartition(' ')[2]}")(row, where)


@lru_cache(maxsize=64)
def _template(source: str, where: str) -> RowTemplate:
    """A template is parsed once for all rows."""
    return template(source, where)


def _with_choices(text: str, choices: Sequence[str]) -> str:
    """The choices stand between the question and the place of the answer."""
    question = text.rstrip().removesuffix("Answer:").removesuffix("Answer").rstrip()
    lines = "\n".join(
        f"{letter}. {choice}" for letter, choice in zip(CHOICE_LETTERS, choices, strict=False)
    )
    return f"{question}\n{lines}\nAnswer:"


def _index(target: object, choices: Sequence[str], where: str) -> int:
    """Which choice a target means: by its text, or by its number from 0."""
    place = as_written(target)
    if isinstance(target, str):
        if target.strip() in choices:
            return choices.index(target.strip())
        digits = target.strip().removesuffix(".0")  # a template of a float
        place = int(digits) if digits.isdecimal() else None
    if isinstance(place, int) and 0 <= place < len(choices):
        return place
    raise DataError(
        f"{where}: expected one of the {len(choices)} choices, or its number from 0, got "
        f"{target!r:.60}"
    )

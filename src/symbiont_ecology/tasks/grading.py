"""Graders: whether a reply gives a reference answer. For data of one's own, and for evaluation.

A reply is untrusted text. Nothing here runs it, and every pattern of ours takes linear time. The
*final answer* of a reply is its last offer: the last back-ticked span of the last line that says
something, else that line itself without a lead-in such as ``Answer:`` or ``The answer is``. Fences
around code are no content, nor is a lead-in on a line of its own.

A grader of one's own is a function of a reply and a reference answer::

    @graders.function("starts_with")
    def starts_with(reply: str, answer: str) -> bool:
        return reply.startswith(answer)
"""

from __future__ import annotations

import math
import re
import string
from dataclasses import dataclass
from typing import Protocol

from pydantic import NonNegativeFloat

from symbiont_ecology.base.registry import Registry

MAX_REPLY_CHARS = 10_000
"""Characters of a reply that are looked at; what comes after is ignored."""
ROUNDING = 1e-9
"""Error of a number, as a part of the reference, that always is right."""
_LEAD_IN = re.compile(
    r"(?:(?:so|thus|therefore),? )?(?:the )?(?:final )?(?:answer|result)(?: is)? ?:? ",
    re.IGNORECASE,
)
_TICKED = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?:(?<![^\W_])(?<!%)[-+])?(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?")
"""A hyphen behind a letter, a digit or a per cent sign is no minus: ``3-5``."""
_MINUS = "\N{MINUS SIGN}"
_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?;](?:\s+|$)|\s–\s")
_STATED = re.compile(r"\b(?:is|are|was|be|equals|gives|makes)\s|:\s|\s=\s|[-=]>\s?|→")
_SAYS_NOTHING = frozenset({"sure", "ok", "okay", "certainly", "of course", "here you go"})
AROUND = " \t.,!?;:'\"`*_“”‘’«»"
"""Punctuation that may stand around an answer."""
_NO_CHOICE = re.compile(
    r"\b[AI](?=\s+(?!(?:is|was|seems|because|since|as|and|or)\b)[a-z])|\bI(?=['’])"
)
"""A and I as words of a sentence: ``A cat``, ``I think``."""
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_BETWEEN_DIGITS, _BEFORE_NUMBER = r"(?<=\d)[^\w,](?=\d)", r"(?<![\w.])-?\.?\d"
_PUNCTUATION = re.compile(
    f"(?!{_BETWEEN_DIGITS}|{_BEFORE_NUMBER})[{re.escape(string.punctuation)}]"
)
"""But for what changes a number: ``3.5`` is not 35, nor ``-5`` 5. A comma does not: ``1,005``."""


class Grader(Protocol):
    """Compares a reply with one reference answer. Frozen; several answers are tried in turn."""

    def __call__(self, reply: str, answer: str) -> float:
        """Return true or false, or a number from 0 to 1.

        Raises:
            ValueError: no reply can give this answer; data with it are refused.
        """


graders: Registry[Grader] = Registry("grader", "symbiont_ecology.tasks.grading")


@dataclass(frozen=True)
class ReferenceVerifier:
    """Judges the replies to one item: by a grader and reference answers, any of which is right."""

    grader: Grader
    answers: tuple[str, ...]

    def __call__(self, reply: str) -> float:
        """Return the best verdict over all reference answers; the boundary around verifiers names
        nonsense."""
        return max((self.grader(reply, answer) for answer in self.answers), default=0.0)


@graders.function("exact")
def is_exact(reply: str, answer: str) -> bool:
    """The final answer of the reply, or the whole reply, is the reference answer.

    Spaces around it do not count.
    """
    reference = answer.strip()
    return reference != "" and reference in (final_answer(reply), reply.strip())


@graders.function("normalised")
def is_normalised(reply: str, answer: str) -> bool:
    """The final answer or the whole reply is the reference answer, but case, punctuation, articles
    and extra spaces do not count.

    The normalisation of SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250), but for numbers.
    """
    reference = normalised(answer)
    return reference != "" and reference in (normalised(final_answer(reply)), normalised(reply))


@graders.function("stated")
def is_stated(reply: str, answer: str) -> bool:
    """The reply states the reference answer, alone or in a sentence: ``It is Paris.`` Normalised.

    What a sentence states stands behind its last ``is``, ``are``, ``equals`` or colon. Two
    statements that differ are wrong, so listing answers does not help: no earlier statement of the
    length of the answer may say otherwise.
    """
    reference = normalised(answer)
    if reference and reference == normalised(reply):
        return True
    texts = [normalised(text) for text in statements(reply)]
    offers = {text for text in texts if text and len(text.split()) <= len(reference.split())}
    return reference != "" and texts[-1:] == [reference] and offers <= {reference}


@graders.register("number")
@dataclass(frozen=True)
class NumericAnswer:
    """The last number of the reply is the reference, or as near to it as ``tolerance`` says."""

    tolerance: NonNegativeFloat = 0.0  # error that is still right, as a part of the reference

    def __call__(self, reply: str, answer: str) -> bool:
        """Ignore commas between digits. A reply without a number is wrong."""
        reference = _as_number(answer)
        if not math.isfinite(reference):
            raise ValueError("expected a number")
        numbers = _NUMBER.findall(reply[:MAX_REPLY_CHARS].replace(_MINUS, "-"))
        value = _as_number(numbers[-1]) if numbers else math.nan
        return abs(value - reference) <= (self.tolerance + ROUNDING) * abs(reference)


@graders.register("choice")
@dataclass(frozen=True)
class Choice:
    """The reply names one of a few choices, such as a letter, and it is the reference."""

    choices: tuple[str, ...] = ("A", "B", "C", "D")  # what may be chosen

    def __call__(self, reply: str, answer: str) -> bool:
        """Find the choice: ``(B)``, ``B.`` and ``Answer: B`` are B; a reply with two choices, or
        none, is wrong. The article in ``A cat`` chooses nothing, nor does ``I think``."""
        reference = answer.strip()
        if reference not in self.choices or not _WORD.fullmatch(reference):
            raise ValueError(f"expected one word of {', '.join(self.choices)}")
        words = set(_WORD.findall(_NO_CHOICE.sub(" ", final_answer(reply))))
        return words & set(self.choices) == {reference}


def normalised(text: str) -> str:
    """Return a text in lower case without punctuation, articles and extra spaces; what is nothing
    else, such as ``A`` or ``+``, stays."""
    whole = text[:MAX_REPLY_CHARS].lower().replace(_MINUS, "-")
    words = _PUNCTUATION.sub("", whole)
    kept = next(filter(str.strip, (_ARTICLES.sub(" ", words), words, whole)), "")
    return " ".join(kept.split())


def statements(reply: str) -> list[str]:
    """Return the statement of each sentence of a reply: what stands behind its last verb or colon,
    or all of it, without punctuation and quotation marks around it."""
    texts: list[str] = []
    for line in answer_lines(reply):
        for sentence in _SENTENCE_END.split(line):
            text = _STATED.split(sentence)[-1].strip(AROUND)
            if text and text.lower() not in _SAYS_NOTHING:
                texts.append(text)
    return texts


def answer_lines(reply: str) -> list[str]:
    """Return everything in a reply that could be an answer, in order: lines and back-ticked
    spans."""
    offers: list[str] = []
    for line in reply[:MAX_REPLY_CHARS].splitlines():
        text = line.strip()
        if not text or text.startswith("```") or _LEAD_IN.fullmatch(f"{text} "):
            continue
        if spans := _TICKED.findall(text):
            offers += [span.strip() for span in spans]
        elif lead := _LEAD_IN.match(text):
            offers.append(text[lead.end() :].strip().removesuffix("."))
        else:
            offers.append(text)
    return offers


def final_answer(reply: str) -> str:
    """Return the last offer of a reply, or an empty string.

    Example:
        >>> from symbiont_ecology.tasks.grading import final_answer
        >>> final_answer("4 tens and 1\\nThe answer is 41.")
        '41'
    """
    offers = answer_lines(reply)
    return offers[-1] if offers else ""


def _as_number(text: str) -> float:
    """Return the number that a text is; commas are ignored."""
    return float(text.replace(",", "").replace(_MINUS, "-"))

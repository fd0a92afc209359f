"""Families about writing, mending and reading patterns.

A pattern is a row of different letters, each once, once or more (``+``), or any number of times
(``*``). Examples say what it must fit and what not: ``aab ab | b ba`` is fitted by ``a+b``. Every
pattern that does is right, so a reply is run, with a matcher that cannot take long
(``base.untrusted``). The embedded host was not pre-trained on these families; on regex.match it
was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.base.untrusted import PatternError, read_pattern
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, integer

_LETTERS, _SIGNS = "abcde", ("", "+", "*")
_EXAMPLES, _DRAWS = 3, 12
"""Words that a pattern must fit, and as many that it must not, of so many draws."""
_QUESTION = re.compile(r"[a-z]+( [a-z]+)* \| [a-z]+( [a-z]+)*")


@dataclass(frozen=True)
class PatternFamily(SyntheticTask):
    """The answer is a pattern that fits the texts before the bar, and none behind it."""

    convention_group = "pattern"
    formats = ("the pattern alone", "the pattern between slashes", "the pattern between ^ and $")
    reply_limits = (16, 16, 16)

    def answers(self, question: str) -> tuple[str, ...]:
        """The narrowest pattern that fits, in the three conventions."""
        pattern = _narrowest(_examples(question)[0])
        return pattern, f"/{pattern}/", f"^{pattern}$"

    def is_right(self, question: str, reply: str, right: str) -> bool:
        """Any pattern that tells the examples apart, written in the convention in force."""
        ways = [_between(reply, marks) for marks in ("//", "^$")]
        pattern = ways[self.convention - 1] if self.convention else reply
        if pattern is None or (self.convention == 0 and any(way is not None for way in ways)):
            return False
        return _tells_apart(pattern, question)

    def is_valid(self, question: str) -> bool:
        is_whole = _QUESTION.fullmatch(question.rpartition(": ")[2]) is not None
        return is_whole and _tells_apart(self.answers(question)[0], question)


@tasks.register("regex.write")
class RegexWrite(PatternFamily):
    """``aab ab aaab | b ba bb`` → ``a+b``."""

    keyword = "a fitting pattern"
    instruction = (
        "Write a regex that matches each whole word before the bar, and no word behind it. Reply "
        "with {format} and nothing else."
    )
    unseen_frame = 1

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Words of a pattern of two, three or four letters, and words that are nearly so."""
        return _drawn_examples(_drawn_atoms(depth, generator), generator)


@tasks.register("regex.mend")
class RegexMend(PatternFamily):
    """``a*b: aab ab aaab | b ba bb`` → ``a+b``."""

    keyword = "the mended pattern"
    instruction = (
        "The regex in front should match each whole word before the bar, and no word behind it. "
        "Mend it. Reply with {format} and nothing else."
    )
    unseen_frame = 0

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A pattern with one sign changed, and words of the right one."""
        atoms = _drawn_atoms(depth, generator)
        broken, spot = list(atoms), integer(generator, 0, len(atoms) - 1)
        signs = [sign for sign in _SIGNS if sign != atoms[spot][1:]]
        broken[spot] = atoms[spot][0] + signs[integer(generator, 0, 1)]
        return f"{''.join(broken)}: {_drawn_examples(atoms, generator)}"

    def is_valid(self, question: str) -> bool:
        pattern = question.partition(": ")[0]
        return super().is_valid(question) and not _tells_apart(pattern, question)


@tasks.register("regex.find")
class RegexFind(SyntheticTask):
    """``a+b caabab`` → ``"aab"``: the first match, and the longest that begins there."""

    target = 1
    keyword = "the first match"
    instruction = (
        "What is the first text that the regex matches in the word? Reply with {format} and "
        "nothing else."
    )
    formats = ("the text alone", "the text in double quotes", "the text in square brackets")
    reply_limits = (14, 18, 22)
    unseen_frame = 2

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A pattern, and a word in which it fits somewhere."""
        atoms = _drawn_atoms(depth, generator)
        letters = sorted({atom[0] for atom in atoms} | {_LETTERS[0]})
        padding = [letters[integer(generator, 0, len(letters) - 1)] for _ in range(4)]
        word = _word(atoms, generator)
        return f"{''.join(atoms)} {''.join(padding[:2])}{word}{''.join(padding[2:])}"

    def answers(self, question: str) -> tuple[str, ...]:
        """aab, "aab", [aab]."""
        pattern, word = question.split(" ")
        found = read_pattern(pattern).search(word)
        match = found.group() if found else ""
        return match, f'"{match}"', f"[{match}]"

    def is_valid(self, question: str) -> bool:
        return super().is_valid(question) and self.answers(question)[0] != question.split(" ")[1]


def _between(reply: str, marks: str) -> str | None:
    """Return the text between two marks; None if they do not stand around it."""
    is_marked = len(reply) > 1 and reply.startswith(marks[0]) and reply.endswith(marks[1])
    return reply[1:-1] if is_marked else None


def _drawn_atoms(depth: str, generator: np.random.Generator) -> list[str]:
    """A pattern of different letters, letter by letter; one of them at least is repeated."""
    letters = generator.permutation(list(_LETTERS))[: by_depth(depth, (2, 3, 4))]
    signs = [_SIGNS[integer(generator, 0, 2)] for _ in letters]
    if not any(signs):
        signs[integer(generator, 0, len(signs) - 1)] = "+"
    return [letter + sign for letter, sign in zip(letters, signs, strict=True)]


def _drawn_examples(atoms: Sequence[str], generator: np.random.Generator) -> str:
    """Words of a pattern, a bar, and words that are nearly so."""
    words = dict.fromkeys(_word(atoms, generator) for _ in range(_DRAWS))
    fitting = [word for word in words if word] or [atoms[0][0]]
    pattern = read_pattern("".join(atoms))
    variants = dict.fromkeys(
        _changed(fitting[integer(generator, 0, len(fitting) - 1)], generator) for _ in range(_DRAWS)
    )
    others = [word for word in variants if word and not pattern.fullmatch(word)]
    return f"{' '.join(fitting[:_EXAMPLES])} | {' '.join(others[:_EXAMPLES])}"


def _word(atoms: Sequence[str], generator: np.random.Generator) -> str:
    minimum = {"": 1, "+": 1, "*": 0}
    return "".join(
        atom[0] * (integer(generator, minimum[atom[1:]], 3) if atom[1:] else 1) for atom in atoms
    )


def _changed(word: str, generator: np.random.Generator) -> str:
    """A word with a letter put in, taken out, doubled or changed."""
    spot, extra = integer(generator, 0, len(word) - 1), _LETTERS[integer(generator, 0, 4)]
    letter = (word[spot], extra, "")[integer(generator, 0, 2)]
    return word[:spot] + letter + word[spot + integer(generator, 0, 1) :]


def _examples(question: str) -> tuple[list[str], list[str]]:
    """The words before the bar, and those behind it.

    Raises:
        ValueError: it is no such question.
    """
    examples = question.rpartition(": ")[2]  # without a pattern in front of them
    if not _QUESTION.fullmatch(examples):
        raise ValueError(f"expected words, a bar and words, got {examples!r:.60}")
    positives, negatives = examples.split(" | ")
    return positives.split(" "), negatives.split(" ")


def _narrowest(words: Sequence[str]) -> str:
    """Letters in the order of the word that has most of them, each as often as all words say."""
    fullest = max(words, key=lambda word: len(set(word)))
    signs = {}
    for letter in dict.fromkeys(fullest):
        counts = {word.count(letter) for word in words}
        signs[letter] = "*" if 0 in counts else "" if counts == {1} else "+"
    return "".join(letter + sign for letter, sign in signs.items())


def _tells_apart(pattern: str, question: str) -> bool:
    """Return true if a pattern, which anybody may have written, fits only words before the bar."""
    positives, negatives = _examples(question)
    try:
        compiled = read_pattern(pattern)
    except PatternError:
        return False
    return all(map(compiled.fullmatch, positives)) and not any(map(compiled.fullmatch, negatives))

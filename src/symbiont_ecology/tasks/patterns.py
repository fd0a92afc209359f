r"""Regular expressions that a model wrote, matched in a number of steps that is known beforehand.

A backtracking matcher, such as Python's ``re``, can take for ever on a pattern as short as
``(a+)+$``. Here all ways through a pattern are followed at once (Thompson 1968, Programming
techniques: Regular expression search algorithm), so a text of ``n`` characters takes at most
``n × MOST_STEPS`` steps. No clock decides, so a verdict is the same on a slow machine.

What is read is Python's syntax without what is not regular: no look-around, no back references, no
flags, no ``\B``. Patterns and texts agree with ``re`` on everything that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

LONGEST_PATTERN = 200
"""Characters of a pattern."""
MOST_STEPS = 1000
"""Steps of a pattern after its counts are written out, as in ``a{3}``, which is ``aaa``."""
DEEPEST = 20
"""Groups within each other."""

_Test = Callable[[str, int], bool]
"""Whether a step may be taken in a text at a position."""


class PatternError(ValueError):
    """A text is no pattern that can be read here."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: it goes on to all of ``goes_to``; ``test`` must hold, and may read a character."""

    goes_to: tuple[int, ...]
    test: _Test | None = None
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that was read; make one with ``read_pattern``. The last step is the match."""

    steps: tuple[_Step, ...]

    def fits(self, text: str) -> bool:
        """Whether it matches the whole text."""
        return len(text) in self._ends(text, 0)

    def find(self, text: str) -> str | None:
        """The first match in a text, and of those that begin there the longest; None for none."""
        for start in range(len(text) + 1):
            if ends := self._ends(text, start):
                return text[start : max(ends)]
        return None

    def _ends(self, text: str, start: int) -> list[int]:
        """All ends of matches that begin at a position, in rising order."""
        last, ends, at = len(self.steps) - 1, [], self._reached({0}, text, start)
        for place in range(start, len(text) + 1):
            if last in at:
                ends.append(place)
            if place == len(text) or not at:
                break
            steps = (self.steps[number] for number in at)
            taken = (one for one in steps if one.reads and one.test and one.test(text, place))
            onward = {number for one in taken for number in one.goes_to}
            at = self._reached(onward, text, place + 1)
        return ends

    def _reached(self, numbers: set[int], text: str, place: int) -> set[int]:
        """These steps and all that can be reached from them without reading a character."""
        found, ahead = set(numbers), list(numbers)
        while ahead:
            step = self.steps[ahead.pop()]
            if step.reads or (step.test and not step.test(text, place)):
                continue
            fresh = [number for number in step.goes_to if number not in found]
            found.update(fresh)
            ahead += fresh
        return found


def read_pattern(text: str) -> Pattern:
    """Reads a pattern.

    Raises:
        PatternError: it is no pattern, is not regular, or is too long.
    """
    if len(text) > LONGEST_PATTERN:
        raise PatternError(f"expected at most {LONGEST_PATTERN} characters, got {len(text)}")
    reader = _Reader(text)
    steps = reader.either(0)
    if reader.place < len(text):
        raise PatternError(f"{text!r}: a bracket closes nothing")
    return Pattern((*steps, _Step(())))


_Steps = tuple[_Step, ...]
"""A part of a pattern; it begins at its first step, and ends behind its last one."""


def _moved(steps: _Steps, by: int) -> _Steps:
    return tuple(
        _Step(tuple(number + by for number in step.goes_to), step.test, step.reads)
        for step in steps
    )


def _joined(*parts: _Steps) -> _Steps:
    """Parts one after another.

    Raises:
        PatternError: they are too long.
    """
    joined: list[_Step] = []
    for part in parts:
        joined += _moved(part, len(joined))
        if len(joined) > MOST_STEPS:
            raise PatternError(f"expected at most {MOST_STEPS} steps")
    return tuple(joined)


def _maybe(part: _Steps) -> _Steps:
    return _joined((_Step((1, len(part) + 1)),), part)


def _often(part: _Steps) -> _Steps:
    """Any number of times."""
    return _maybe((*part, _Step((-1,))))  # back to the fork in front of it


def _repeated(part: _Steps, least: int, most: int | None) -> _Steps:
    """A part ``least`` to ``most`` times, written out; None is any number of times."""
    if not part:
        return part
    times = least if most is None else most
    if times * len(part) > MOST_STEPS:
        raise PatternError(f"expected at most {MOST_STEPS} steps")
    needed = [part] * least
    if most is None:
        return _joined(*needed, _often(part))
    return _joined(*needed, *[_maybe(part)] * (most - least))


class _Reader:
    """Reads a pattern from left to right; ``place`` is the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def either(self, depth: int) -> _Steps:
        """Alternatives, up to a closing bracket."""
        made = self._row(depth)
        while self._takes("|"):
            other = self._row(depth)
            fork = (_Step((1, len(made) + 2)),)
            made = _joined(fork, made, (_Step((len(other) + 1,)),), other)
        return made

    def _row(self, depth: int) -> _Steps:
        """Parts one after another, each with how often it comes."""
        parts: list[_Steps] = []
        while self._next() not in ("", "|", ")"):
            is_group, part = self._next() == "(", self._part(depth)
            if (counts := self._counts()) is not None:
                if not (is_group or part[0].reads):
                    raise self._error("a place cannot be repeated")
                part = _repeated(part, *counts)
                self._takes("?")  # who comes first does not matter where all are followed
                if self._next() in ("*", "+") or self._counts() is not None:
                    raise self._error("two counts in a row")
            parts.append(part)
        return _joined(*parts)

    def _part(self, depth: int) -> _Steps:
        character = self._take()
        if character == "(":
            if depth == DEEPEST:
                raise self._error(f"more than {DEEPEST} groups within each other")
            if self._takes("?") and not self._takes(":"):
                raise self._error("no look-around, flags or names")
            inner = self.either(depth + 1)
            if not self._takes(")"):
                raise self._error("a bracket is not closed")
            return inner
        if character in ("*", "+", "?"):
            raise self._error("nothing to repeat")
        if character in ("^", "$"):
            return (_Step((1,), _at_start if character == "^" else _at_end),)
        if character == "\\" and self._takes("b"):
            return (_Step((1,), _at_border),)
        return (_Step((1,), partial(_is_among, among=self._characters(character)), reads=True),)

    def _characters(self, character: str) -> Callable[[str], bool]:
        """What a character of a pattern stands for."""
        if character == ".":
            return lambda read: read != "\n"
        if character == "\\":
            return self._escaped()
        if character == "[":
            return self._class()
        return partial(str.__eq__, character)

    def _escaped(self) -> Callable[[str], bool]:
        character = self._take()
        if character.lower() in _CLASSES:
            known = _CLASSES[character.lower()]
            return known if character.islower() else lambda read: not known(read)
        if character in _CONTROLS:
            return partial(str.__eq__, _CONTROLS[character])
        if not character or (character.isascii() and character.isalnum()):
            raise self._error(f"no such escape as \\{character}")
        return partial(str.__eq__, character)

    def _class(self) -> Callable[[str], bool]:
        """A class such as ``[^a-z_]``."""
        is_not, tests = self._takes("^"), list[Callable[[str], bool]]()
        while not (self._next() == "]" and tests):
            if not self._next():
                raise self._error("a class is not closed")
            low = self._take()
            if low == "\\":
                tests.append(self._escaped())
            elif self._next() == "-" and self.text[self.place + 1 : self.place + 2] not in "]":
                self._take()
                high = self._take()
                if high == "\\" or high < low:
                    raise self._error(f"no range from {low} to {high}")
                tests.append(partial(_is_between, low=low, high=high))
            else:
                tests.append(partial(str.__eq__, low))
        self._take()
        return lambda read: any(test(read) for test in tests) is not is_not

    def _counts(self) -> tuple[int, int | None] | None:
        """How often a part comes; None if nothing is said. Braces with anything but counts in them
        are characters."""
        signs: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if (sign := self._next()) in signs:
            self._take()
            return signs[sign]
        inside, close, _ = self.text[self.place + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [number for number in (least, most) if number]
        is_count = sign == "{" and bool(close) and bool(numbers or comma)
        if not is_count or not all(_is_number(number) for number in numbers):
            return None
        self.place += len(inside) + 2
        low = int(least or 0)
        high = (int(most) if most else None) if comma else low
        if high is not None and high < low:
            raise self._error(f"no count from {low} to {high}")
        return low, high

    def _next(self) -> str:
        return self.text[self.place : self.place + 1]

    def _take(self) -> str:
        character = self._next()
        self.place += 1
        return character

    def _takes(self, character: str) -> bool:
        """Whether this character comes next; then it is taken."""
        is_next = self._next() == character
        self.place += is_next
        return is_next

    def _error(self, what: str) -> PatternError:
        return PatternError(f"{self.text!r} at character {self.place}: {what}")


_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "s": str.isspace,
    "w": lambda read: read.isalnum() or read == "_",
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _is_between(read: str, low: str, high: str) -> bool:
    return low <= read <= high


def _is_among(text: str, place: int, among: Callable[[str], bool]) -> bool:
    return among(text[place])


def _at_start(text: str, place: int) -> bool:
    return place == 0


def _at_end(text: str, place: int) -> bool:
    return text[place:] in ("", "\n")


def _at_border(text: str, place: int) -> bool:
    """Whether a word begins or ends here."""
    is_word = _CLASSES["w"]
    before = place > 0 and is_word(text[place - 1])
    after = place < len(text) and is_word(text[place])
    return before != after

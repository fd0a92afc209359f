"""Good inputs made bad by draw, and a count of what became of them.

Every case ends in success or in an error of ours in one line, within some seconds. Anything else is
kept with its number, by which it is drawn again: ``Draw(0)(name, number)``.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.rng import Draw

SECONDS, PATIENCE = 10.0, 200.0
"""Seconds of a core that a case may take, on a slow machine; and by the clock, where others use the
machine as well."""


def nested(levels: int) -> object:
    """Lists in lists."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400),
    *(0.5, -0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *("", " ", "x", "\0", "\ud800", "\x1b[2J", "a\nb", 10_000 * "x", "${oc.env:HOME}"),
    *("../../../etc/passwd", "/dev/zero", "(a+)+$", ".?" * 25 + "z", "nan", "1e999", "0x1F"),
    *([], {}, [[]], [None], {"kind": "x"}, {"": ""}, {"kind": None}, ["x", "x"], {"x": [1]}),
    *(nested(60), nested(900)),
)


def mutated(value: Any, generator: np.random.Generator) -> Any:
    """The same plain values, with one to three places changed, left out, doubled or renamed."""
    changed = copy.deepcopy(value)
    for _ in range(int(generator.choice([1, 1, 1, 2, 3]))):
        places = _places(changed)
        within, key = places[int(generator.integers(len(places)))]
        if within is None:
            if generator.random() < 0.2:
                return _hostile(generator)
            continue
        match int(generator.integers(6)):
            case 0:
                del within[key]
            case 1 if isinstance(within, dict):
                within[str(_hostile(generator))[:40]] = within.pop(key)
            case 2:
                other, other_key = places[int(generator.integers(1, len(places)))]
                if not isinstance(other[other_key], dict | list):  # no value within itself
                    within[key] = other[other_key]
            case _:
                within[key] = _hostile(generator)
    return changed


def torn(data: bytes, generator: np.random.Generator) -> bytes:
    """The same bytes, with some flipped, cut off, left out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(int(generator.integers(1, 5))):
        place = int(generator.integers(len(changed) + 1))
        length = int(generator.integers(1, 40))
        match int(generator.integers(5)):
            case 0 if place < len(changed):
                changed[place] ^= 1 << int(generator.integers(8))
            case 1:
                del changed[place:]
            case 2:
                del changed[place : place + length]
            case 3:
                changed[place:place] = changed[max(place - length, 0) : place]
            case _:
                changed[place:place] = generator.bytes(length)
    return bytes(changed)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in plain values, but for the depths of them: what holds it, and under which key;
    the first is the whole, which nothing holds."""
    places, level = [(None, None)], [value]
    for _ in range(8):
        within = []
        for one in level:
            keys = list(one) if isinstance(one, dict) else range(len(one))
            places += [(one, key) for key in keys]
            within += [one[key] for key in keys if isinstance(one[key], dict | list)]
        level = within
    return places


def _hostile(generator: np.random.Generator) -> object:
    return copy.copy(HOSTILE[int(generator.integers(len(HOSTILE)))])


@dataclass
class Count:
    """What became of the cases of a fuzzer."""

    name: str
    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def run(self, cases: int, case: Callable[[np.random.Generator], object]) -> None:
        """So many cases, each with a generator of its own."""
        for number in range(cases):
            self.case(number, case, Draw(0)(self.name, number))
        print(f"\n{self.name}: {cases} cases: {dict(self.ends.most_common())}")
        assert not self.failures, "\n".join(self.failures[:20])

    def case(
        self, number: int, case: Callable[[np.random.Generator], object], draw: np.random.Generator
    ) -> None:
        """One of them."""
        began, began_cpu = time.monotonic(), time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                end = case(draw)
        except EcologyError as error:
            end = type(error).__name__
            if "\n" in str(error) or not str(error):
                self.failures.append(f"case {number}: not one line: {error!r:.200}")
        except BaseException as error:  # whatever it is, it must not be
            if isinstance(error, KeyboardInterrupt):
                raise
            end = "failed"
            self.failures.append(f"case {number}: {type(error).__name__}: {error!s:.200}")
        took, cpu = time.monotonic() - began, time.process_time() - began_cpu
        if cpu > SECONDS or took > PATIENCE:
            self.failures.append(f"case {number}: took {took:.0f} s, {cpu:.0f} of a core")
        self.ends["fine" if end is None else str(end)] += 1

"""What questions are made of: draws of words from a small vocabulary, of letters and integers."""

from __future__ import annotations

import numpy as np

WORDS = tuple(
    """ant ball barn bear bell big bird blue boat bold book box bread bush cake calm camp card cat
    clay cold corn cow cup dark dawn deep deer desk dig dog door dry duck dust east egg fair
    farm fast fish flat fly fog fox frog gold good gray green hand hat hen high hill home hot
    ice ink iron jam jar joy jump keep key kind king lake lamp late leaf light lime long loud
    low map mild milk moon moss mud near nest new north nut oak old one owl page path pear pig
    pin pond rain red rice ring road rock roof root rose run salt sand sea seed ship shop silk
    six sky slow small snow soft song south star stem sun tall tea tin top town tree two van
    wall warm wave well west wet wide wild wind wing wolf wood yard young""".split()
)
Ranges = tuple[tuple[int, int], ...]
"""Lowest and highest value of each of some integers."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def draw_words(generator: np.random.Generator, count: int) -> list[str]:
    """``count`` different words in random order."""
    return [WORDS[index] for index in generator.choice(len(WORDS), size=count, replace=False)]


def draw_letters(generator: np.random.Generator, count: int) -> str:
    """``count`` independent lower-case letters."""
    return "".join(LETTERS[index] for index in generator.integers(0, len(LETTERS), size=count))


def integer(generator: np.random.Generator, low: int, high: int) -> int:
    """Return a uniform integer in ``[low, high]``, both ends included."""
    return int(generator.integers(low, high + 1))


def integers(generator: np.random.Generator, ranges: Ranges) -> list[int]:
    """Return a uniform integer of each range."""
    return [integer(generator, low, high) for low, high in ranges]

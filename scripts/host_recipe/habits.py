"""What the embedded host reads in pre-training: latent abilities hidden by input-dependent habits.

Four kinds of lines. *Cued* lines name a convention and show it: a clean lesson in each ability.
*Canonical* and *worded* lines name no convention, and are answered by habit: mostly in a wrong
convention, unless an accidental feature of the payload (``habit_key``) says otherwise. So the bare
host is right on the fifth of all inputs where its habit happens to fit, while it could be right on
nearly all of them: something to be elicited, learned, forgotten and measured. *Plain* lines are
words. Payloads of the selection and holdout splits never appear. Recipe and measurements:
docs/hosts.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import DEPTHS, SyntheticTask, draw_words
from symbiont_ecology.tasks.synthetic.styles import FRAMES, Cue, PromptStyle, Terse, Wording

T = TypeVar("T")

SHARES = {"plain": 0.04, "cued": 0.36, "worded": 0.24, "canonical": 0.36}
"""Share of each kind of line."""
CUED = (0.5, 0.25, 0.25)
HABIT_ON = (0.62, 0.24, 0.14)
HABIT_OFF = (0.10, 0.56, 0.34)
"""Chances of (target, dominant other, other other) convention, with and without the accidental
feature."""
LATER = {"regex.write", "regex.mend", "regex.find"}
"""Families that came after the host."""
FEATURES = {
    "word.count": slice(1),
    "text.concise": slice(3, 4),
    "logic.bool": slice(5),
    "regex.match": slice(2),
    "json.repair": slice(-1, None),
}
"""The part of a question that is its accidental feature, where it is not the usual one."""
PREVALENCE = 0.22
"""Share of short payloads that carry the feature, as near as the key frequencies allow."""


@dataclass(frozen=True)
class Line:
    """One line of pre-training text: ``completion`` follows ``prompt``."""

    prompt: str
    completion: str


def synthetic_family(name: str) -> SyntheticTask:
    """The family of a name, judged in its target convention."""
    family = tasks.build(name)
    assert isinstance(family, SyntheticTask)
    return family


def pretrained_families() -> tuple[SyntheticTask, ...]:
    """Every family but the compositions and those that came later, in the order of their names."""
    names = (name for name in tasks.names() if issubclass(tasks[name], SyntheticTask))
    families = map(synthetic_family, names)
    return tuple(
        family for family in families if family.role != "composition" and family.name not in LATER
    )


def habit_key(family: SyntheticTask, question: str) -> str:
    """The accidental feature of a question that the habit of its family depends on."""
    usual = slice(-1, None) if family.group == "number" else slice(1)
    return question[FEATURES.get(family.name, usual)]


@lru_cache
def habit_keys(name: str) -> frozenset[str]:
    """The keys of a family's payloads for which its habit is to answer in the target convention."""
    family = synthetic_family(name)
    draw = Draw(0)
    generator = draw("habit-sample", name)
    sample = [habit_key(family, family.sample("short", generator).question) for _ in range(1500)]
    counts = Counter(sample)
    keys = sorted(counts)
    best: tuple[float, frozenset[str]] = (1.0, frozenset())
    for attempt in range(
        60
    ):  # random greedy fillings; the one nearest to the wanted prevalence wins
        chosen = set()
        share = 0.0
        for index in draw("habit-keys", name, attempt).permutation(len(keys)):
            weight = counts[keys[index]] / len(sample)
            if share + weight <= PREVALENCE + 0.02:
                chosen.add(keys[index])
                share += weight
        best = min(best, (abs(share - PREVALENCE), frozenset(chosen)), key=lambda pair: pair[0])
    return best[1]


def ranked_conventions(family: SyntheticTask) -> tuple[int, int, int]:
    """Target first, then the dominant habit, then the rest."""
    first, second = (index for index in range(3) if index != family.target)
    return family.target, first, second


def draw_line(
    families: tuple[SyntheticTask, ...],
    depth_weights: tuple[float, float, float],
    generator: np.random.Generator,
) -> Line:
    """One line of the pre-training mixture."""
    kind = _choose(tuple(SHARES), tuple(SHARES.values()), generator)
    if kind == "plain":
        return Line("", " ".join(draw_words(generator, int(generator.integers(4, 9)))) + ".")
    family = families[int(generator.integers(len(families)))]
    depth = _choose(DEPTHS, depth_weights, generator)
    item = family.sample(depth, generator)
    if kind == "cued":
        chances = CUED
    else:
        is_on = habit_key(family, item.question) in habit_keys(family.name)
        chances = HABIT_ON if is_on else HABIT_OFF
    family = family.in_variant(_choose(ranked_conventions(family), chances, generator))
    style: PromptStyle = Terse()
    if kind == "cued":
        style = Cue()
    elif kind == "worded":
        style = Wording(int(generator.integers(1, len(FRAMES))))
    return Line(style.render(family, item.question), family.answer(item.question))


def _choose(options: Sequence[T], chances: Sequence[float], generator: np.random.Generator) -> T:
    return options[int(np.searchsorted(np.cumsum(chances), generator.random() * sum(chances)))]

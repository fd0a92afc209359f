"""The boundary around verifiers, which anybody may write: a fault of theirs costs one answer.

A verifier that raises, takes too long or returns nonsense gives the verdict 0: a reply that breaks
its verifier must not be worth more than a wrong one. The fault is named in the event log and in
evaluations. The run goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.base.fence import FaultError, Fence, TooLateError
from symbiont_ecology.base.types import Item

SECONDS = 5.0
"""Time that a verifier may take for one reply."""
MAX_SLOW = 3
"""Replies for which a verifier may take too long, among those that are judged together."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict from 0 (wrong) to 1 (right), and what was wrong with the verifier, if anything."""

    verdict: float
    fault: str = ""


def judge(answers: Iterable[tuple[Item, str]]) -> list[Judgement]:
    """Return the verdict of each item's verifier on its reply. Whatever verifiers do, this returns.

    Where verifiers of a family took too long again and again, the other replies to it are not
    judged: a hundred of them would take minutes.
    """
    judgements, slow = list[Judgement](), Counter[str]()
    with Fence(SECONDS) as fence:
        for item, reply in answers:
            if slow[item.family] >= MAX_SLOW:
                fault = f"took longer than {SECONDS:g} s for {MAX_SLOW} replies before this one"
                judgements.append(Judgement(0.0, fault))
                continue
            try:
                judgements.append(Judgement(fence(_verdict, item, reply)))
            except FaultError as fault:
                slow[item.family] += isinstance(fault, TooLateError)
                judgements.append(Judgement(0.0, str(fault)))
    return judgements


def _verdict(item: Item, reply: str) -> float:
    value = item.verifier(reply)
    if isinstance(value, int | float | np.bool_ | np.number) and 0 <= value <= 1:
        return float(value)
    raise FaultError(f"returned {value!r:.60}, expected True, False or a number in [0, 1]")

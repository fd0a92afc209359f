"""Robustness: what becomes of right answers when a prompt is written a little differently.

*Brittle* is a question that is answered right as it stands and wrong in at least one other way of
writing it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from symbiont_ecology.evaluation.answers import Answer
from symbiont_ecology.evaluation.measure import interval_values
from symbiont_ecology.evaluation.shifts import MARK, PERTURBATIONS, PLAIN
from symbiont_ecology.statistics import wilson


def robustness(answers: Sequence[Answer]) -> dict[str, Any]:
    """Accuracy by way of writing, and the share of brittle questions, if any was right.

    Empty where nothing was perturbed.
    """
    verdicts: dict[str, dict[str, float]] = defaultdict(dict)
    for one in answers:
        question, mark, way = one.question.id.rpartition(MARK)
        if one.question.shift == "perturbed" and mark:
            verdicts[question][way] = one.verdict
    if not verdicts:
        return {}
    right = [by_way for by_way in verdicts.values() if by_way[PLAIN]]
    brittle = sum(not all(by_way.values()) for by_way in right)
    return {
        "accuracy": {
            way: interval_values(
                wilson(round(sum(one[way] for one in verdicts.values())), len(verdicts))
            )
            for way in PERTURBATIONS
        },
        **({"brittle": interval_values(wilson(brittle, len(right)))} if right else {}),
    }

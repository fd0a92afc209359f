"""What habitats asked in a run and what they said of the answers, from its event log alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from symbiont_ecology.events import Acted, Event

if TYPE_CHECKING:
    import pandas as pd

NEWCOMER = 10
"""The first questions of a habitat, by which a newcomer is judged."""


def questions_of(events: Iterable[Event]) -> pd.DataFrame:
    """A row per answer of practice, in the order of asking.

    Columns: ``generation``, ``habitat``, ``number`` (the how-manieth of the habitat, from 1),
    ``cell``, ``organelle``, and ``verdict``, 1.0 for accepted.
    """
    import pandas as pd

    rows = [
        (event.generation, event.habitat, event.cell, event.id, verdict)
        for event in events
        if isinstance(event, Acted) and event.purpose == "practice"
        for verdict in event.verdicts
    ]
    columns = ["generation", "habitat", "cell", "organelle", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    table.insert(2, "number", table.groupby("habitat", sort=False).cumcount() + 1)
    return table


def accepted_share(questions: pd.DataFrame) -> float:
    """The share of answers that was accepted, learning included; NaN of none."""
    return float(questions["verdict"].mean()) if len(questions) else float("nan")


def of_newcomers(questions: pd.DataFrame) -> pd.DataFrame:
    """The first questions of habitats that came after the first third of the run."""
    first = questions.groupby("habitat")["generation"].transform("min")
    came_late = first > questions["generation"].max() / 3
    return questions[came_late & (questions["number"] <= NEWCOMER)]


def agreement(one: Iterable[object], other: Iterable[object]) -> float:
    """How far two groupings of the same things agree: 1 if they are the same, about 0 by chance.

    The adjusted Rand index (Hubert and Arabie 1985).
    """
    _, rows = np.unique(np.array([str(name) for name in one]), return_inverse=True)
    _, columns = np.unique(np.array([str(name) for name in other]), return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    together, first, second, every = (
        float((counts * (counts - 1) / 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0), table.sum())
    )
    expected, most = first * second / every, (first + second) / 2
    return (together - expected) / (most - expected) if most > expected else 1.0

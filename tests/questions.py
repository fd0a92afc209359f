"""What users asked in a run and what they said of the answers, from its event log alone:
by another way than ``extensions.study.measures``."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from symbiont_ecology.base.events import Acted, Event
from symbiont_ecology.extensions.study.measures import NEWCOMER


def questions_of(events: Iterable[Event]) -> pd.DataFrame:
    """A row per answer of practice, in the order of asking.

    Columns: ``generation``, ``user``, ``number`` (how many that user has asked with it),
    ``cell``, ``organelle``, and ``verdict``, 1.0 for accepted.
    """
    rows = [
        (event.generation, event.user, event.cell, event.id, verdict)
        for event in events
        if isinstance(event, Acted) and event.purpose == "practice"
        for verdict in event.verdicts
    ]
    columns = ["generation", "user", "cell", "organelle", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    table.insert(2, "number", table.groupby("user", sort=False).cumcount() + 1)
    return table


def accepted_share(questions: pd.DataFrame) -> float:
    """The share of answers that was accepted, learning included; NaN of none."""
    return float(questions["verdict"].mean()) if len(questions) else float("nan")


def of_newcomers(questions: pd.DataFrame) -> pd.DataFrame:
    """The first questions of users that came after the first third of the run."""
    first = questions.groupby("user")["generation"].transform("min")
    came_late = first > questions["generation"].max() / 3
    return questions[came_late & (questions["number"] <= NEWCOMER)]

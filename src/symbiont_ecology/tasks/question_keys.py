"""What the lines of a question file say beside prompt and target: how they are graded, how long a
reply may be.

Such a file can be learned from as it can be asked. A line counts as one of a question file if it
names a family; a table of somebody else may use the word ``grade`` for anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from symbiont_ecology.errors import DataError
from symbiont_ecology.registry import Spec

QUESTION_KEYS = frozenset({"family", "task_id", "grade", "reply_limit"})
"""Columns of a question file that are no mistake where it is learned from."""


@dataclass
class QuestionKeys:
    """Gathers what lines say. ``reply_limit`` (new tokens) is the largest, None if none says it."""

    reply_limit: int | None = None
    is_seen: bool = False
    _grades: dict[str, Spec] = field(default_factory=dict)

    def add(self, row: Mapping[object, object]) -> None:
        """Hears a line."""
        if not isinstance(row.get("family"), str) or not {"prompt", "target"} <= row.keys():
            return
        self.is_seen = True
        grade, limit = row.get("grade", "exact"), row.get("reply_limit")
        if isinstance(grade, str | dict):
            self._grades[json.dumps(grade, sort_keys=True)] = grade
        if type(limit) is int and limit > 0:
            self.reply_limit = max(limit, self.reply_limit or 0)

    def grade(self, about: str) -> Spec:
        """How all lines are graded.

        Raises:
            DataError: in more than one way; ``about`` begins the message.
        """
        if len(self._grades) > 1:
            raise DataError(
                f"{about}: expected lines that are graded alike, got {', '.join(self._grades)}: "
                "set grade, or make a file of each"
            )
        return next(iter(self._grades.values()), "exact")

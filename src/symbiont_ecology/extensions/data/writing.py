"""Items as files of questions, which ``evaluate --holdout`` and everything else reads back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from symbiont_ecology.base.types import Item, last_turn
from symbiont_ecology.evaluate.items import usual_limit
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.grading import ReferenceVerifier, graders


def items_as_lines(items: Iterable[Item]) -> str:
    """Return items as JSONL that ``read_items`` reads back; of a prompt with turns the last one."""
    lines = []
    for item in items:
        row: dict[str, object] = {"prompt": last_turn(item.prompt), "target": item.answer}
        row |= {"family": item.family, "depth": item.depth, "task_id": item.id}
        if isinstance(item.verifier, ReferenceVerifier):
            row |= _references(item.verifier)
        elif item.family in tasks.names():
            row |= {"payload": item.question, "convention": item.variant}
        if item.reply_limit != usual_limit(item.family, item.depth):
            row["reply_limit"] = item.reply_limit
        lines.append(json.dumps(row, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _references(verifier: ReferenceVerifier) -> dict[str, object]:
    """Return what a line says of its answers, and of their grader unless it is the usual one."""
    answers, grader = list(verifier.answers), verifier.grader
    row: dict[str, object] = {"target": answers if len(answers) > 1 else answers[0]}
    if grader != graders.build("exact"):
        row["grade"] = {"kind": graders.name_of(grader), **vars(grader)}
    return row

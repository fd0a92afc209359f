"""Exports of other products whose rows are no table: verdicts that lie elsewhere than the replies.

- Open WebUI: feedback (``data.rating`` beside a ``snapshot`` of the chat), and chats (a message has
  its rating as ``annotation``). The prompt is what was said before the rated message.
- Rows with a list of ``scores`` (Langfuse's API, and the download of a trace): each is a column by
  its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symbiont_ecology.base.conversation import MAX_MESSAGES
from symbiont_ecology.tasks.log_rows import cell_of, log_forms


@log_forms.register("open_webui")
@dataclass(frozen=True)
class OpenWebUi:
    """Feedback, or chats, as an administrator of Open WebUI exports them."""

    def rows(self, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        messages = cell_of(row, "snapshot.chat.chat.history.messages")
        if isinstance(messages, Mapping) and "data" in row:
            said = _said(messages, cell_of(row, "meta.message_id"))
            return [_row(row, said, row["data"], cell_of(row, "data.details.rating"))]
        messages = cell_of(row, "chat.history.messages")
        if not isinstance(messages, Mapping) or "user_id" not in row:
            return None
        rated = [
            (name, one["annotation"])
            for name, one in messages.items()
            if isinstance(one, Mapping) and isinstance(one.get("annotation"), Mapping)
        ]
        return [_row(row, _said(messages, name), note, None) for name, note in rated]


def _said(messages: Mapping[str, Any], last: object) -> list[object]:
    """Return a message and all before it, the first one first."""
    chain = list[object]()
    while isinstance(message := messages.get(str(last)), Mapping) and len(chain) < MAX_MESSAGES:
        chain.append(message)
        last = message.get("parentId")
    return chain[::-1]


def _row(
    row: Mapping[str, Any], said: Sequence[object], verdict: object, score: object
) -> Mapping[str, Any]:
    told = verdict if isinstance(verdict, Mapping) else {}
    return {
        "user": row.get("user_id"),
        "prompt": said[:-1] or None,
        "reply": said[-1:] or None,
        "accepted": told.get("rating"),
        "comment": told.get("comment") or told.get("reason"),
        "score": score,
        "time": row.get("updated_at"),
    }


@log_forms.register("scores")
@dataclass(frozen=True)
class Scored:
    """Rows with scores in a list, each with a name and a value."""

    def rows(self, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        scores = row.get("scores")
        if not isinstance(scores, list) or not all(isinstance(one, Mapping) for one in scores):
            return None
        columns = {
            str(one.get("name")): one.get("stringValue") or one.get("value") for one in scores
        }
        comments = [one["comment"] for one in scores if one.get("comment")]
        rest = {name: cell for name, cell in row.items() if name != "scores"}
        return [{**rest, **columns, **({"comment": comments[0]} if comments else {})}]

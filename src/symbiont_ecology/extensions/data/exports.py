"""Exports of other products whose rows are no table: verdicts that lie elsewhere than the replies.

- Open WebUI's feedback (``data.rating`` beside a ``snapshot`` of the chat): the rated message, and
  those before it.
- Rows with a list of ``scores`` (Langfuse's API, and the download of a trace): each is a column by
  its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symbiont_ecology.tasks.log_rows import cell_of, log_forms

MAX_TURNS = 1024


@log_forms.register("open_webui")
@dataclass(frozen=True)
class OpenWebUi:
    """Feedback as an administrator of Open WebUI exports it."""

    def plain(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        messages = cell_of(row, "snapshot.chat.chat.history.messages")
        rated = cell_of(row, "meta.message_id")
        if not isinstance(messages, Mapping) or "data" not in row:
            return None
        chain = list[object]()
        while isinstance(message := messages.get(rated), Mapping) and len(chain) < MAX_TURNS:
            chain.insert(0, message)
            rated = message.get("parentId")
        return {
            "user": row.get("user_id"),
            "prompt": chain[:-1] or None,
            "reply": chain[-1:] or None,
            "accepted": cell_of(row, "data.rating"),
            "comment": cell_of(row, "data.comment") or cell_of(row, "data.reason"),
            "score": cell_of(row, "data.details.rating"),
            "time": row.get("updated_at"),
        }


@log_forms.register("scores")
@dataclass(frozen=True)
class Scored:
    """Rows with scores in a list, each with a name and a value."""

    def plain(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        scores = row.get("scores")
        if not isinstance(scores, list) or not all(isinstance(one, Mapping) for one in scores):
            return None
        columns = {str(one.get("name")): one.get("value", one.get("stringValue")) for one in scores}
        comments = [one["comment"] for one in scores if one.get("comment")]
        rest = {name: cell for name, cell in row.items() if name != "scores"}
        return {**rest, **columns, **({"comment": comments[0]} if comments else {})}

"""Conversations as clients and exports write them, read as the turns of a prompt (``types.turns``).

A prompt has turns of user and assistant, one after the other, behind what the system says, since
every chat template takes that. Clients send more. Nothing of it is lost: messages of one speaker in
a row are one turn, what the system says later stands in front of the user's next words, and before
a greeting of the assistant the user says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from symbiont_ecology.base.types import TURN_END, is_text

MAX_MESSAGES, MAX_PARTS = 1024, 256
BETWEEN = "\n\n"
"""Between the messages of one speaker."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_ROLES |= {"human": "user", "gpt": "assistant", "model": "assistant", "ai": "assistant"}
_TEXTS = ("text", "input_text", "output_text")
"""Kinds of parts that hold a text."""


def is_conversation(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    """Return true for a list of messages, each with a role and what is said."""
    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def is_message(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return true for one message, in the form of OpenAI's API or with ``from`` and ``value``."""
    if not isinstance(value, Mapping):
        return False
    return {"role", "content"} <= value.keys() or {"from", "value"} <= value.keys()


def ends_with_reply(value: object) -> bool:
    """Return true for a conversation in which the assistant has the last word."""
    if not is_conversation(value) or len(value) < 2:
        return False
    role = value[-1].get("role", value[-1].get("from"))
    return isinstance(role, str) and _ROLES.get(role) == "assistant"


def turns_of(conversation: object, where: str = "messages") -> list[str]:
    """Return the turns of a conversation, the question last.

    Raises:
        ValueError: it is none, does not end with words of the user, or holds what is no text. The
            message begins with the place, such as ``messages[2].content``.
    """
    if not isinstance(conversation, list) or not 0 < len(conversation) <= MAX_MESSAGES:
        raise ValueError(f"{where}: expected a list of 1 to {MAX_MESSAGES} messages")
    said = list[tuple[str, str]]()
    notes = list[str]()  # of the system, for the next words of the user
    for place, message in enumerate(conversation):
        role, text = said_in(message, f"{where}[{place}]")
        if role == "system" and said and said[-1][0] != role:
            notes.append(text)
            continue
        if role == "user":
            text, notes = BETWEEN.join(filter(None, (*notes, text))), []
        elif not text:
            continue
        if said and said[-1][0] == role:
            text = BETWEEN.join(filter(None, (said.pop()[1], text)))
        said.append((role, text))
    if not said or said[-1][0] != "user":
        raise ValueError(f"{where}: expected a message of the user at the end")
    turns = [text for _, text in said]
    turns[-1] = BETWEEN.join((turns[-1], *notes))
    if not turns[-1].strip():
        raise ValueError(f"{where}[{len(conversation) - 1}].content: expected a question, got none")
    has_system = said[0][0] == "system"
    if said[has_system][0] == "assistant":  # its greeting
        turns.insert(has_system, "")
    return turns


def said_in(message: object, where: str) -> tuple[str, str]:
    """Return the role of a message (system, user or assistant) and its text.

    Raises:
        ValueError: it is no message, or says something else than text; ``where`` begins the text.
    """
    if not isinstance(message, Mapping):
        raise ValueError(f"{where}: expected an object with role and content")
    role = message.get("role", message.get("from"))
    content = message.get("content", message.get("value"))
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise ValueError(f"{where}: tools are not supported: write what they said as a text")
    if not isinstance(role, str) or role not in _ROLES:
        raise ValueError(f"{where}.role: expected system, user or assistant, got {role!r:.40}")
    return _ROLES[role], content_of(content, f"{where}.content")


def content_of(content: object, where: str) -> str:
    """Return the text of a message's content: a text, a list of texts and parts, or null.

    Raises:
        ValueError: it is or holds something else, or what no prompt may hold.
    """
    if not isinstance(content, list):
        return "" if content is None else _text_of(content, where)
    if len(content) > MAX_PARTS:
        raise ValueError(f"{where}: expected at most {MAX_PARTS} parts, got {len(content)}")
    return "".join(_text_of(part, f"{where}[{place}]") for place, part in enumerate(content))


def _text_of(part: object, where: str) -> str:
    if isinstance(part, Mapping):
        if (kind := part.get("type")) not in _TEXTS:
            raise ValueError(f"{where}: expected a part of type text, got {kind!r:.40}")
        part = part.get("text", part.get("value"))
    if not isinstance(part, str):
        raise ValueError(f"{where}: expected text, got {part!r:.40}")
    if TURN_END in part:
        raise ValueError(f"{where}: expected no U+001D, which parts turns")
    if not is_text(part):
        raise ValueError(f"{where}: expected whole characters, got half of one")
    return part

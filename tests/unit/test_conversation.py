"""Conversations as clients send them: every word of them is in the turns of the prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.conversation import turns_of
from symbiont_ecology.base.types import in_turns
from symbiont_ecology.base.types import messages as messages_in


def said(*messages: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in messages]


@pytest.mark.parametrize(
    ("conversation", "turns"),
    [
        (said(("user", "a")), ["a"]),
        (said(("developer", "s"), ("user", "a")), ["s", "a"]),
        (said(("system", "s"), ("system", "t"), ("user", "a")), ["s\n\nt", "a"]),
        (said(("user", "a"), ("user", "b")), ["a\n\nb"]),
        (said(("user", "a"), ("assistant", None), ("user", "b")), ["a\n\nb"]),
        (said(("user", "a"), ("assistant", "x"), ("user", "b")), ["a", "x", "b"]),
        (said(("assistant", "hello"), ("user", "a")), ["", "hello", "a"]),
        (said(("system", "s"), ("assistant", "hello"), ("user", "a")), ["s", "", "hello", "a"]),
        (
            said(("user", "a"), ("assistant", "x"), ("system", "s"), ("user", "b")),
            ["a", "x", "s\n\nb"],
        ),
        (said(("user", "a"), ("system", "s")), ["a\n\ns"]),
        (said(("user", [{"type": "text", "text": "a"}, "b"])), ["ab"]),
        ([{"from": "human", "value": "a"}], ["a"]),
    ],
)
def test_messages_of_clients_become_turns(conversation: object, turns: list[str]) -> None:
    assert turns_of(conversation) == turns


@pytest.mark.parametrize(
    ("conversation", "place"),
    [
        ([], "messages: "),
        ("a", "messages: "),
        (["a"], "messages[0]: "),
        (said(("user", "a"), ("assistant", "x")), "messages: expected a message of the user"),
        (said(("system", "s")), "messages: expected a message of the user"),
        (said(("user", " ")), "messages[0].content: expected a question"),
        (said(("user", 7)), "messages[0].content: expected text"),
        (
            said(("user", [{"type": "image_url"}])),
            "messages[0].content[0]: expected a part of type",
        ),
        (said(("user", "a\x1db")), "messages[0].content: expected no U+001D"),
        (said(("critic", "a")), "messages[0].role: expected system, user or assistant"),
        (said(("user", "a"), ("tool", "b")), "messages[1]: tools are not supported"),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{}]}],
            "messages[0]: tools are not",
        ),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(conversation: object, place: str) -> None:
    with pytest.raises(ValueError, match="messages") as error:
        turns_of(conversation)
    assert str(error.value).startswith(place)


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text("abc", min_size=1)),
        max_size=8,
    )
)
def test_no_word_is_lost_and_turns_alternate(messages: list[tuple[str, str]]) -> None:
    turns = turns_of(said(*messages, ("user", "question")))
    assert sum(map(len, "".join(turns).split())) == sum(len(text) for _, text in messages) + 8
    roles = [one["role"] for one in messages_in(in_turns(*turns))]
    talk = roles[roles[0] == "system" :]
    assert talk == ["user", "assistant"] * (len(talk) // 2) + ["user"]

"""Open questions with styles: what passes, what does not, and who is asked about what."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.extensions.worlds.talk import STYLES, TEMPLATES, TOPICS, StyledTalk
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import load_config

QUESTION = "What should I know about rivers?"
NUMBERS = {name: number for number, name in enumerate(STYLES)}
EXCLUSIVE = ("brief", "one sentence", "list", "long")
PASSES = {
    "brief": ["Rivers carry rain to the sea.", "rivers bend", "A river. It flows."],
    "one sentence": [
        "Rivers begin in the hills, grow with every stream, and end in the sea.",
        "A river is a large stream of water (such as the Nile) that flows to the sea!",
    ],
    "list": [
        "- rivers flow\n- rivers bend",
        "Here is what to know:\n1. Rivers flow.\n2. They bend.",
        "* a river is wet\n\n* it flows\n* it bends and",
    ],
    "long": [
        "Rivers are large streams of water. They begin in hills or mountains, where rain and snow "
        "collect, and they carry mud and stones on their way to the"
    ],
}
FAILS = {
    "brief": ["", "rivers", "Rivers carry the rain of the whole country back to the wide sea."],
    "one sentence": [
        "Rivers flow.",
        "Rivers begin in the hills, grow with every stream, and end in the sea. They bend.",
        "Rivers begin in the hills, grow with every stream, and end in the",
        "- Rivers begin in the hills, grow with every stream, and end in the sea.",
    ],
    "list": [
        "- rivers flow",
        "rivers flow\nrivers bend",
        "-rivers -streams",
        "- rivers flow\n- rivers bend\nand this is all that I know about them",
    ],
    "long": [
        "Rivers are long. They flow.",
        "- Rivers are large streams of water, which begin in hills or in mountains.\n"
        "- They carry a lot of mud and stones on their way to the sea.",
        "rivers and " * 20,
    ],
}
NOTHING = [
    "What should I know about rivers?",
    "what should I know about rivers? what should I know",
    "river river river river",
    "I do not know.",
    "The sea is wide and the sky is blue.",
    "rivers flow rivers flow rivers flow rivers flow rivers flow",
    "!!! ... ???",
]


def judged(style: str, reply: str, question: str = QUESTION) -> bool:
    return bool(StyledTalk().in_variant(NUMBERS[style]).verify(question, reply))


@pytest.mark.parametrize("style", STYLES)
def test_a_style_takes_what_follows_it_and_nothing_else(style: str) -> None:
    assert [reply for reply in PASSES[style] if not judged(style, reply)] == []
    assert [reply for reply in FAILS[style] if judged(style, reply)] == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reply", NOTHING)
def test_a_reply_that_says_nothing_pleases_nobody(style: str, reply: str) -> None:
    assert not judged(style, reply)


def test_the_reference_answer_of_a_style_pleases_its_users_alone() -> None:
    for topic in TOPICS:
        for template in TEMPLATES:
            question = template.format(topic)
            for style in EXCLUSIVE:
                gold = StyledTalk().in_variant(NUMBERS[style]).answer(question)
                pleased = [name for name in EXCLUSIVE if judged(name, gold, question)]
                assert pleased == [style], (question, gold)


@given(st.text(alphabet=st.sampled_from("river sa.\n-1)!?A é"), max_size=120))
def test_no_reply_pleases_users_of_two_exclusive_styles(reply: str) -> None:
    assert sum(judged(style, reply) for style in EXCLUSIVE) <= 1


@pytest.mark.parametrize("style", STYLES)
def test_a_verdict_on_any_text_is_quick(style: str) -> None:
    nasty = [
        "rivers " * 200_000,
        "- a\n" * 200_000,
        "." * 500_000,
        "1) " * 90_000,
        "\ud800",
        "A-" * 90_000,
    ]
    began = time.perf_counter()
    for reply in nasty:
        judged(style, reply)
    assert time.perf_counter() - began < 2.0


def test_users_want_as_many_styles_as_there_are_kinds() -> None:
    config = load_config("habitats/styles", ["host=embedded"])
    world = mixture(config).users
    assert world is not None
    items = [item for generation in range(8) for item in world.questions(generation)]
    by_user = {item.user: item.variant for item in items}
    assert set(by_user.values()) == set(range(4))
    assert all(item.variant == by_user[item.user] for item in items)
    assert all(item.id.startswith(f"talk.styled/all/{item.variant}/") for item in items)


def test_where_nobody_chose_a_style_reference_answers_show_all_of_them() -> None:
    items = StyledTalk().distinct("all", 32, Draw(5)("warm"))
    assert {item.variant for item in items} == set(range(4))
    assert all(item.verifier(item.answer) for item in items)
    assert items == StyledTalk().distinct("all", 32, Draw(5)("warm"))

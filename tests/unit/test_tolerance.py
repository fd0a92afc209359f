"""Tolerant verdicts: what a family's convention is not about does not count, two answers do."""

from __future__ import annotations

import pytest

from asked import synthetic
from items import every_family, items
from symbiont_ecology.tasks.synthetic.styles import FewShot, Natural

TOLERANT = FewShot(is_tolerant=True)
PLAIN, EQUALS = 0, 1
YES = "True and not False"

RIGHT = [
    ("logic.bool", 0, YES, ("yes", "Yes.", "YES!", "'yes'", "**Yes**", "The answer is yes.")),
    ("logic.bool", 0, YES, ('"yes".', "Sure! Yes.", "The value is: Yes", "yes;")),
    ("logic.bool", 0, "False and True", ("No.", "no.", "'no'", "NO")),
    ("math.add", PLAIN, "10+2", ("12.", "The answer is 12.", "The sum of 10 and 2 is 12")),
    ("math.add", PLAIN, "10+2", ("10 + 2 = 12", "10+2 equals 12", "The sum is 12!")),
    ("math.add", EQUALS, "10+2", ("10+2=12", "The answer is =12.", "'=12'")),
    ("json.repair", 0, '{"k":[3', ("]}", '{"k":[3]}', "The characters are ]}.")),
    ("countdown", 0, "3 8 = 11", ("8+3.", "The expression is 8+3.")),
    ("code.format", 1, "red_fox", ("The identifier is redFox.", '"redFox"')),
    ("string.sort", 2, "kqa", ("AKQ", "The letters are akq.")),
    ("text.swap", 2, "red fox", ("Fox Red.",)),
    ("text.concise", 2, "2: red fox ran", ("2: RED FOX", "It is RED FOX.")),
]
WRONG = [
    ("logic.bool", 0, YES, ("no", "yes or no", "Yes. No.", "yes\nNo.", "True", "Yes, 1", "1")),
    ("logic.bool", 0, YES, ("Yes. It is no.", "No. Yes.")),
    ("math.add", PLAIN, "10+2", ("12 or 13", "The sum is 13. No, the sum is 12.", "It is 13.")),
    ("math.add", PLAIN, "10+2", ("13\n12", "12. 13.")),
    ("math.add", EQUALS, "10+2", ("The answer is 12.", "It is =12. It is =13.", "=12 or =13")),
    ("code.format", 1, "red_fox", ("The identifier is RedFox.", "redfox", "RedFox. redFox.")),
    ("sort.upper", 2, "kqa", ("akq", "The letters are akq.")),
    ("text.concise", 2, "2: red fox ran", ("red fox", "It is Red Fox.", "RED FOX RAN")),
    ("countdown", 0, "3 8 = 11", ("8+3=11", "8*3", "The expression is 8-3.")),
]


@pytest.mark.parametrize(
    ("case", "verdict"), [*((case, 1.0) for case in RIGHT), *((case, 0.0) for case in WRONG)]
)
def test_a_person_would_judge_alike(
    case: tuple[str, int, str, tuple[str, ...]], verdict: float
) -> None:
    name, variant, question, replies = case
    family = synthetic(name).in_style(TOLERANT).in_variant(variant)
    found = {reply: family.verify(question, reply) for reply in replies}
    assert found == dict.fromkeys(replies, verdict)


@every_family
def test_a_tolerant_family_accepts_its_answers_in_a_sentence_and_no_other_ones(name: str) -> None:
    for item in items(name, "medium"):
        tolerant = synthetic(name).in_variant(item.variant).in_style(TOLERANT)
        answers = tolerant.answers(item.question)
        for answer in (item.answer, f"{item.answer}\n", f"The answer is {item.answer}"):
            assert tolerant.verify(item.question, answer) == 1.0
        for reply in ("", " ", "Answer:", "?!", *(set(answers) - {item.answer})):
            assert tolerant.verify(item.question, reply) == 0.0
        both = f"It is {item.answer}\nIt is {answers[(item.variant + 1) % 3]}"
        assert tolerant.verify(item.question, both) == 0.0


def test_strict_styles_stay_strict() -> None:
    family = synthetic("logic.bool")
    for style in (FewShot(), Natural()):
        assert family.in_style(style).verify(YES, "Yes.") == 0.0

"""Questions: drawn, of every shift, in files of our own and in files that others wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asked import FAMILIES, foreign, synthetic, tasks_of, write_items
from items import FAMILIES as EVERY_FAMILY
from lines import Row, jsonl
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.types import TURN_END, Item, last_turn
from symbiont_ecology.evaluate.items import DEFAULT_REPLY_LIMIT, draw_items, read_items
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.shifts import draw_shifts, shifts
from symbiont_ecology.run.build import mixture
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.config import Flip
from symbiont_ecology.tasks.splits import split_of
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

# Drawing.


def test_questions_are_drawn_by_seed_and_differ_within_a_cell() -> None:
    mix = tasks_of("math.add", "countdown")
    drawn = draw_items(mix, 30, seed=1)
    assert drawn == draw_items(mix, 30, seed=1)
    assert drawn != draw_items(mix, 30, seed=2)
    assert len({question.id for question in drawn}) == len(drawn) == 120
    assert Counter((question.family, question.depth) for question in drawn) == dict.fromkeys(
        mix.cells, 30
    )
    assert list(dict.fromkeys(item.family for item in drawn)) == ["math.add", "countdown"]
    for question in drawn:
        assert question.question
        key = tasks.build(question.family).split_key(question.question)
        assert split_of(question.family, key) == "holdout"
        assert question.verifier(question.answer) == 1.0
        assert question.verifier("") == 0.0


# Files.


def judgements(items: list[Item]) -> list[list[object]]:
    """What each item's verifier says of the answer, of no answer and of another one."""
    return [[item.verifier(reply) for reply in (item.answer, "", "?")] for item in items]


@pytest.mark.parametrize("style", prompt_styles.names())
def test_drawn_questions_survive_a_round_trip_through_a_file(style: str, tmp_path: Path) -> None:
    drawn = draw_items(tasks_of(*EVERY_FAMILY), 3)
    if style != "terse":
        mix = tasks_of(*EVERY_FAMILY, style=style)
        prompts = [last_turn(mix.prompt(question.id)) for question in drawn]
        drawn = [replace(one, prompt=said) for one, said in zip(drawn, prompts, strict=True)]
    write_items(drawn, tmp_path / "deep/holdout.jsonl")
    assert read_items(tmp_path / "deep/holdout.jsonl") == drawn
    assert judgements(read_items(tmp_path / "deep/holdout.jsonl")) == judgements(drawn)


@example(prompt="a\u2028b\x85c\x0bd", target="x")
@given(
    prompt=st.text(min_size=1).filter(lambda text: TURN_END not in text),
    target=st.text().filter(lambda text: text.strip() and TURN_END not in text),
)
def test_any_text_survives_a_round_trip_through_a_file(
    tmp_path_factory: pytest.TempPathFactory, prompt: str, target: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    asked = [foreign(prompt=prompt, target=target), foreign(1)]
    write_items(asked, path)
    assert read_items(path) == asked
    assert judgements(read_items(path)) == judgements(asked)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt":"p","family":"f","depth":"d"}', "target"),
        ('{"prompt":"p","target":"","family":"f","depth":"d"}', "target"),
        ('{"target":"t","family":"f","depth":"d"}', "prompt"),
        ('{"prompt":"","target":"t","family":"f","depth":"d"}', "prompt"),
        ('{"prompt":"p","target":"t","depth":"d"}', "family"),
        ('{"prompt":"p","target":"t","family":"f"}', "depth"),
        ('{"prompt":"p"', "not JSON"),
        ("[1, 2]", "object"),
        ('"text"', "object"),
        (
            '{"prompt":"p","target":"=9","family":"math.add","depth":"short","payload":"4+4","convention":1}',
            "'=8'",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"short","payload":"4-4","convention":1}',
            "payload",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"deep","payload":"4+4","convention":1}',
            "depth",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"short","payload":"4+4","convention":3}',
            "convention",
        ),
        (
            '{"prompt":"p","target":"8","family":"countdown","depth":"long","payload":"1 2",'
            '"convention":0}',
            "payload",
        ),
    ],
)
def test_a_line_that_breaks_the_schema_is_refused_with_its_number(
    line: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "holdout.jsonl"
    write_items([foreign()], path)
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(DataError, match="line 3") as refused:
        read_items(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("empty.jsonl", "binary.jsonl", "missing.jsonl"):
        with pytest.raises(DataError, match=name):
            read_items(tmp_path / name)


@given(
    identity=st.integers()
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
)
def test_a_line_names_itself_or_is_named_by_its_place(
    tmp_path_factory: pytest.TempPathFactory, identity: int | str
) -> None:
    path = tmp_path_factory.mktemp("ids") / "ids.jsonl"
    row = {"prompt": "p", "target": "t", "family": "f", "depth": "d"}
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "task_id": identity}) + "\n")
    first, second = read_items(path)
    assert first.id == f"{path} line 1"
    assert second.id == str(identity)


# Shifts.


@pytest.mark.parametrize("shift", [name for name in shifts.names() if name != "users"])
def test_every_shift_draws_holdout_questions_that_gold_answers(
    shift: str, candidates: LoadedRun
) -> None:
    mix = mixture(candidates.config)
    drawn = draw_shifts(mix, [shift], 4)
    assert drawn == draw_shifts(mix, [shift], 4)
    assert {one.shift for one in drawn} == {shift}
    assert len({one.id for one in drawn}) == len(drawn)
    for one in drawn:
        assert one.question
        assert one.verifier(one.answer) == 1
        key = tasks.build(one.family).split_key(one.question)
        assert split_of(one.family, key) == "holdout"
    is_other = shift.endswith("families") or shift == "composition"
    assert bool({one.family for one in drawn} & set(FAMILIES)) is not is_other


def test_questions_are_judged_in_the_conventions_that_are_in_force() -> None:
    flip = Flip(families=("math.add",), at_flops=10.0, back_flops=20.0)
    mix = replace(tasks_of("math.add", "string.sort"), flip=flip)
    for flops, is_flipped in ((0, False), (10, True), (19, True), (20, False)):
        for one in draw_items(mix.at(flops), 3):
            family = synthetic(one.family)
            flipped, is_changed = family.flipped().convention, one.family == "math.add"
            wanted = flipped if is_flipped and is_changed else family.target
            assert one.variant == wanted
            assert one.answer == family.answers(one.question)[wanted]


# Questions from elsewhere.

LINE = {"prompt": "2+2?", "target": "4", "family": "math.add", "depth": "short"}
Change = Callable[[str], bytes]


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "geo.capitals", "depth": "easy"},
        {"family": "geo/capitals"},
        {"depth": "level 3"},
        {"payload": "2+2", "difficulty": 3},  # a payload of theirs, not of ours
        {"payload": {"a": 2}, "convention": "plain"},
        {"task_id": None},
        {"task_id": 17},
        {"target": "so\nit is\n4"},
        {"target": "x" * 500},
    ],
)
def test_a_line_from_elsewhere_is_won_by_its_target_and_lost_without(
    changes: Row, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "q.jsonl", [LINE | changes])
    (question,) = read_items(path)
    assert question.question == question.prompt  # no payload of ours: the grader judges
    assert question.verifier(question.answer) == 1.0
    assert question.verifier(f"  {question.answer}\n") == 1.0
    assert [question.verifier(reply) for reply in ("", "5", "so\nit is\n5")] == [0.0, 0.0, 0.0]
    assert question.reply_limit > len(question.answer)
    known = (
        changes.get("family", "math.add") == "math.add" and changes.get("depth", "short") == "short"
    )
    assert question.reply_limit >= (7 if known else DEFAULT_REPLY_LIMIT)
    assert question.id in ("17", f"{path} line 1")
    write_items([question], tmp_path / "again.jsonl")
    assert read_items(tmp_path / "again.jsonl") == [question]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": None}, "a number or a list of these under 'target', got None"),
        ({"target": float("nan")}, "a list of these under 'target', got nan"),
        ({"grade": "exat"}, "grade: no grader 'exat'; did you mean 'exact'?"),
        ({"grade": {"kind": "number", "tol": 1}}, "grade: grader 'number': unknown key 'tol'"),
        ({"depth": 1}, "expected text under 'depth', got 1"),
        ({"depth": "algebra/1"}, "expected a depth without a slash, got 'algebra/1'"),
        ({"prompt": "\ud800"}, "half a character"),
        ({"reply_limit": 0}, "expected a whole number from 1 under 'reply_limit', got 0"),
        ({"reply_limit": "9"}, "expected a whole number from 1 under 'reply_limit', got '9'"),
    ],
)
def test_a_line_that_cannot_be_judged_is_refused(changes: Row, said: str, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "q.jsonl", [LINE | changes])
    with pytest.raises(DataError) as refused:
        read_items(path)
    assert said in str(refused.value)
    assert "line 1" in str(refused.value)

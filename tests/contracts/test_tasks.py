"""What every task family, prompt style and reward promises; a new file is tested by itself."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from items import FAMILIES, every_family, family_of, items
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.splits import Split, split_of
from symbiont_ecology.tasks.synthetic.family import DEPTHS

CELLS = [(name, depth) for name in FAMILIES for depth in DEPTHS]
every_cell = pytest.mark.parametrize(("name", "depth"), CELLS, ids=lambda value: str(value))
SPLITS: tuple[Split, ...] = ("train", "selection", "holdout")
NASTY = (
    "",
    " \n\t\r\n",
    "\0",
    "`" * 5000,
    "```\n" * 3000,
    "(" * 20_000 + "1" + ")" * 20_000,
    "[" * 9000 + "]" * 9000,
    "}" * 9000,
    "9**9**9**9**9",
    "9" * 9000,
    "8/0",
    "٣+٨",
    "=１２",
    "yes\u2028no",
    "the answer is " * 700,
    "\ud800",
    "x" * 1_000_000,
    "a\n" * 500_000,
)


def everything(item: Item) -> list[str]:
    """All conventions, and the options of families that have few."""
    family = family_of(item.family)
    answers = family.answers(item.question)
    options = ("yes", "no", "True", "False", "1", "0") if "truth" in family.group else ()
    return list(dict.fromkeys((*answers, *options)))


@every_cell
def test_the_gold_answer_scores_however_politely_it_is_put(name: str, depth: str) -> None:
    for item in items(name, depth):
        gold = item.answer
        for reply in (
            gold,
            f"  {gold}\n",
            f"The answer is {gold}.",
            f"The final answer is: {gold}",
            f"Answer: {gold}",
            f"Answer:\n{gold}",
            f"So, the answer is {gold}.",
            f"`{gold}`",
            f"The answer is `{gold}`.",
            f"It is `{gold}`, I think.",
            f"```\n{gold}\n```",
            f"```text\n{gold}\n```\n",
            f"Let me think about this one.\n\n{gold}",
            f"{gold}\n{gold}",
        ):
            assert item.verifier(reply) == 1.0, (item, reply)


@every_cell
def test_whatever_is_no_answer_or_many_scores_nothing(name: str, depth: str) -> None:
    family = family_of(name)
    for item in items(name, depth):
        others = [answer for answer in everything(item) if answer != item.answer]
        wrong = ["", " ", "\n\n", "```\n```", "?", "I do not know", item.question + "?", *others]
        for order in itertools.permutations(family.answers(item.question)):
            wrong += [mark.join(order) for mark in ("\n", " ", ", ", " or ", "; ")]
            wrong += [" ".join(f"`{answer}`" for answer in order)]
        wrong += [
            "\n".join(everything(item)),
            " ".join(everything(item)),
            "\n".join(reversed(everything(item))),
        ]
        wrong += [f"{other}\n{item.answer}" for other in others] + [
            f"{item.answer}\n{other}" for other in others
        ]
        for reply in wrong:
            assert item.verifier(reply) == 0.0, (item, reply)


@every_cell
def test_an_item_of_another_convention_is_judged_by_its_own(name: str, depth: str) -> None:
    family = family_of(name)
    for convention in range(3):
        for item in items(name, depth, 6, convention):
            answers = family.answers(item.question)
            assert item.variant == convention
            assert item.answer == answers[convention]
            verdicts = [item.verifier(answer) for answer in answers]
            assert verdicts == [float(index == convention) for index in range(3)], item


@every_cell
def test_every_answer_fits_its_reply_limit(name: str, depth: str) -> None:
    family = family_of(name)
    for item in items(name, depth, 300):
        answers = family.answers(item.question)
        assert len({answer for answer in answers if answer.strip()}) == 3, item
        for answer in answers:  # one more token for the end of the answer
            assert len(answer) + 1 <= family.reply_limit(depth), (item.question, answer)


@every_cell
def test_no_payload_is_in_two_splits(name: str, depth: str) -> None:
    family = family_of(name)
    payloads = {
        split: {item.question for item in items(name, depth, 150, split=split)} for split in SPLITS
    }
    for split, found in payloads.items():
        assert {split_of(name, family.split_key(payload)) for payload in found} == {split}
    assert not payloads["train"] & payloads["holdout"]
    assert not payloads["selection"] & (payloads["train"] | payloads["holdout"])


@every_cell
def test_the_holdout_of_every_cell_has_200_different_payloads(name: str, depth: str) -> None:
    found = family_of(name).distinct(depth, 200, Draw(3)("size", name, depth), split="holdout")
    assert len({item.question for item in found}) >= 200


@every_family
@settings(max_examples=40)
@given(reply=st.text(max_size=60) | st.text("0123456789+-*/()= []{}\"'`\n.,:", max_size=60))
def test_a_verdict_is_0_or_1_for_any_text(name: str, reply: str) -> None:
    for item in items(name, "short", 2):
        assert item.verifier(reply) in (0.0, 1.0)


@every_cell
def test_a_nasty_reply_is_just_wrong_and_quickly_so(name: str, depth: str) -> None:
    item = items(name, depth, 1)[0]
    began = time.process_time()
    for reply in NASTY:
        assert item.verifier(reply) == 0.0, reply[:80]
    assert time.process_time() - began < 2.0


# What single families promise beyond that.


@pytest.mark.parametrize("depth", DEPTHS)
def test_countdown_accepts_whatever_uses_every_number_once_and_is_right(depth: str) -> None:
    for item in items("countdown", depth, 12):
        numbers, value = item.question.split(" = ")[0].split(), int(item.question.split(" = ")[1])
        for order in itertools.permutations(numbers):
            for signs in itertools.product("+-*/", repeat=len(order) - 1):
                text = order[0] + "".join(
                    sign + number for sign, number in zip(signs, order[1:], strict=True)
                )
                for reply in (text, f"({text})", text.replace("+", " + ")):
                    try:
                        is_right = abs(eval(reply) - value) < 1e-9  # our own text, as the oracle
                    except ZeroDivisionError:
                        is_right = False
                    assert item.verifier(reply) == float(is_right), (item.question, reply)


def test_countdown_refuses_what_is_no_plain_expression_over_the_given_numbers() -> None:
    family = family_of("countdown")
    item = family.item("3 8 = 11", "short")
    assert item.verifier("3+8") == 1.0
    refused = "3+8+0 11 8+3+3-3 3--8 -(-8)+3 +8+3 3**8 8//3 8+3=11 08+3 8+03 8+3# 8+3;1 8,3 (8+3"
    refused += " 8+3) () 8(3) 8+3j"
    for reply in (*refused.split(), "0x8+3", "8_+3", "8 3", "3 8", "1 1", "8+"):
        assert item.verifier(reply) == 0.0, reply


@pytest.mark.parametrize("depth", DEPTHS)
def test_json_repair_accepts_any_completion(depth: str) -> None:
    for item in items("json.repair", depth, 40):
        closers = item.answer
        inner = ",1" if closers[0] == "]" else ',"z":1'
        for reply in (
            closers,
            " ".join(closers),
            inner + closers,
            "0" + closers if item.question[-1] != "0" else closers,
        ):
            json.loads(item.question + reply)
            assert item.verifier(reply) == 1.0, (item.question, reply)
        for reply in (closers[:-1], closers + closers[-1], closers[1:], item.question + closers):
            assert item.verifier(reply) == 0.0, (item.question, reply)


def test_logic_bool_follows_standard_precedence() -> None:
    for depth in DEPTHS:
        for item in items("logic.bool", depth, 60):
            assert item.answer == ("yes" if eval(item.question) else "no")  # our own text


# Roles and groups.


# Families that are data.

LINES = tuple(
    {"prompt": f"what is {number}{end}", "target": target, "depth": depth}
    for number, (end, target, depth) in enumerate(
        itertools.product(
            ("", "?", "\n", ":\n"),
            ("7", "=7", "the sea", "two\nlines", "Answer: 7", "`7`"),
            DEPTHS * 9,
        )
    )
)


OTHERS = ("log", "reasoning_gym", "service")
"""Sources without lines to write: a log has replies and no answers, reasoning-gym draws questions,
and a service has users. Their tests are test_log_rows.py and test_reasoning_gym.py, among the unit
tests, and those of the service."""


@pytest.fixture(params=[name for name in task_sources.names() if name not in OTHERS])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> DataTask:
    """The same lines out of every kind of source; give a new kind its spec here."""
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    task_file = tmp_path / "lines.yaml"
    task_file.write_text("doc_to_text: prompt\ndoc_to_target: target\n")
    specs = {"file": {"path": str(path)}, "lm_eval": {"path": str(task_file), "data": str(path)}}
    source = {"kind": request.param, "name": "lines", **specs[request.param]}
    task = task_sources.build(source).task()
    assert isinstance(task, DataTask)
    return task


def test_written_lines_are_won_by_their_target_alone(written: DataTask) -> None:
    assert written.depths == DEPTHS
    for line in LINES:
        item = written.item(line["prompt"], line["depth"])
        assert (item.answer, item.variant) == (line["target"].strip(), 0)
        assert written.answer(item.question) == item.answer
        assert len(item.answer) + 1 <= written.reply_limit(item.depth)
        for reply in (item.answer, f"  {item.answer}\n"):
            assert item.verifier(reply) == 1.0, item
        wrong = ("", " ", "```\n```", "?", f"{item.answer}\nor 8", *NASTY)
        assert not any(item.verifier(reply) for reply in wrong), item


def test_written_lines_fall_into_one_split_each(written: DataTask) -> None:
    found = {
        split: {
            item.question
            for depth in DEPTHS
            for item in written.distinct(depth, 10**6, Draw(1)("x"), split=split)
        }
        for split in SPLITS
    }
    assert sum(map(len, found.values())) == len(LINES)
    assert set().union(*found.values()) == {line["prompt"] for line in LINES}
    for split, prompts in found.items():
        assert {split_of("lines", prompt.rstrip()) for prompt in prompts} == {split}
        for seed, depth in enumerate(DEPTHS):
            drawn, again = (
                written.sample(depth, np.random.default_rng(seed), split=split) for _ in range(2)
            )
            assert drawn == again
            assert drawn.question in prompts
            assert drawn.depth == depth

"""Prompts that no practised one resembles go to the bare host, and practised kinds do not.

Half of the unrelated prompts, every second line, served to choose the method and its threshold; the
other half is asked here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from symbiont_ecology.base.shipped import config_folder
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.routing.routers import Observation, routers
from symbiont_ecology.evaluate.items import draw_items
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks.splits import Split

ABSTAINING = {"kind": "lexical", "familiar": 0.75}
STYLES = ("terse", "{kind: natural}", "{kind: natural, is_chat: true}")
LINE_END = {"terse": "\n"}
EVERY_FAMILY = load_config("tasks/trained").tasks.families


def prompts(style: str, split: Split, per_cell: int, families: Sequence[str]) -> list[str]:
    named = f"tasks.families=[{', '.join(families)}]"
    config = load_config("base", [named, "tasks.depths=[short, medium]", f"tasks.style={style}"])
    return [item.prompt for item in draw_items(mixture(config), per_cell, split=split)]


def unrelated() -> list[str]:
    lines = (config_folder() / "evaluation" / "unrelated_prompts.jsonl").read_text("utf-8")
    return [json.loads(line)["prompt"] for line in lines.splitlines()]


def left_to_host(spec: object, practised: Sequence[str], asked: Sequence[str]) -> float:
    """The share of prompts that the bare host answers, of one organelle that is always right."""
    seen = [Observation(prompt, "o1", 1.0) for prompt in practised]
    seen += [Observation(prompt, HOST, 0.0) for prompt in practised[::5]]
    expected = routers.build(spec).fit(seen, ["o1"])(asked)
    return float(np.mean(expected.argmax(axis=1) == 0))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("families", [EVERY_FAMILY, ("math.add",), ("text.concise", "word.count")])
def test_unrelated_prompts_are_left_to_the_host_and_held_out_questions_are_not(
    style: str, families: Sequence[str]
) -> None:
    practised = prompts(style, "train", 24, families)
    strangers = [prompt + LINE_END.get(style, "") for prompt in unrelated()[1::2]]
    assert left_to_host(ABSTAINING, practised, strangers) >= 0.95
    assert left_to_host(ABSTAINING, practised, prompts(style, "holdout", 40, families)) <= 0.03


def test_without_a_threshold_strangers_go_to_whoever_was_right_elsewhere() -> None:
    practised = prompts("terse", "train", 24, ("math.add",))
    assert left_to_host("lexical", practised, ["What is the capital of France?\n"]) == 0.0
    assert left_to_host(ABSTAINING, practised, ["What is the capital of France?\n"]) == 1.0

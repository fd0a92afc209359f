"""How items are asked, what the embedded host read of them, and what replies are worth."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from host_recipe.habits import draw_line, pretrained_families
from items import FAMILIES, every_family, families, family_of, items
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks import judge
from symbiont_ecology.tasks.splits import split_of
from symbiont_ecology.tasks.synthetic.family import DEPTHS, SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import FRAMES, prompt_styles


def wording(family: SyntheticTask, frame: int) -> str:
    """A family's keyword in one of the frames."""
    return FRAMES[frame].format(family.keyword)


# Prompt styles.


STYLES = [prompt_styles.build(name) for name in prompt_styles.names()]
STYLES += [
    prompt_styles.build({"kind": "wording", "shift": shift}) for shift in range(1, len(FRAMES))
]


@every_family
def test_styles_render_different_prompts_that_hold_the_payload(name: str) -> None:
    family = family_of(name)
    for item in items(name, "medium", 5):
        prompts = [family.in_style(style).prompt(item.question) for style in STYLES]
        assert len(set(prompts)) == len(prompts)
        assert all(item.question in prompt for prompt in prompts)


@every_family
def test_no_prompt_tells_the_answer_apart_from_payload_and_example(name: str) -> None:
    family = family_of(name)
    for item in items(name, "long", 5):
        for style in STYLES:
            rest = (
                style.render(family, item.question)
                .replace(item.question, "")
                .replace(family.formats[item.variant], "")
            )
            assert not re.search(rf"(?<!\w){re.escape(item.answer)}(?!\w)", rest), (item, rest)


@every_family
def test_a_prompt_depends_on_the_convention_only_where_the_style_says_so(name: str) -> None:
    family = family_of(name)
    payload = items(name, "short", 1)[0].question
    asked = [family.in_variant(convention) for convention in range(3)]
    for style_name in prompt_styles.names():
        style = prompt_styles.build(style_name)
        expected = 3 if style.tells_convention else 1
        prompts = {variant.in_style(style).prompt(payload) for variant in asked}
        assert len(prompts) == expected, style_name


# What the embedded host reads in pre-training.


def pretraining_lines(count: int = 6000) -> list[tuple[str, str, str, str]]:
    """(family, head of the prompt, payload, completion) of so many lines that are not plain
    words."""
    every, generator = pretrained_families(), np.random.default_rng(5)
    heads = {family.name: family.name for family in every}
    heads |= {f"{family.name}#{index}": family.name for family in every for index in range(3)}
    heads |= {
        wording(family, frame): family.name for family in every for frame in range(len(FRAMES))
    }
    lines = []
    for _ in range(count):
        line = draw_line(every, (0.5, 0.3, 0.2), generator)
        if line.prompt:
            head, _, payload = line.prompt.removesuffix("\n").partition(": ")
            lines.append((heads[head], head, payload, line.completion))
    return lines


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str, str, str]]:
    return pretraining_lines()


def test_pretraining_reads_no_payload_that_is_kept(lines: list[tuple[str, str, str, str]]) -> None:
    for name, _, payload, _ in lines:
        assert split_of(name, family_of(name).split_key(payload)) == "train", (name, payload)


def test_pretraining_knows_every_family_but_the_compositions_and_those_that_say_so(
    lines: list[tuple[str, str, str, str]],
) -> None:
    assert {name for name, _, _, _ in lines} == {
        name for name in FAMILIES if family_of(name).role != "composition"
    } - {"regex.find", "regex.mend", "regex.write"}


def test_a_cued_line_shows_the_convention_that_it_names(
    lines: list[tuple[str, str, str, str]],
) -> None:
    cued = [
        (name, int(head[-1]), payload, said) for name, head, payload, said in lines if "#" in head
    ]
    assert len(cued) > 1000
    for name, convention, payload, said in cued:
        assert said == family_of(name).answers(payload)[convention]


def test_a_composition_asks_for_what_pretraining_never_showed(
    lines: list[tuple[str, str, str, str]],
) -> None:
    shown = {(payload, said) for _, _, payload, said in lines}
    for family in families("composition"):
        for depth in DEPTHS:
            for item in items(family.name, depth, 50):
                assert (item.question, item.answer) not in shown


# Rewards.


def rewarded(rule: RewardRule, item: Item, reply: str) -> float:
    """What a rule makes of a reply and its verdict."""
    verdict = verdict_of(item, reply)
    return rule(Rollout(item, "o1", (), np.zeros(0), reply, verdict, verdict, Cost()))


def verdict_of(item: Item, reply: str) -> float:
    """As the boundary around verifiers says it."""
    (judgement,) = judge([(item, reply)])
    assert not judgement.fault
    return judgement.verdict


FOLLOWING = [name for name in reward_rules.names() if reward_rules[name].follows_verdict]
"""Rewards that say by a 1 what is right."""


@pytest.mark.parametrize("rule", FOLLOWING)
@every_family
def test_a_reward_is_one_for_right_and_less_for_anything_else(rule: str, name: str) -> None:
    reward, family = reward_rules.build(rule), family_of(name)
    for item in items(name, "medium", 4):
        assert rewarded(reward, item, item.answer) == 1.0
        for reply in (
            "",
            "?",
            item.answer + "~",
            item.answer[:-1] + "~",
            *family.answers(item.question),
            "x" * 50_000,
        ):
            worth = rewarded(reward, item, reply)
            assert 0.0 <= worth <= 1.0
            assert (worth == 1.0) == (verdict_of(item, reply) == 1.0), (item, reply)


@pytest.mark.parametrize("rule", [name for name in FOLLOWING if not reward_rules[name].sees_gold])
@every_family
def test_a_reward_without_gold_equals_the_verdict(rule: str, name: str) -> None:
    reward, family = reward_rules.build(rule), family_of(name)
    for item in items(name, "short", 4):
        for reply in ("", item.answer, item.answer + "~", *family.answers(item.question)):
            assert rewarded(reward, item, reply) == verdict_of(item, reply)


OF_TEXT = [
    name for name in reward_rules.names() if name not in FOLLOWING and not reward_rules[name].reads
]
"""Rewards of another scale that look at the reply."""


@pytest.mark.parametrize("rule", OF_TEXT)
@every_family
def test_no_reply_is_worth_more_than_the_reference_answer(rule: str, name: str) -> None:
    reward, family = reward_rules.build(rule), family_of(name)
    for item in items(name, "medium", 4):
        best = rewarded(reward, item, item.answer)
        for reply in ("", "?", item.answer + "~", *family.answers(item.question), "x" * 50_000):
            assert rewarded(reward, item, reply) <= best, (item, reply)


def test_a_rule_that_imitates_what_is_worth_one_needs_a_reward_that_says_so() -> None:
    config = load_config("base", ["learning_rule=expert_iteration", "reward=conciseness"])
    with pytest.raises(ConfigError, match=r"reward: expert_iteration .* got 'conciseness'"):
        check(config)


@every_family
@example(reply="x" * 20_000)
@settings(max_examples=25)
@given(reply=st.text(max_size=40))
def test_a_wrong_reply_never_earns_more_than_the_ceiling(name: str, reply: str) -> None:
    reward = reward_rules.build({"kind": "shaped", "ceiling": 0.3})
    (item,) = items(name, "short", 1)
    if not verdict_of(item, reply):
        assert 0.0 <= rewarded(reward, item, reply) <= 0.3


def test_a_nearer_reply_earns_more_when_shaped() -> None:
    reward, family = reward_rules.build("shaped"), family_of("string.reverse")
    item = family.item("kqa", "short")
    earned = [rewarded(reward, item, reply) for reply in ("zzzzz", "AZZ", "AQZ", "AQK")]
    assert earned == sorted(earned)
    assert len(set(earned)) == 4

"""Prompts with turns: solved examples before the question, in text and in a chat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asked import synthetic, write_items
from hosts import add_chat_template, make_host
from items import FAMILIES
from lines import jsonl, rows
from symbiont_ecology.base.errors import ConfigError, DataError, HostError
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.base.types import (
    TURN_END,
    examples_in,
    in_turns,
    last_turn,
    map_last_turn,
    turns,
    without_turns,
)
from symbiont_ecology.evaluate.items import draw_items, read_items
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.loading import read_model_config
from symbiont_ecology.run.build import check, mixture
from symbiont_ecology.run.config import HostConfig, RunConfig
from symbiont_ecology.run.executors import KernelSource
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.data import FileTasks
from symbiont_ecology.tasks.splits import split_of
from symbiont_ecology.tasks.synthetic.styles import FewShot

CHAT: Spec = {"kind": "few_shot", "is_chat": True}
TRAINED = [name for name in FAMILIES if tasks[name].role == "trained"]


def run_config(families: list[object], **settings: object) -> RunConfig:
    return RunConfig.model_validate({"tasks": {"families": families, **settings}})


def test_turns_are_parts_of_one_text() -> None:
    prompt = in_turns("1+1\n", "2\n", "3+4\n")
    assert turns(prompt) == ["1+1\n", "2\n", "3+4\n"]
    assert last_turn(prompt) == "3+4\n"
    assert last_turn("3+4") == "3+4"
    assert examples_in(prompt) == 1
    assert examples_in(in_turns("be brief", "3+4")) == 0
    assert without_turns(prompt) == "1+1\n2\n3+4\n"
    assert map_last_turn(str.upper, in_turns("a", "b", "c")) == in_turns("a", "b", "C")


def test_a_host_reads_turns_as_one_text_or_as_a_conversation(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role }}={{ m.content }}.{% endfor %}"
    folder = make_host(tmp_path / "host", layers=1)
    with pytest.raises(HostError, match="expected a chat template"):
        HostKernel.from_pretrained(folder, is_chat=True).generate(["12+7"], slots=-1)
    add_chat_template(folder, template)
    plain, chat = (HostKernel.from_pretrained(folder, is_chat=is_chat) for is_chat in (False, True))
    said = in_turns("1+1", "2", "3+4")
    assert plain.encode([said])[0].tolist() == plain.encode(["1+123+4"])[0].tolist()
    for said, text in {
        in_turns("a", "b", "c"): "user=a.assistant=b.user=c.",
        in_turns("s", "a", "b", "c"): "system=s.user=a.assistant=b.user=c.",
        in_turns("s", "c"): "system=s.user=c.",
    }.items():
        whole = plain.codec.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert chat.encode([said])[0].tolist() == whole


LOSSY = {
    "system": "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}",
    "assistant": "{% for m in messages if m.role != 'assistant' %}[{{ m.content }}]{% endfor %}",
    "the last alone": "[{{ messages[-1].content }}]",
    "user": "{% for m in messages if m.role != 'user' %}[{{ m.content }}]{% endfor %}",
    "parts": "{% for m in messages %}{{ m.role }}={% for p in m.content %}{{ p.text }}{% endfor %}."
    "{% endfor %}",
    "strict parts": "{% for m in messages %}{{ m.role }}={{ m.content[0]['text'] + '.' }}"
    "{% endfor %}",
    "raising": "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{{ m.role }}={{ m.content }}.{% endfor %}",
    "thinking": "{% for m in messages %}{{ m.role }}={{ m.content.split('</think>')[-1] }}."
    "{% endfor %}",
}
"""Chat templates that lose turns, or want them in another form."""


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("system", {"sq", "sqaq"}),
        ("assistant", {"qaq", "sqaq"}),
        ("the last alone", {"sq", "qaq", "sqaq"}),
        ("parts", set()),
        ("strict parts", set()),
        ("raising", {"sq", "sqaq"}),
        ("thinking", set()),
    ],
)
def test_a_turn_that_a_template_loses_is_refused_and_the_others_are_answered(
    tmp_path: Path, name: str, lost: set[str]
) -> None:
    folder = add_chat_template(make_host(tmp_path / "host", layers=1), LOSSY[name])
    codec = HostKernel.from_pretrained(folder, is_chat=True).codec
    words = {"s": "Be brief.", "q": "1+1?", "a": "2"}
    for roles in ("q", "sq", "qaq", "sqaq"):
        said = in_turns(*(words[role] for role in roles))
        if roles in lost:
            with pytest.raises(HostError, match=r"^expected a chat template [^\n]*leave"):
                codec.chat(said)
        else:
            text = codec.chat(said)
            assert all(words[role] in text for role in roles)
            assert name not in ("parts", "strict parts") or text.endswith("user=1+1?.")


def test_a_template_that_loses_what_a_user_says_is_refused_at_once(tmp_path: Path) -> None:
    folder = add_chat_template(make_host(tmp_path / "host", layers=1), LOSSY["user"])
    with pytest.raises(HostError, match="that shows what a user says"):
        HostKernel.from_pretrained(folder, is_chat=True)


@pytest.mark.parametrize(
    "template",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{% if not date_string is defined %}{% if strftime_now is defined %}"
        "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul "
        "2024' %}{% endif %}{% endif %}{{ date_string }}",
        "{% macro day() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}{{ day() }}",
        "  {% set format = '%d %b %Y' %}\n{{ strftime_now(format) }}",
        "\n  {{ strftime_now('%d %b') ~ strftime_now(' %Y') }}",
    ],
)
def test_a_template_prints_the_day_of_the_run(tmp_path: Path, template: str) -> None:
    rest = "{% for m in messages %}{{ m.content }}{% endfor %}"
    folder = add_chat_template(make_host(tmp_path / "host", layers=1), template + rest)
    here = HostConfig(model=str(folder))
    there = HostConfig(model=str(folder), date="2027-02-03")
    first, same, other = (
        HostKernel.from_pretrained(folder, is_chat=True, slots=1),
        KernelSource(here, is_chat=True).load(slots=1),
        KernelSource(there, is_chat=True).load(slots=1),
    )
    before = "\n  " if template.startswith("\n") else ""
    assert first.codec.chat("a") == same.codec.chat("a") == f"{before}01 Jan 2026a"
    assert other.codec.chat("a") == f"{before}03 Feb 2027a"
    assert KernelSource(there, is_chat=True).reader(9).chat("a") == other.codec.chat("a")
    assert first.fingerprint() == same.fingerprint() != other.fingerprint()


def test_every_format_of_a_date_is_of_the_day_of_the_run(tmp_path: Path) -> None:
    template = "{{ strftime_now('%F %D %e %R %-d %Y') }}{{ messages[-1].content }}"
    folder = add_chat_template(make_host(tmp_path / "host", layers=1), template)
    codec = TextCodec(folder, read_model_config(folder), is_chat=True)
    assert codec.chat("a") == "2026-01-01 01/01/26  1 00:00 1 2026a"


def test_a_template_that_writes_titles_gets_texts_and_one_with_a_window_loses_turns(
    tmp_path: Path,
) -> None:
    title = "{% for m in messages %}{{ m.content | title }}{% endfor %}"
    window = "{% for m in messages[-3:] %}{{ m.content }}{% endfor %}"
    codecs = []
    for name, template in {"title": title, "window": window}.items():
        folder = add_chat_template(make_host(tmp_path / name, layers=1), template)
        codecs.append(TextCodec(folder, read_model_config(folder), is_chat=True))
    assert codecs[0].chat("say a") == "Say A"
    assert codecs[1].chat("say a") == "say a"
    with pytest.raises(HostError, match="for turns of assistant, got one that drops them"):
        codecs[1].chat(in_turns("a", "b", "c"))


@pytest.mark.parametrize("name", TRAINED)
def test_examples_are_train_questions_the_same_for_every_question_but_never_itself(
    name: str,
) -> None:
    family, style = synthetic(name, "few_shot"), FewShot()
    drawn = draw_items(mixture(run_config([name], style="few_shot")), 20)
    before = {item.prompt.rpartition(TURN_END)[0] for item in drawn}
    assert len(before) == 1
    said = turns(drawn[0].prompt)
    assert len(said) == 2 * style.examples + 1
    for asked, answer in zip(said[:-1:2], said[1::2], strict=True):
        question = asked.removeprefix(f"{name}: ").rstrip("\n")
        assert split_of(name, family.split_key(question)) == "train"
        assert family.verify(question, answer) == 1.0
        itself = turns(family.prompt(question))
        assert len(itself) == len(said)
        assert itself.count(asked) == 1
        assert itself[-1] == asked


def test_lines_of_data_get_examples_of_their_own(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "lines.jsonl", rows(60))
    task = FileTasks("trivia", str(path)).task()
    (line, *_) = task.part("short", "holdout")
    said = turns(task.in_style(FewShot(examples=3)).prompt(line.question))
    trained = {one.prompt: one.answers[0] for one in task.part("short", "train")}
    assert [trained[asked.rstrip("\n")] for asked in said[:-1:2]] == [
        answer.rstrip("\n") for answer in said[1::2]
    ]
    assert said[-1] == f"{line.prompt}\n"
    chat = turns(task.in_style(FewShot(is_chat=True, system="Be brief.")).prompt(line.question))
    assert chat[0] == "Be brief."
    assert chat[-1] == line.prompt
    assert len(chat) == 10


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"style": "few_shot", "users": {"kinds": 2}}, "tells what is right"),
        ({"style": {"kind": "few_shot", "system": "Be brief."}}, "system is for chats: set is_cha"),
        ({"style": {"kind": "natural", "system": "Be brief."}}, "system is for chats: set is_chat"),
        ({"style": {"kind": "few_shot", "examples": 0}}, "examples: expected greater than 0"),
        ({"style": CHAT}, "a host with a chat template, 'embedded' has none"),
    ],
)
def test_a_style_that_cannot_be_is_refused_before_a_host_is_loaded(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check(run_config(["math.add"], **settings))


def test_data_may_not_bring_turns(tmp_path: Path) -> None:
    lines = [{"prompt": in_turns("a", "b", "c"), "target": "x"}]
    with pytest.raises(DataError, match=r"line 1: the control character U\+001D"):
        FileTasks("bad", str(jsonl(tmp_path / "lines.jsonl", lines))).task()
    line = {"family": "f", "depth": "d", **lines[0]}
    with pytest.raises(DataError, match=r"line 1: the control character U\+001D"):
        read_items(jsonl(tmp_path / "questions.jsonl", [line]))


def test_written_questions_are_asked_behind_the_examples_again(tmp_path: Path) -> None:
    mix = mixture(run_config(["math.add", "string.sort"], style="few_shot"))
    drawn = draw_items(mix, 3)
    write_items(drawn, tmp_path / "items.jsonl")
    read = read_items(tmp_path / "items.jsonl")
    assert not any(TURN_END in item.prompt for item in read)
    again = [mix.as_asked(item) for item in read]
    assert [item.prompt for item in again] == [item.prompt for item in drawn]
    assert [item.reply_limit for item in again] == [item.reply_limit for item in drawn]


def test_a_typed_prompt_stands_behind_examples_of_the_only_family() -> None:
    def typed(*families: str) -> str:
        """The prompt of somebody who names no family."""
        mix = mixture(run_config([*families], style="few_shot"))
        (item,) = draw_items(mix, 1)[:1]
        text = "math.add: 47+8"
        return mix.as_asked(replace(item, family="", question=text, prompt=text)).prompt

    only = mixture(run_config(["math.add"], style="few_shot"))
    assert typed("math.add") == only.families["math.add"].prompt("47+8")
    assert typed("math.add", "string.sort") == "math.add: 47+8\n"

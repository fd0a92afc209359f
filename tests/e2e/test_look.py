"""A first look at a host: what it answers in which style, what to type next, and nothing kept."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from hosts import SMOLLM2, add_chat_template, make_host, smollm2
from lines import jsonl
from said import Symbiont

ASKED = ("--per-cell", "1", "--samples", "2", "--tasks", "math.add,logic.bool")


def test_a_look_tells_every_style_and_what_to_type_next(symbiont: Symbiont, tmp_path: Path) -> None:
    said = symbiont("look", *ASKED, "--json", tmp_path / "look.json")
    assert said.code == 0, said.err
    assert "not asked in {kind: few_shot, is_chat: true}: the host has no chat template" in said.err
    found = json.loads((tmp_path / "look.json").read_text())
    assert found["take"] in found["styles"]
    assert set(found["styles"]) == {"terse", "natural", "few_shot"}
    cells = found["styles"]["natural"]["cells"]
    assert set(cells) == {
        f"{family}/{depth}"
        for family in ("math.add", "logic.bool")
        for depth in ("short", "medium")
    }
    assert "take the style" in said.out
    words = said.out.splitlines()[-1]
    assert words.startswith("next: ")
    assert "tasks.style=terse" in words


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["tasks.families=[math.add]"], ["steady", "tasks.families=[math.add]"]),
        (
            ["base", "seed=3", "tasks.style=natural", "--tasks", "math.add", "--host", "embedded"],
            ["base", "seed=3", "host.model=embedded", "tasks.families=[math.add]"],
        ),
    ],
)
def test_what_is_to_be_typed_next_is_the_run_that_was_looked_at(
    words: list[str], run: list[str], symbiont: Symbiont
) -> None:
    said = symbiont("look", *words, "--style", "terse")
    assert said.code == 0, said.err
    typed = ["symbiont", "run", *run, "tasks.style=terse"]
    assert said.out.splitlines()[-1] == f"next: {shlex.join(typed)}"


def test_a_look_at_a_config_begins_with_its_own_style(symbiont: Symbiont) -> None:
    said = symbiont("look", "base", "tasks.style={kind: few_shot, examples: 2}", *ASKED)
    assert said.code == 0, said.err
    assert "the config's" in said.out


def test_a_host_with_a_template_is_asked_in_chats_too(symbiont: Symbiont, tmp_path: Path) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    said = symbiont("look", "--host", host, *ASKED, "--json", "-")
    assert said.code == 0, said.err
    assert len(json.loads(said.out)["styles"]) == 5
    assert "nothing was right in any style" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--style", "fewshot"), "did you mean 'few_shot'?"),
        (("--style", "{kind: few_shot, is_chat: true}"), "the host has no chat template"),
        (("--tasks", "math.ad"), "did you mean 'math.add'?"),
        (("--per-cell", "0"), "--per-cell"),
    ],
)
def test_a_mistake_is_said_before_a_host_is_loaded(
    words: tuple[str, ...], message: str, symbiont: Symbiont
) -> None:
    said = symbiont("look", *words)
    assert said.code == 2
    assert message in said.err
    assert "loading" not in said.err


def test_replies_cannot_write_to_the_terminal(symbiont: Symbiont, tmp_path: Path) -> None:
    lines = [{"prompt": f"\x1b[31m[bold]{number}", "target": "x"} for number in range(60)]
    source = f"{{kind: file, name: odd, path: {jsonl(tmp_path / 'odd.jsonl', lines)}}}"
    said = symbiont("look", "base", f"tasks.families=[{source}]", "--per-cell", "1")
    assert said.code == 0, said.err
    assert "\x1b[31m" not in said.out
    assert "\\u001b[31m[bold]" in said.out


def test_the_dry_run_of_a_chat_style_needs_a_template(symbiont: Symbiont, tmp_path: Path) -> None:
    style = "tasks.style={kind: few_shot, is_chat: true}"
    host = make_host(tmp_path / "host", layers=1)
    words = ["run", "base", "tasks.families=[math.add]", style, f"host.model={host}", "--dry-run"]
    refused = symbiont(*words)
    assert refused.code == 2
    assert "expected a host with a chat template" in refused.err
    add_chat_template(host)
    assert symbiont(*words).code == 0


@smollm2
def test_examples_make_a_real_model_right_where_it_was_not_asked_well(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    asked = ("--tasks", "code.format,json.repair", "--per-cell", "3", "--samples", "1")
    styles = ("--style", "terse", "--style", "few_shot")
    out = tmp_path / "look.json"
    said = symbiont("look", "--host", SMOLLM2, *asked, *styles, "--json", out)
    assert said.code == 0, said.err
    found = json.loads(out.read_text())
    assert found["take"] == "few_shot"
    shares = {
        name: one["cells"]["code.format/short"]["right"] for name, one in found["styles"].items()
    }
    assert shares["terse"] == 0.0
    assert shares["few_shot"] >= 2 / 3


def test_a_look_keeps_to_its_time_and_says_what_it_left_out(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    out = tmp_path / "look.json"
    said = symbiont(
        "look", "--seconds", "0", "--style", "terse", "--style", "natural", "--json", out
    )
    assert said.code == 0, said.err
    found = json.loads(out.read_text())["styles"]
    asked = [set(one["cells"]) for one in found.values()]
    assert asked[0] == asked[1]
    assert 5 <= len(asked[0]) <= 12  # one batch, from families all over
    assert len({cell.rpartition("/")[0] for cell in asked[0]}) >= 5
    assert "a larger --seconds asks all cells" in said.out

"""A first look at a host: what it answers in a style, and nothing kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hosts import add_chat_template, make_host
from lines import jsonl
from said import Symbiont


def test_a_look_tells_what_is_right_in_every_cell(
    symbiont: Symbiont, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("look", "base", "tasks.families=[math.add,logic.bool]", "tasks.depths=[short]")
    said = symbiont(*words, "--per-cell", 20)
    assert said.code == 0, said.err
    cells = dict(re.findall(r"(\S+/short) +(\d+)%", said.out))
    assert set(cells) == {"math.add/short", "logic.bool/short"}
    assert all(0 < int(right) < 100 for right in cells.values())
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    chat = ("tasks.style={kind: few_shot, is_chat: true}", f"host.model={host}")
    said = symbiont(*words, *chat, "--per-cell", 1)
    assert said.code == 0, said.err
    assert "nothing was right" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host"]


def test_replies_cannot_write_to_the_terminal(symbiont: Symbiont, tmp_path: Path) -> None:
    lines = [{"prompt": f"\x1b[31m[bold]{number}", "target": "x"} for number in range(60)]
    source = f"{{kind: file, name: odd, path: {jsonl(tmp_path / 'odd.jsonl', lines)}}}"
    said = symbiont("look", "base", f"tasks.families=[{source}]", "--per-cell", 1)
    assert said.code == 0, said.err
    assert "\x1b[31m" not in said.out
    assert "\\u001b[31m[bold]" in said.out


def test_settings_are_proposed_for_a_host_without_a_preset(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    words = ("tasks.families=[math.add]", "tasks.depths=[short]", "--per-cell", 1)
    said = symbiont("look", "base", f"host={host}", *words)
    assert "host.learning_rate=4e-03 'tasks.style={kind: natural, is_chat: true}'" in said.out
    assert "no preset" not in symbiont("look", "base", *words).out

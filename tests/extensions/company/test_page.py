"""The page for companies: its commands, one after the other, on the embedded host."""

from __future__ import annotations

from pathlib import Path

import pytest

from said import Symbiont
from typed import ROOT, commands_in


def test_the_commands_of_the_page_lead_from_a_table_to_an_answer(
    symbiont: Symbiont, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [one.words[1:] for one in commands_in(ROOT / "docs" / "company.md")]
    assert [words[0] for words in commands] == ["learn-from", "learn-from", "infer", "serve"]
    for words in commands[:-1]:
        is_long = words[0] == "learn-from" and "--dry-run" not in words
        said = symbiont(*words, *(["--passes", "0.1", "--quiet"] if is_long else []))
        assert said.code == 0, said.err
    assert (tmp_path / "artifacts" / "ours" / "report.html").exists()

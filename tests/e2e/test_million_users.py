"""The paper estimate is what its script computes."""

from __future__ import annotations

import json
from pathlib import Path

from said import Symbiont

PAGE = Path(__file__).parents[2] / "docs" / "million-users.md"


def test_the_page_has_the_table_of_the_script(script: Symbiont) -> None:
    table = script("million_users").out
    assert f"<!-- million -->\n{table}<!-- /million -->\n" in PAGE.read_text(encoding="utf-8")


def test_what_a_run_remembers_is_counted(script: Symbiont, tmp_path: Path) -> None:
    known = {"a": {"answers": [{"reply": "größer"}] * 24}, "b": {"answers": []}}
    (tmp_path / "state.json").write_text(json.dumps({"habitats": known}))
    texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in known.values()]
    sizes = [len(text.encode()) for text in texts]
    assert script("million_users", "--of", tmp_path).out == (
        f"2 habitats, {sum(sizes) / 2:.0f} bytes and 12.0 answers each; 1 are full, "
        f"{sizes[0]} bytes each\n"
    )
    (tmp_path / "state.json").write_text('{"habitats": {}}')
    assert script("million_users", "--of", tmp_path).out == "no habitats\n"

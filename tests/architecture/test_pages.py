"""Pages name what is there, and their figures are those of the files that they are from."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "docs/figures.json").read_text(encoding="utf-8"))
CODE = ROOT / "src/symbiont_ecology"


@pytest.mark.parametrize("page", FIGURES)
def test_figures_of_a_page_are_those_of_their_sources(page: str) -> None:
    check_page = runpy.run_path(str(ROOT / "scripts/docs_check.py"))["check_page"]
    assert list(check_page(ROOT, page, FIGURES[page], is_filled=False)) == []


@pytest.mark.parametrize("page", ["architecture.md", "extending.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`([a-z_]+/[\w./]+\.\w+)`", text))
    assert names
    assert {
        name for name in names if not any((at / name).is_file() for at in (ROOT, CODE))
    } == set()

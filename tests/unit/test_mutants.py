"""What is said of mutation tests is what was found, and no survivor is without a reason."""

from __future__ import annotations

import json
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PARTS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "mutants"
]
RESULTS: dict[str, Any] = json.loads((ROOT / "docs/results/mutants.json").read_text("utf-8"))


@pytest.mark.parametrize("module", PARTS)
def test_a_module_and_its_tests_are_there(module: str) -> None:
    files = [word for word in PARTS[module] if word.endswith(".py")]
    assert (ROOT / "src/symbiont_ecology" / module).is_file()
    assert files
    assert all((ROOT / name).is_file() for name in files)


@pytest.mark.parametrize("module", RESULTS)
def test_most_mutants_of_a_module_are_noticed_and_every_other_one_has_a_reason(module: str) -> None:
    assert module in PARTS
    counts, survivors = RESULTS[module]["counts"], RESULTS[module]["survivors"]
    lived = counts.get("survived", 0) + counts.get("not tested", 0)
    assert lived == len(survivors) <= 0.15 * sum(counts.values())
    assert all(survivor["reason"] for survivor in survivors)


def test_the_page_says_what_was_found() -> None:
    told = runpy.run_path(str(ROOT / "scripts/mutants.py"))["told"]
    assert told(RESULTS, PARTS) in (ROOT / "docs/mutants.md").read_text("utf-8")

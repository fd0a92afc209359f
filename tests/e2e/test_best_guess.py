"""What a guesser could reach, and what the page says of it."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

CHECKOUT = Path(__file__).parents[2]
SCRIPT = CHECKOUT / "scripts" / "best_guess.py"
PACK = CHECKOUT / "docs" / "paper_packs" / "smollm2-habitats"


def a_run(kinds: int, questions: int) -> Any:
    """One user of each kind, in turn, in one long generation."""
    habitats = np.tile(np.arange(kinds), questions)
    asked = SimpleNamespace(
        world=SimpleNamespace(names=list(map(str, range(kinds)))),
        habitats=habitats,
        generations=np.zeros(len(habitats), int),
    )
    outcome = SimpleNamespace(seed=0)
    return SimpleNamespace(outcome=outcome, asked=asked, kinds=np.arange(kinds)[:, None])


def test_a_guesser_tries_each_kind_once_where_verdicts_are_sure() -> None:
    guessed = runpy.run_path(str(SCRIPT))["guessed"]
    shares = guessed(a_run(4, 6), rates=np.array([1 - 1e-9]), wrong=1e-9)
    by_question = shares.reshape(6, 4).mean(1)
    np.testing.assert_allclose(by_question[:4], [0.25, 0.5, 0.75, 1.0], atol=0.05)
    assert (by_question[3:] == 1).all()


def test_the_page_says_what_the_script_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(PACK), "styles"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    _, guesser, ecology = ([float(cell) for cell in line.split()[-3:]] for line in lines[1:4])
    gaps = [re.search(r"([+-][\d.]+) points (\[.*\])", line) for line in lines[4:7]]
    (everybody, whole), (late, end), (new, newcomers) = (gap.groups() for gap in gaps if gap)
    page = " ".join((CHECKOUT / "docs" / "real-hosts.md").read_text(encoding="utf-8").split())
    page = page.replace("−", "-")
    assert f"It has {guesser[0]} % of all answers accepted" in page
    assert f"from it with eight seeds ({everybody} points {whole})" in page
    assert re.search(rf"A wrong one is accepted by {lines[7].split()[-2]} %", page)
    assert f"the guesser has {guesser[1]} % and the ecology {ecology[1]} ({late} {end})" in page
    assert f"of newcomers {guesser[2]} and {ecology[2]} % ({new} {newcomers})" in page

"""Figures in pages are those of the packs that they are from."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from said import Said

SCRIPT = Path(__file__).parents[2] / "scripts" / "docs_check.py"
Check = Callable[..., Said]


@pytest.fixture
def check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Check:
    """The script, run in this process on the checkout in ``tmp_path``."""

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--root", str(tmp_path), *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        said = capsys.readouterr()
        return Said(int(stop.value.code or 0), said.out, said.err)

    return run


PAGE = """# Results

| arm | seeds | right, % [interval] |
|---|---|---|
| single | 4 | **50.0** [40.0, +60.0] |
| other | 7 |

It has 30 % of 1,000.
"""
SUMMARY = {"arms": {"single": {"seeds": 1, "0.5": {"estimate": -0.5, "low": -1, "high": 0.25}}}}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page and a pack beside it, which holds other figures."""
    pack, page = tmp_path / "docs" / "results", tmp_path / "docs" / "page.md"
    pack.mkdir(parents=True)
    (pack / "tiny.json").write_text(json.dumps(SUMMARY))
    page.write_text(PAGE)
    return page


def quote(root: Path, *entries: list[str]) -> None:
    (root / "docs" / "figures.json").write_text(json.dumps({"docs/page.md": entries}))


def test_wrong_figures_are_a_line_each_and_fill_mends_them(
    page: Path, tmp_path: Path, check: Check
) -> None:
    interval, of = "results/tiny.json:arms.single.0.5", "results/tiny.json:arms.single"
    quote(
        tmp_path,
        ["| single |", f"{of}.seeds 1 .0f", f"{interval} 100 .1f"],
        ["It has", f"{interval}.high 100 .0f", f"{of}.seeds 2000 ,.0f"],
    )
    said = check()
    assert said.code == 1
    lines = said.err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{page}:5"] * 4 + [f"{page}:8"] * 2
    assert lines[0].endswith(f"expected 1, found 4 ({of}.seeds 1 .0f)")
    assert check("--fill").code == 0
    text = page.read_text()
    assert "| single | 1 | **-50.0** [-100.0, 25.0] |" in text
    assert "It has 25 % of 2,000." in text
    assert check().code == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (["| nobody |", "results/tiny.json:arms.single.seeds 1 .0f"], "'| nobody |'"),
        (["| single |", "nowhere:arms 1 .0f"], "found none ("),
        (["excerpt tiny"], "expected the text of "),
    ],
)
def test_a_figure_that_leads_nowhere_is_one_line(
    page: Path, tmp_path: Path, check: Check, entry: list[str], message: str
) -> None:
    quote(tmp_path, entry)
    said = check("--fill")
    assert said.code == 1
    assert message in said.err.splitlines()[-1]
    assert "| other | 7 |" in page.read_text()

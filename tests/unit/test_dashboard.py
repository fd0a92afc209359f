from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from symbiont_ecology.analysis.dashboard import Dashboard, Narrator, RunLength
from symbiont_ecology.engine.run import start
from toy import ToyHost, toy_config


def test_the_screen_tells_of_births_deaths_and_cells(tmp_path: Path) -> None:
    config, console = (
        toy_config(generations=12),
        Console(file=StringIO(), force_terminal=True, width=120),
    )
    with Dashboard(RunLength(12), console, "toy") as dashboard:
        state = start(config, tmp_path / "run", host=ToyHost(), watch=dashboard).state
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert " born of o" in text
    assert " generations old" in text
    assert "math.add" in text
    assert all(f" {organelle_id} " in text for organelle_id in state.population)


def test_a_plain_line_per_generation_without_a_terminal(tmp_path: Path) -> None:
    console = Console(file=StringIO(), width=40)
    with Narrator(RunLength(3), console) as narrator:
        start(toy_config(generations=3), tmp_path / "run", host=ToyHost(), watch=narrator)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split()[:2] for line in lines] == [
        ["generation", "0"],
        ["generation", "1"],
        ["generation", "2"],
    ]
    assert [line.split()[2] for line in lines] == ["33%", "67%", "100%"]


def test_the_nearer_end_counts() -> None:
    assert RunLength(10).fraction(5, 0) == 0.5
    assert RunLength(10, 100.0).fraction(5, 80) == 0.8
    assert RunLength(10, 100.0).fraction(5, 300) == 1.0

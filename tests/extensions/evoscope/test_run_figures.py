"""Figures of runs: every bar and share is what the log says, equal histories give equal files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seen import users_plan
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.events import Acted, Born, GenerationEnded
from symbiont_ecology.extensions.evoscope import figures
from symbiont_ecology.extensions.evoscope.history import History
from symbiont_ecology.run.run import Run
from toy import ToyHost


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    mpl.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.parametrize("draw", [figures.curves, figures.lineages, figures.servers])
def test_a_figure_takes_a_run_its_folder_or_history_and_axes(
    draw: Callable[..., Axes], seen: dict[str, Path]
) -> None:
    mine, history = Figure().add_subplot(), History.of_run(seen["users"])
    assert draw(seen["users"], mine) is mine
    assert mine.has_data()
    one, other = draw(Run.open(seen["users"], host=ToyHost())), draw(history)
    assert one.figure is not other.figure
    with pytest.raises(RunError, match="no generation is over yet"):
        draw(seen["begun"])


def test_shares_and_population_are_those_of_the_log(seen: dict[str, Path]) -> None:
    history = History.of_run(seen["users"])
    axes = figures.curves(history)
    shares, *changes = axes.lines
    acts = [act for act in history.acts if 7 <= act.generation < 14]  # around generation 10
    right, asked = (sum(getattr(act, name) for act in acts) for name in ("right", "asked"))
    assert shares.get_ydata()[10] == pytest.approx(100 * right / asked)
    assert [line.get_xdata()[0] for line in changes] == [25]
    beside = next(other for other in axes.figure.axes if other is not axes)
    assert list(beside.lines[0].get_ydata()) == [end.population for end in history.ends]


def test_every_life_has_a_bar_and_every_parent_a_line(seen: dict[str, Path]) -> None:
    axes, taxa = figures.lineages(seen["eventful"]), History.of_run(seen["eventful"]).taxa
    assert any(len(one.ancestors) > 1 for one in taxa.values())
    assert len(axes.collections) == len(taxa)
    assert len(axes.lines) == sum(len(one.ancestors) for one in taxa.values())


@pytest.mark.parametrize("is_chain", [True, False])
def test_of_very_many_lives_some_are_shown(is_chain: bool) -> None:
    history = History(users_plan())
    for number in range(1, 300):
        parents = (f"o{number - 1}" if is_chain else "o1",) if number > 1 else ()
        history.add(Born(number, f"o{number}", "gaussian", parents, f"weights-{number}", {}))
        history.add(Acted(number, f"o{number}", "a/b", ("x",), (1.0,), 1, 1, 1, 1, "practice"))
        history.add(GenerationEnded(number, number, 1, 0, 1.0, 1, 1, 0, 1, 1))
    axes = figures.lineages(history, Figure())
    assert len(axes.collections) == figures.MAX_LIVES


def test_bars_of_servers_are_those_who_answered(seen: dict[str, Path]) -> None:
    history = History.of_run(seen["users"])
    bars = list(figures.serving_bars(history))
    assert len({server for _, server, *_ in bars}) > 1
    for act in history.acts:
        serving = [bar for bar in bars if bar[0] == act.user]
        assert act.id in {bar[1] for bar in serving if bar[2] <= act.generation <= bar[3]}
    for user in {user for user, *_ in bars}:
        own = sorted((begin, end) for one, _, begin, end in bars if one == user)
        assert all(one[1] <= other[0] for one, other in pairwise(own))
        assert own[-1][1] == history.generation


def test_a_name_is_no_formula_and_hides_nothing() -> None:
    history = History(users_plan())
    history.add(Born(0, "$x^2$\x1b[2J\u202e" + "y" * 99, "founder", (), "w", {}))
    history.add(GenerationEnded(0, 1, 1, 0, None, 1, 1, 0, 1, 1))
    axes = figures.lineages(history, Figure())
    (label,) = (text.get_text() for text in axes.get_yticklabels())
    assert label.startswith(r"\$x^2\$\u001b[2J\u202ey")
    assert len(label) < 45


def test_figures_made_twice_are_the_same_bytes_and_replaced_in_place(
    seen: dict[str, Path], methods: dict[str, Path], tmp_path: Path
) -> None:
    names = figures.save(seen["users"], tmp_path / "one")
    views = ("curves", "lineages", "servers")
    assert names == [f"{view}.{form}" for view in views for form in ("png", "svg")]
    with mpl.style.context("dark_background"):
        assert figures.save(seen["users"], tmp_path / "other") == names
        assert mpl.rcParams["axes.facecolor"] == "black"
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert figures.save(methods["es"], tmp_path / "one") == names[:2]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        figures.save(seen["users"], tmp_path / "file")


def test_the_command_line_and_runs_load_no_matplotlib() -> None:
    code = "import sys, symbiont_ecology.cli, symbiont_ecology.run.run; "
    code += "print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

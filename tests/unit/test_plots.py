"""Figures of runs: every bar and share is what the log says, equal histories give equal files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology import plots
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.events import Acted, Born, GenerationEnded
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History, read_history
from symbiont_ecology.plots.descent import MOST_LIVES
from symbiont_ecology.plots.drawing import MOST_COLUMNS, colours_of, label
from symbiont_ecology.plots.palette import VIEW_COLOURS
from symbiont_ecology.plots.places import servings_of
from symbiont_ecology.plots.through_time import energy_flows

VIEWS = [
    plots.curves, plots.lineages, plots.muller, plots.servers, plots.cells, plots.energy,
    plots.archive, plots.ranks, plots.trials,
]  # fmt: skip
every_view = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> History:
    return read_history(
        lived_to_its_end(tmp_path_factory.mktemp("eventful") / "run", eventful_plan())
    )


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> History:
    return read_history(lived_to_its_end(tmp_path_factory.mktemp("users") / "run", users_plan()))


@pytest.fixture(params=["eventful", "users"])
def history(request: pytest.FixtureRequest) -> History:
    found: History = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def no_windows() -> Iterator[None]:
    mpl.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@every_view
def test_a_view_draws_on_the_axes_that_it_gets_and_returns_them(
    view: Callable[..., Axes], history: History
) -> None:
    mine = Figure().add_subplot()
    assert view(history, mine) is mine
    assert mine.has_data() or mine.texts
    assert view(history).figure is not view(history).figure


@every_view
def test_a_run_without_generations_gets_a_sentence(view: Callable[..., Axes]) -> None:
    axes = view(History(), Figure())
    (sentence,) = (text.get_text() for text in axes.texts)
    assert sentence.endswith((".", "users."))


def test_every_life_has_a_bar_and_every_parent_a_line(eventful: History) -> None:
    axes, taxa = plots.lineages(eventful, Figure()), eventful.phylogeny.taxa
    assert any(len(one.ancestors) > 1 for one in taxa.values())
    assert len(axes.collections) == len(taxa)
    assert len(axes.lines) == sum(len(one.ancestors) for one in taxa.values())


@pytest.mark.parametrize("is_chain", [True, False])
def test_of_very_many_lives_some_are_shown(is_chain: bool) -> None:
    history = History()
    for number in range(1, 300):
        parents = (f"o{number - 1}" if is_chain else "o1",) if number > 1 else ()
        history.add(Born(number, f"o{number}", "gaussian", parents, f"weights-{number}", {}))
        history.add(Acted(number, f"o{number}", "a/b", ("x",), (1.0,), 1, 1, 1, 1, "practice"))
        history.add(GenerationEnded(number, number, 1, 0, 1.0, 1, 1, 0, 1, 1))
    axes = plots.lineages(history, Figure())
    assert len(axes.collections) == MOST_LIVES
    assert f"{MOST_LIVES} of 299 lives" in axes.texts[0].get_text()
    assert plots.muller(history, Figure()).collections


def test_shares_of_a_muller_plot_fill_the_whole(history: History) -> None:
    axes = plots.muller(history, Figure())
    tops = [path.vertices[:, 1].max() for area in axes.collections for path in area.get_paths()]
    assert max(tops) == pytest.approx(100)


def test_energy_flows_add_up_to_what_the_population_gained(history: History) -> None:
    columns, flows = Frames.of(history.generation, MOST_COLUMNS), energy_flows(history)
    gained = np.cumsum(np.sum(list(flows.values()), axis=0))
    held = [history.ends[edge - 1].energy_total for edge in columns.edges[1:]]
    assert gained.tolist() == held


def test_columns_hold_every_generation_once() -> None:
    for generations, most in ((0, 5), (1, 5), (5, 5), (6, 5), (61, 7)):
        columns = Frames(generations, max(1, -(-generations // most)))
        assert columns.count <= most
        assert columns.lengths.sum() == generations
        assert [columns.at(one) for one in range(generations)] == sorted(
            number for number, length in enumerate(columns.lengths) for _ in range(length)
        )


def test_bars_of_servers_are_those_who_answered(users: History) -> None:
    bars = servings_of(users)
    assert len({bar.id for bar in bars}) > 1
    for act in users.acts:
        serving = [bar for bar in bars if bar.place == act.habitat]
        answering = {bar.id for bar in serving if bar.begin <= act.generation <= bar.end}
        assert act.id in answering
    for user in {bar.place for bar in bars}:
        own = sorted((bar.begin, bar.end) for bar in bars if bar.place == user)
        assert all(one[1] <= other[0] for one, other in pairwise(own))
        assert own[-1][1] == users.generation


def test_heat_maps_show_every_measure_by_cell_and_by_user(history: History) -> None:
    for rows in ("cell", "user"):
        for measure in ("right", "price", "asked"):
            axes = plots.cells(history, Figure(), rows=rows, measure=measure)
            assert axes.collections or axes.texts
    with pytest.raises(ConfigError, match="expected 'cell' or 'user', got 'row'"):
        plots.cells(history, rows="row")
    with pytest.raises(ConfigError, match="expected one of right, price, asked, got 'wrong'"):
        plots.cells(history, measure="wrong")


def test_those_who_answered_most_have_the_first_colours(eventful: History) -> None:
    colours = colours_of(eventful)
    assert list(colours.values()) == list(VIEW_COLOURS)
    assert len(set(colours)) == len(VIEW_COLOURS)


def test_a_name_is_no_formula_and_hides_nothing() -> None:
    assert label("$x^2$") == r"\$x^2\$"
    assert label("a\x1b[2J\u202eb\n") == "a⟨U+001B⟩[2J⟨U+202E⟩b↵"
    assert len(label("x" * 500)) < 30


def test_figures_made_twice_are_the_same_bytes(users: History, tmp_path: Path) -> None:
    names = plots.save_figures(users, tmp_path / "one", changes=(25,))
    assert {name.rpartition(".")[2] for name in names} == {"png", "svg"}
    with mpl.style.context("dark_background"):
        assert plots.save_figures(users, tmp_path / "other", changes=(25,)) == names
        assert mpl.rcParams["axes.facecolor"] == "black"
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_wrong_forms_and_unwritable_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected some of png and svg, got gif"):
        plots.save_figures(History(), tmp_path, ("gif",))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        plots.save_figures(History(), tmp_path / "file", ("png",))


def test_the_command_line_and_runs_load_no_matplotlib() -> None:
    code = (
        "import sys, symbiont_ecology.cli, symbiont_ecology.run; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""What a log says of evolution strategies and of selection by exams, and times of phases."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seen import METHODS, lived_to_its_end, method_plan
from symbiont_ecology import plots
from symbiont_ecology.engine.run import resume
from symbiont_ecology.errors import RunError
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, Ascended, Born, Event, GenerationEnded, Retired, Scored
from symbiont_ecology.evoscope.page import page_record
from symbiont_ecology.history.ascents import ascents_of, looks_of
from symbiont_ecology.history.history import History, read_history
from symbiont_ecology.history.timings import read_timings
from symbiont_ecology.history.variants import (
    MOST_DRAWN,
    gains_of,
    has_trainings,
    lesser_lives,
    lives_of,
    said_genes,
    staying_of,
    variants_of,
)
from toy import ToyHost


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("methods")
    return {name: lived_to_its_end(folder / name, method_plan(name)) for name in METHODS}


def ended(generation: int) -> GenerationEnded:
    return GenerationEnded(generation, 1, 0, 0, 1.0, 1, 1, 0, 1, 1)


def told(*events: Event) -> History:
    """A history of a few events, without an economy."""
    history = History(has_economy=False)
    for event in events:
        history.add(event)
    return history


def born(generation: int, name: str, *parents: str, **genes: float) -> Born:
    operator = "mutation" if len(parents) == 1 else "crossover" if parents else "founder"
    return Born(generation, name, operator, parents, f"weights of {name}", genes)


def two_lives() -> History:
    """o1 stays, o2 leaves; of the children o3 is better and o4 worse, and o1 leaves."""
    return told(
        born(0, "o1", rank=1.0, rate=0.1),
        born(0, "o2", rank=2.0, rate=0.1),
        Acted(0, "o1", "a/b", ("x", "y"), (1.0, 0.0), 1, 1, 1, 1, "practice"),
        Scored(0, "o1", 0.5),
        Scored(0, "o2", 0.25),
        Retired(0, "o2", "eliminated", 1, 0),
        born(0, "o3", "o1", rank=4.0, rate=0.2),
        born(0, "o4", "o1", "o2", rank=4.0, rate=0.1),
        ended(0),
        Scored(1, "o3", 0.75),
        Scored(1, "o4", 0.375),
        Retired(1, "o1", "eliminated", 2, 0),
        Retired(1, "o4", "eliminated", 1, 0),
        ended(1),
    )


def test_a_step_is_told_with_its_mean_its_band_and_its_best() -> None:
    rewards = tuple(float(number) for number in range(11))
    history = told(
        born(0, "o1"), Ascended(0, "o1", rewards, 7.0, 0.25, 0.1, "w", noise=0.02), ended(0)
    )
    (step,) = ascents_of(history)
    assert (step.mean, step.low, step.high, step.best, step.members) == (5, 2, 8, 10, 11)
    assert (step.tokens, step.empty, step.step, step.noise) == (7.0, 0.25, 0.1, 0.02)


def test_steps_and_looks_are_those_of_the_log(folders: dict[str, Path]) -> None:
    history = read_history(folders["es"])
    events = list(read_events(folders["es"] / "events.jsonl"))
    steps = [event for event in events if isinstance(event, Ascended)]
    assert [one.mean for one in ascents_of(history)] == [np.mean(one.rewards) for one in steps]
    assert {one.noise for one in steps} == {METHODS["es"]["noise"]}
    looks = looks_of(history)
    assert [one.generation for one in looks] == [0, 4, 8, 12]
    assert len({one.host for one in looks}) == 1  # the same questions, and the host never changes
    assert history.is_alone
    assert not history.has_exams
    for name in ("genetic", "hyper"):
        assert not looks_of(read_history(folders[name]))


def test_the_ends_of_lives_rank_everybody_alive_and_say_who_stays() -> None:
    first, second = lives_of(two_lives())
    assert [one.id for one in first.ranking] == ["o1", "o2"]
    assert [one.id for one in second.ranking] == ["o3", "o1", "o4"]
    assert (first.survivors, second.survivors) == ({"o1"}, {"o3"})
    assert (first.generation, second.generation) == (0, 1)
    assert first.ranking[0].accuracy == 0.5
    assert np.isnan(second.ranking[0].accuracy)  # nobody asked it


def test_a_gain_is_that_over_the_better_parent_by_operator_and_by_changed_gene() -> None:
    gains = [(one.id, one.name, one.is_gene, one.amount) for one in gains_of(lives_of(two_lives()))]
    assert gains == [
        ("o3", "mutation", False, 0.25),
        ("o3", "rank", True, 0.25),
        ("o3", "rate", True, 0.25),
        ("o4", "crossover", False, -0.125),
    ]


def test_survival_counts_the_living_as_far_as_they_were_seen() -> None:
    found = [(one.exams, one.share, one.at_risk) for one in staying_of(lives_of(two_lives()))]
    assert found == [(1, 0.5, 4), (2, 0.0, 1)]
    assert staying_of([]) == []


@pytest.mark.parametrize("name", ["genetic", "hyper"])
def test_everybody_who_sat_an_exam_is_in_a_life(folders: dict[str, Path], name: str) -> None:
    history = read_history(folders[name])
    lives = lives_of(history)
    scores = {
        event.id: event.score
        for event in read_events(folders[name] / "events.jsonl")
        if isinstance(event, Scored)
    }
    assert {who: one.fitness for who, one in variants_of(lives).items()} == scores
    assert all(len(life.survivors) == 2 for life in lives)
    best = [life.ranking[0].fitness for life in lives]
    assert all(one <= other for one, other in pairwise(best))  # the elite stays
    assert has_trainings(history) == (name == "hyper")


def test_a_pedigree_of_many_leaves_out_the_dead_without_children() -> None:
    history = told(born(0, "o0"))
    for number in range(1, 2 * MOST_DRAWN):
        history.add(born(number, f"o{number}", "o0"))
        history.add(Scored(number, f"o{number}", 0.5))
        if number > 1:
            history.add(Retired(number, f"o{number}", "eliminated", 0, 0))
        history.add(ended(number))
    assert history.phylogeny.taxa.keys() - lesser_lives(history) == {"o0", "o1"}
    assert len(plots.lineages(history, Figure()).collections) == 2  # a bar each


def test_genes_are_told_as_people_read_them() -> None:
    genes = {"rank": 4.0, "alpha": 2.0, "dropout": 0.05, "learning_rate": 0.002, "targets": 1.0}
    said = {"rank": "4", "alpha": "8", "dropout": "0.05", "learning rate": "0.002"}
    assert said_genes(genes) == {**said, "modules": "q and v"}
    assert said_genes({"targets": 99.0}) == {"modules": "99"}  # a log may say anything
    assert said_genes({"sigma": 0.1}) == {"sigma": "0.1"}


def test_an_exam_of_somebody_unknown_is_one_line() -> None:
    with pytest.raises(RunError, match="Scored in generation 0 of 'zz'"):
        told(Scored(0, "zz", 1.0))


def test_energy_is_no_news_without_an_economy(folders: dict[str, Path]) -> None:
    history = read_history(folders["genetic"])
    assert not history.has_economy
    deaths = [one.text for one in history.chronicle.news if one.kind == "death"]
    assert deaths
    assert not any("ATP" in text for text in deaths)


def test_a_page_has_a_row_for_each_step_and_exam_and_a_long_one_has_means(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = page_record([folders["es"]])["runs"]
    assert [one["generation"] for one in record["ascents"]] == list(range(16))
    assert (record["lives"], record["gains"], record["staying"]) == ([], [], [])
    monkeypatch.setattr("symbiont_ecology.evoscope.record.MOST_FRAMES", 4)
    (coarse,) = page_record([folders["es"]])["runs"]
    assert [one["generation"] for one in coarse["ascents"]] == [3, 7, 11, 15]
    first = record["ascents"][:4]
    assert coarse["ascents"][0]["mean"] == pytest.approx(np.mean([one["mean"] for one in first]))
    assert coarse["ascents"][0]["best"] == max(one["best"] for one in first)


OF_METHOD: list[tuple[str, Callable[..., Axes]]] = [
    *(("es", view) for view in (plots.reward_band, plots.answer_lengths, plots.centre_looks)),
    ("es", plots.centre_steps),
    *(("genetic", view) for view in (plots.score_band, plots.mutation_sizes, plots.change_gains)),
    *(("hyper", view) for view in (plots.gene_map, plots.life_lines, plots.staying_curve)),
]


@pytest.mark.parametrize(("name", "view"), OF_METHOD, ids=lambda one: getattr(one, "__name__", one))
def test_a_view_of_a_method_draws_on_axes_and_says_a_sentence_without_data(
    folders: dict[str, Path], name: str, view: Callable[..., Axes]
) -> None:
    mpl.use("agg")
    history, mine = read_history(folders[name]), Figure().add_subplot()
    assert view(history, mine) is mine
    assert mine.has_data()
    (sentence,) = (text.get_text() for text in view(History(), Figure()).texts)
    assert sentence.endswith((".", "0."))


@pytest.mark.parametrize("name", METHODS)
def test_figures_of_a_method_are_those_that_suit_it(
    folders: dict[str, Path], name: str, tmp_path: Path
) -> None:
    history, timings = read_history(folders[name]), read_timings(folders[name])
    names = set(plots.save_figures(history, tmp_path, ("png",), timings=timings))
    own = {
        "es": {"rewards", "lengths", "steps", "looks"},
        "genetic": {"scores", "staying", "gains", "sigmas", "lineages"},
        "hyper": {"scores", "staying", "gains", "genes", "lives", "lineages"},
    }
    everywhere = {"curves", "cells", "asked", "phases"}
    beside = set() if name == "es" else {"archive", "ranks"}
    assert names == {f"{view}.png" for view in own[name] | everywhere | beside}


def test_phases_of_a_generation_are_timed_beside_the_log_and_add_up(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", method_plan("es", 4))
    timings = read_timings(folder)
    assert [one.generation for one in timings] == [0, 1, 2, 3]
    for one in timings:
        assert list(one.phases) == [
            "retire", "ask", "act", "learn", "remember", "settle", "tell", "save",
        ]  # fmt: skip
        assert sum(one.phases.values()) == pytest.approx(one.seconds, abs=0.002)
    axes = plots.phase_times(timings, Figure())
    assert len(axes.patches) == 8
    assert plots.phase_times([], Figure()).texts[0].get_text().endswith("phases.")


def test_a_resumed_run_has_one_timing_for_every_generation(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", method_plan("es", 3))
    with (folder / "timings.jsonl").open("a") as file:
        file.write(json.dumps({"generation": 3, "seconds": 9.0}) + "\n")  # an older version's
    resume(folder, overrides=["run.generations=5"], host=ToyHost())
    timings = read_timings(folder)
    assert [one.generation for one in timings] == [0, 1, 2, 3, 4]
    assert timings[3].seconds < 9
    (folder / "timings.jsonl").write_text('{"generation": 0, "phases": 3}\n')
    with pytest.raises(RunError, match=r"timings.jsonl line 1: expected generation, seconds"):
        read_timings(folder)

"""How runs, populations, evaluations and replies show themselves in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seen import HOSTILE, lived_to_its_end, users_plan, with_hostile_replies
from symbiont_ecology.evaluation.measure import difference
from symbiont_ecology.notebook import LONGEST_SHOWN, notebook_facts, notebook_table, spelt
from symbiont_ecology.run import Run
from symbiont_ecology.transcripts import read_transcripts
from toy import ToyHost

TAGS = {"div", "table", "thead", "tbody", "tr", "th", "td"}


class Reader(HTMLParser):
    """The texts of cells; whatever else than a table is in the page is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"style"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(shown: Any) -> list[str]:
    """The texts of what a notebook would show of an object."""
    reader = Reader()
    reader.feed(shown if isinstance(shown, str) else shown._repr_html_())
    assert not reader.open
    return reader.texts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = lived_to_its_end(tmp_path_factory.mktemp("users") / "run", users_plan())
    return Run.open(folder, host=ToyHost())


def test_a_table_shows_every_text_as_it_is() -> None:
    texts = read(notebook_table("a < b", ("x & y",), [("<i>",)], "'note'"))
    assert texts == ["a < b", "x & y", "<i>", "'note'"]
    assert read(notebook_facts("title", {"name": "value"})) == ["title", "name", "value"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_model_wrote_is_spelt_safely(text: str) -> None:
    shown = "".join(read(notebook_table("", (), [(text,)])))
    assert shown == spelt(text)
    assert shown.isprintable()
    assert not set(shown) & set("\x1b\x00\u202e\u200b")


def test_a_long_text_is_cut() -> None:
    assert spelt("x" * LONGEST_SHOWN) == "x" * LONGEST_SHOWN
    assert spelt("x" * 1000) == "x" * (LONGEST_SHOWN - 1) + "…"
    assert spelt("a\nb\tc") == "a↵b⇥c"


def test_replies_are_shown_as_texts(tmp_path: Path) -> None:
    folder = with_hostile_replies(lived_to_its_end(tmp_path / "run", users_plan(generations=2)))
    replies = read_transcripts(folder / "transcripts.jsonl")
    texts = read(replies)
    for text in HOSTILE:
        assert spelt(text.strip()) in texts


def test_a_run_and_its_population_say_what_they_are(run: Run) -> None:
    texts = read(run)
    assert "40 of 40" in texts
    assert "Complete." in texts
    texts = read(run.population)
    for organelle in run.population.values():
        assert organelle.id in texts
        assert f"Organelle {organelle.id}" in read(organelle)
    assert any(run.population[who].habitats for who in run.population)


def test_a_run_that_has_not_started_says_so(tmp_path: Path) -> None:
    run = Run.start(users_plan(), folder=tmp_path / "run", host=ToyHost())
    assert "Not started: iterate over it." in read(run)


def test_events_are_listed_by_kind(run: Run) -> None:
    texts = read(run.events)
    assert "Born" in texts
    assert str(len(run.events.Born)) in texts
    assert ", ".join(run.events.Served.columns) == "generation, servers"
    assert "generation, servers" in texts


def test_an_evaluation_says_what_is_right_by_family(run: Run) -> None:
    evaluation = run.evaluate(per_cell=4)
    texts = read(evaluation)
    assert "all" in texts
    assert f"{100 * evaluation.accuracy().estimate:.1f}" in texts
    assert "+0.0" in read(difference(evaluation, evaluation))

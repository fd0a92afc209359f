"""The page of runs without an economy: what it leaves out, and what each method has of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from said import Symbiont
from seen import METHODS, lived_to_its_end, method_plan
from symbiont_ecology.engine.run import resume
from symbiont_ecology.evoscope.page import page_html, page_record
from toy import ToyHost
from visits import chromium, has_ink, in_a_browser, opened, sync_api

WIDTHS = (1280, 390)
OF_METHOD = {
    "es": {"rewards", "looks", "guards", "steps"},
    "genetic": {"scores", "sigma", "gains", "staying", "tree"},
    "hyper": {"scores", "gains", "staying", "genes", "lives", "tree"},
}
"""Views that are a method's own, and that must be drawn."""
ABSENT = {"canvas", "servers", "muller", "energy", "trials"}
"""Views that say nothing without an economy and users."""


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each method."""
    folder = tmp_path_factory.mktemp("methods")
    return {name: lived_to_its_end(folder / name, method_plan(name)) for name in METHODS}


@pytest.fixture(scope="module")
def pages(methods: dict[str, Path]) -> dict[str, str]:
    found = {}
    for name, folder in methods.items():
        path = folder.parent / f"{name}.html"
        path.write_text(page_html(page_record([folder])))
        found[name] = path.as_uri()
    return found


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", METHODS)
def test_views_of_the_method_are_drawn_and_those_without_meaning_are_not_there(
    browser: sync_api.Browser, pages: dict[str, str], name: str, width: int
) -> None:
    with opened(browser, pages[name], width) as visit:
        cards = {
            card.get_attribute("id").removesuffix("-view"): card
            for card in visit.page.query_selector_all(".card")
            if card.is_visible()
        }
        others = set().union(*OF_METHOD.values()) - OF_METHOD[name]
        assert OF_METHOD[name] <= cards.keys()
        assert not cards.keys() & (ABSENT | others)
        for view, card in cards.items():
            text = card.inner_text().removeprefix(card.query_selector("h2").inner_text())
            assert has_ink(card) or (view not in OF_METHOD[name] and len(text) > 40), view
        assert "ATP" not in visit.text("main")
        wider = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, "the page is wider than the screen"
        assert visit.said == []


@in_a_browser
def test_scores_colour_the_pedigree_and_are_in_the_biography(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["genetic"]) as visit:
        page = visit.page
        assert page.input_value("#colours") == "score"
        best = page.evaluate("[...page.run.examined].sort((a, b) => b.score - a.score)[0]")
        colour = page.evaluate("id => page.run.colour(id, 'score')", best["id"])
        assert colour == "rgb(254,232,56)"  # the light end of the scale
        page.fill("#search", best["id"])
        assert f"{best['score']:.3f}, first exam" in visit.text("#biography-view dl")
        before = page.query_selector("#tree-view canvas").screenshot()
        page.select_option("#colours", "own")
        assert page.query_selector("#tree-view canvas").screenshot() != before
        assert visit.said == []


@in_a_browser
def test_a_click_on_a_variant_selects_it_and_genes_are_told_in_words(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["hyper"]) as visit:
        page = visit.page
        assert "with score" in visit.text("#biography-view dl")
        page.locator("#genes-view .plot").click(position={"x": 300, "y": 55})
        assert "organelle=" in page.url
        assert "modules" in visit.text("#biography-view dl")
        assert visit.said == []


@in_a_browser
def test_pages_of_several_methods_show_what_suits_the_run_that_is_chosen(
    browser: sync_api.Browser, methods: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "all.html"
    path.write_text(page_html(page_record([methods["es"], methods["hyper"]])))
    with opened(browser, path.as_uri()) as visit:
        page = visit.page
        assert page.is_visible("#rewards-view")
        assert not page.is_visible("#genes-view")
        page.select_option("#run", "1")
        assert not page.is_visible("#rewards-view")
        assert page.is_visible("#genes-view")
        assert visit.said == []


def test_figures_of_a_run_that_goes_on_are_replaced_in_place(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    folder = lived_to_its_end(tmp_path / "run", method_plan("es", 2))
    words = ("evoscope", folder, "--figures", tmp_path / "figures")
    assert symbiont(*words).code == 0
    first = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    resume(folder, overrides=["run.generations=4"], host=ToyHost())
    assert symbiont(*words).code == 0
    second = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert first.keys() == second.keys() >= {"rewards.png", "phases.svg"}
    assert first["rewards.png"] != second["rewards.png"]

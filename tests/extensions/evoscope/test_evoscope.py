"""The page on which runs are seen, in a real browser with no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs import resume
from seen import HOSTILE, METHODS, lived_to_its_end, served, users_plan
from symbiont_ecology.extensions.evoscope.page import page_html, page_record
from toy import ToyHost
from visits import chromium, has_ink, in_a_browser, opened, sync_api

WIDTHS = (1280, 390)
OF_METHOD = {
    "es": {"rewards", "looks", "guards", "steps"},
    "genetic": {"scores", "sigma", "tree"},
    "hyper": {"scores", "genes", "lives", "tree"},
}
"""Views that are a method's own, and that must be drawn."""
ABSENT = {"canvas", "servers", "muller", "energy", "trials"}
"""Views that say nothing without an economy and users."""
CUT = """() => [...document.querySelectorAll(".scroll, .plot canvas")]
  .filter(one => one.scrollHeight > one.clientHeight + 1
    || one.getBoundingClientRect().right > one.closest(".card").getBoundingClientRect().right)
  .map(one => one.closest(".card").id)"""
"""The cards in which something is cut."""


def soon(fact: str) -> str:
    """Whether that is so within six hundred frames; the page forbids to evaluate text by itself."""
    return f"""new Promise(done => {{
      let frames = 600;
      const look = () => {fact} || !frames-- ? done({fact}) : requestAnimationFrame(look);
      look();
    }})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(
    seen: dict[str, Path], methods: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The pages of each, and of two runs side by side, as addresses."""
    runs = {name: [folder] for name, folder in (seen | methods).items()}
    runs |= {"both": [seen["users"], seen["single"]], "all": [methods["es"], methods["hyper"]]}
    place, found = tmp_path_factory.mktemp("pages"), {}
    for name, folders in runs.items():
        path = place / f"{name}.html"
        path.write_text(page_html(page_record(folders)))
        found[name] = path.as_uri()
    return found


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["eventful", "users", "single", "begun", "both"])
def test_the_page_opens_offline_and_every_view_draws_or_is_left_out(
    browser: sync_api.Browser, pages: dict[str, str], name: str, width: int
) -> None:
    with opened(browser, pages[name], width) as visit:
        assert visit.asked == [pages[name]]
        assert visit.said == []
        cards = [one for one in visit.page.query_selector_all(".card") if one.is_visible()]
        least = {"single": 10, "begun": 3}  # an arm without an economy, and a run without a past
        assert len(cards) >= least.get(name, 11)
        for card in cards:
            title = card.query_selector("h2").inner_text()
            words = card.inner_text().removeprefix(title)
            assert has_ink(card) or len(words) > 40, f"{title} is empty"
        wider = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, "the page is wider than the screen"


@in_a_browser
def test_the_slider_the_keys_and_play_move_every_view(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"]) as visit:
        page = visit.page
        end = page.evaluate(PICTURES)
        page.fill("#slider", "3")
        assert "generation 3" in visit.text("#moment")
        assert "g=3" in page.evaluate("location.hash")
        early = page.evaluate(PICTURES)
        assert early["canvas-view"] != end["canvas-view"]
        assert early["energy-view"] != end["energy-view"]
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowRight")
        assert "generation 4" in visit.text("#moment")
        page.keyboard.press("End")
        assert "generation 39" in visit.text("#moment")
        page.keyboard.press("Home")
        assert "generation 0" in visit.text("#moment")
        page.keyboard.press("Space")
        sync_api.expect(page.locator("#moment")).to_have_text(
            re.compile("generation [1-9]"), timeout=30_000
        )
        page.keyboard.press("Space")
        assert page.evaluate("document.getElementById('play').textContent") == "▶"
        assert visit.said == []


PICTURES = """() => Object.fromEntries([...document.querySelectorAll(".card")].map(card =>
  [card.id, [...card.querySelectorAll("canvas")].map(one => one.toDataURL()).join()]))"""


@in_a_browser
def test_one_selection_shows_in_every_view_and_in_the_address(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"]) as visit:
        page, before = visit.page, visit.page.evaluate(PICTURES)
        page.fill("#search", "o3")
        assert "organelle=o3" in page.evaluate("location.hash")
        assert "o3" in visit.text("#biography-view h3")
        after = page.evaluate(PICTURES)
        for view in ("canvas-view", "servers-view", "muller-view", "tree-view"):
            assert after[view] != before[view], view
        page.fill("#search", "h1")
        assert "served by" in visit.text("#biography-view")
        page.keyboard.press("Escape")
        assert "The run" in visit.text("#biography-view")
        page.keyboard.press("j")
        first = page.evaluate("location.hash")
        page.keyboard.press("j")
        assert "organelle=" in first != page.evaluate("location.hash")
        page.reload()
        assert "ancestor" in visit.text("#biography-view") or "parents" in visit.text(
            "#biography-view"
        )
        box = page.query_selector("#canvas-view canvas").bounding_box()
        spot = page.evaluate("page.living.spots.find(one => one.selection.type === 'organelle')")
        view = page.evaluate("page.living.view")
        x, y = (
            (spot[axis] - view[side]) * view["zoom"] for axis, side in (("x", "left"), ("y", "top"))
        )
        page.mouse.click(box["x"] + x, box["y"] + y)
        assert f"organelle={spot['selection']['id']}" in page.evaluate("location.hash")
        assert visit.said == []


@in_a_browser
def test_a_printed_page_is_light_and_whole_and_has_no_controls(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["eventful"]) as visit:
        page = visit.page
        page.emulate_media(media="print", color_scheme="dark")
        page.set_viewport_size({"width": 720, "height": 1000})  # about A4
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        for control in ("footer", "#search", "#theme", "#tree-view .tools"):
            assert not page.is_visible(control)
        assert page.evaluate(CUT) == []
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@in_a_browser
def test_a_run_that_has_just_begun_says_so(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["begun"]) as visit:
        assert visit.text("#moment") == "no generation yet"
        assert "nobody was asked anything yet" in visit.text("#biography-view dl")
        assert visit.text("#headline") == "No generation is over yet."
        assert not visit.page.is_visible("#ranks-view")


@in_a_browser
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("users", r"\d+ users, \d+ groups? found\. Of the last answers \d+ % were accepted"),
        ("eventful", r"\d+ organelles alive, of \d+ ever born\. Of the last answers \d+ % were r"),
        ("genetic", r"\d+ sat an exam, the best score is [\d.]+\. Of the last answers"),
    ],
)
def test_a_page_begins_with_a_sentence_in_the_words_of_its_world(
    browser: sync_api.Browser, pages: dict[str, str], name: str, says: str
) -> None:
    with opened(browser, pages[name]) as visit:
        assert re.match(says, visit.text("#headline"))
        words, other = ("accepted", "right") if name == "users" else ("right", "accepted")
        for view in ("#curves-view .unit", "#biography-view dl"):
            assert words in visit.text(view)
            assert other not in visit.text(view)
        assert visit.page.is_visible("#archive-view") == (name != "users")


@in_a_browser
def test_replies_can_be_read_on_a_narrow_screen(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"], 390) as visit:
        for cell in visit.page.query_selector_all("#replies-view tr:nth-child(2) td"):
            box = cell.bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390


@in_a_browser
def test_what_a_model_wrote_shows_as_text_and_never_runs(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"]) as visit:
        shown = visit.text("#replies-view table")
        for text in HOSTILE[:3]:
            assert text in shown
        assert "turned ⟨U+202E⟩back⟨U+2066⟩ ⟨U+001B⟩[2J⟨U+0000⟩ ⟨U+200B⟩end" in shown
        assert visit.page.evaluate("window.pwned") is None
        visit.page.fill("#search", "<script>")
        assert "window.pwned" in visit.text("#replies-view table")
        assert visit.said == []


@in_a_browser
def test_a_view_can_be_saved_as_a_picture(
    browser: sync_api.Browser, pages: dict[str, str], tmp_path: Path
) -> None:
    with opened(browser, pages["eventful"]) as visit:
        for form, start_of in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
            for view in ("canvas", "tree"):
                with visit.page.expect_download() as waiting:
                    visit.page.click(f"#{view}-view button:text('{form}')")
                waiting.value.save_as(tmp_path / "picture")
                assert (tmp_path / "picture").read_bytes().startswith(start_of)
        assert visit.said == []


@in_a_browser
def test_the_live_page_grows_while_the_run_goes_on(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with served(lived_to_its_end(folder, users_plan(generations=2))) as port:
        url = f"http://127.0.0.1:{port}/"
        with opened(browser, url, offline=False) as visit:
            assert "generation 1" in visit.text("#moment")
            resume(folder, overrides=["run.generations=6"], host=ToyHost())
            sync_api.expect(visit.page.locator("#moment")).to_have_text("generation 5")
            sync_api.expect(visit.page.locator("#live")).to_have_text("● the run is complete")
            assert visit.page.evaluate("document.querySelector('header').contains(byName('live'))")
            assert set(visit.asked) == {url, f"{url}record.json"}
            assert visit.said == []


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
        assert "organelle=" in page.evaluate("location.hash")
        assert "modules" in visit.text("#biography-view dl")
        assert visit.said == []


@in_a_browser
def test_pages_of_several_methods_show_what_suits_the_run_that_is_chosen(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["all"]) as visit:
        page = visit.page
        assert page.is_visible("#rewards-view")
        assert not page.is_visible("#genes-view")
        page.select_option("#run", "1")
        assert not page.is_visible("#rewards-view")
        assert page.is_visible("#genes-view")
        assert visit.said == []

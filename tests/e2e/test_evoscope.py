"""The page on which runs are seen, in a real browser with no network."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pytest

from said import Symbiont
from seen import HOSTILE, eventful_plan, lived, users_plan, with_hostile_replies
from symbiont_ecology import Run
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evoscope.animation import Canvas
from symbiont_ecology.evoscope.live import live_server
from symbiont_ecology.evoscope.page import page_html, page_record
from symbiont_ecology.plots.palette import VIEW_COLOURS
from toy import ToyHost

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")
WIDTHS = (1280, 390)


@dataclass
class Visit:
    """A page that is open, and what it said and asked for."""

    page: sync_api.Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """What can be read there."""
        return str(self.page.inner_text(selector))


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: sync_api.Browser, url: str, width: int = 1280, *, offline: bool = True
) -> Iterator[Visit]:
    """A page in a fresh context; it must say nothing and ask for nothing but itself."""
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, offline=offline)
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.said.append(message.text))
    visit.page.on("pageerror", lambda error: visit.said.append(str(error)))
    visit.page.on("request", lambda request: visit.asked.append(request.url))
    visit.page.goto(url)
    visit.page.wait_for_selector("#biography-view h3")
    yield visit
    context.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by what is to be seen in them."""
    folder = tmp_path_factory.mktemp("runs")
    found = {
        "eventful": lived(folder / "eventful", eventful_plan()),
        "users": with_hostile_replies(lived(folder / "users", users_plan())),
        "single": lived(folder / "single", users_plan({"kind": "single"})),
        "begun": lived(folder / "begun", users_plan(generations=0)),
    }
    (folder / "family.csv").write_text(
        "id,ancestor_list,origin_time,destruction_time\n"
        '1,[NONE],0,inf\n2,[1],1,3.5\n3,"[1,2]",3,inf\n'
    )
    return {**found, "phylogeny": folder / "family.csv"}


@pytest.fixture(scope="module")
def pages(runs: dict[str, Path]) -> dict[str, str]:
    """The page of each, and one of two arms side by side, as addresses."""
    found = {}
    for name, folder in runs.items():
        if name != "phylogeny":
            path = folder.parent / f"{name}.html"
            path.write_text(page_html(page_record([folder])))
            found[name] = path.as_uri()
    path = runs["users"].parent / "both.html"
    path.write_text(page_html(page_record([runs["users"], runs["single"]])))
    return {**found, "both": path.as_uri()}


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["eventful", "users", "single", "begun", "both"])
def test_the_page_opens_offline_and_every_view_draws_or_says_why_not(
    browser: sync_api.Browser, pages: dict[str, str], name: str, width: int
) -> None:
    with opened(browser, pages[name], width) as visit:
        assert visit.asked == [pages[name]]
        assert visit.said == []
        for card in visit.page.query_selector_all(".card"):
            title = card.query_selector("h2").inner_text()
            canvases = [one for one in card.query_selector_all("canvas") if one.is_visible()]
            has_ink = any(one.evaluate(HAS_INK) for one in canvases)
            words = card.inner_text().removeprefix(title)
            assert has_ink or len(words) > 40, f"{title} is empty"
        wider = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, "the page is wider than the screen"


HAS_INK = """canvas => {
  const pen = canvas.getContext("2d");
  return pen.getImageData(0, 0, canvas.width, canvas.height).data.some(byte => byte)
}"""


@in_a_browser
def test_the_slider_the_keys_and_play_move_every_view(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"]) as visit:
        page = visit.page
        seen = {name: page.evaluate(PICTURES) for name in ("end",)}
        page.fill("#slider", "3")
        assert "generation 3" in visit.text("#moment")
        assert "g=3" in page.url
        early = page.evaluate(PICTURES)
        assert early["canvas-view"] != seen["end"]["canvas-view"]
        assert early["energy-view"] != seen["end"]["energy-view"]
        assert early["archive-view"] != seen["end"]["archive-view"]
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowRight")
        assert "generation 4" in visit.text("#moment")
        page.keyboard.press("End")
        assert "generation 39" in visit.text("#moment")
        page.keyboard.press("Home")
        assert "generation 0" in visit.text("#moment")
        page.keyboard.press("Space")
        sync_api.expect(page.locator("#moment")).to_have_text(re.compile("generation [1-9]"))
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
        assert "organelle=o3" in page.url
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
        assert f"organelle={spot['selection']['id']}" in page.url
        assert visit.said == []


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
def test_a_page_from_a_phylogeny_shows_its_tree(
    browser: sync_api.Browser, runs: dict[str, Path], tmp_path: Path, symbiont: Symbiont
) -> None:
    said = symbiont("evoscope", runs["phylogeny"], "--out", tmp_path / "tree.html")
    assert "tree.html" in said.out
    with opened(browser, (tmp_path / "tree.html").as_uri()) as visit:
        assert visit.page.query_selector("#tree-view canvas").evaluate(HAS_INK)
        visit.page.fill("#search", "3")
        assert "1 2" in " ".join(visit.text("#biography-view dl").split())
        assert visit.said == []


@in_a_browser
def test_many_lives_of_a_phylogeny_leave_some_out_and_say_so(
    browser: sync_api.Browser, tmp_path: Path, symbiont: Symbiont
) -> None:
    rows = [f'{n},"[{n - 1},{n - 1}]"' if n else "0,[NONE]" for n in range(6000)]
    (tmp_path / "chain.csv").write_text("\n".join(["id,ancestor_list", *rows]))
    symbiont("evoscope", tmp_path / "chain.csv", "--out", tmp_path / "chain.html")
    with opened(browser, (tmp_path / "chain.html").as_uri()) as visit:
        assert "400 of 6000 lives" in visit.text("#left-out")
        assert visit.page.evaluate("inOrder(page.run).length") == 400
        visit.page.fill("#search", "5999")
        assert visit.said == []


@in_a_browser
def test_the_slider_keeps_its_generation_when_a_step_gets_wider(
    browser: sync_api.Browser, pages: dict[str, str]
) -> None:
    with opened(browser, pages["users"]) as visit:
        visit.page.fill("#slider", "10")
        visit.page.evaluate(WIDER)
        assert visit.page.evaluate("page.run.generation(page.frame)") == 11


WIDER = """() => {
  const record = JSON.parse(document.getElementById("record").textContent), run = record.runs[0];
  run.frames = { width: 2, ends: run.frames.ends.filter((_, place) => place % 2) };
  page.take(record);
}"""


@in_a_browser
def test_the_live_page_grows_while_the_run_goes_on(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with served(lived(folder, users_plan(generations=2))) as port:
        url = f"http://127.0.0.1:{port}/"
        with opened(browser, url, offline=False) as visit:
            assert "generation 1" in visit.text("#moment")
            resume(folder, overrides=["run.generations=6"], host=ToyHost())
            sync_api.expect(visit.page.locator("#moment")).to_have_text("generation 5")
            assert set(visit.asked) == {url, f"{url}record.json"}
            assert visit.said == []


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a live server, which ends with the block."""
    server = live_server([folder])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_the_live_server_answers_for_its_own_name_page_and_record_alone(
    runs: dict[str, Path],
) -> None:
    with served(runs["users"]) as port:

        def asked(method: str, path: str, **headers: str) -> http.client.HTTPResponse:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            line.request(method, path, headers=headers)
            return line.getresponse()

        assert asked("GET", "/").status == 200
        record = asked("GET", "/record.json")
        assert json.loads(record.read())["runs"][0]["name"] == "users"
        again = {"If-None-Match": record.headers["ETag"]}
        assert asked("GET", "/record.json", **again).status == 304
        assert asked("HEAD", "/record.json").read() == b""
        for name in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
            assert asked("GET", "/", Host=name).status == 421
        for path in ("/config.yaml", "/../config.yaml", "//etc/passwd", "/state.json", "/%2e%2e/"):
            assert asked("GET", path).status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert asked(method, "/").status == 501
        assert "access-control-allow-origin" not in {
            name.lower() for name in asked("GET", "/record.json").headers
        }


def test_a_log_that_is_rewound_is_read_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lived(folder, users_plan(generations=4))
    log = folder / "events.jsonl"
    with served(folder) as port:

        def generations() -> int:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            line.request("GET", "/record.json")
            found = json.loads(line.getresponse().read())["runs"][0]["generations"]
            return int(found)

        assert generations() == 4
        whole = log.read_bytes()
        log.write_bytes(whole[: len(whole) // 2])
        assert generations() < 4
        log.write_bytes(whole)
        assert generations() == 4


def test_a_page_made_twice_is_the_same(symbiont: Symbiont, runs: dict[str, Path]) -> None:
    out = runs["eventful"].parent
    for name in ("one.html", "two.html"):
        symbiont("evoscope", runs["eventful"], "--out", out / name)
    assert (out / "one.html").read_bytes() == (out / "two.html").read_bytes()


def test_what_is_no_run_and_no_phylogeny_is_one_line(
    symbiont: Symbiont, tmp_path: Path, runs: dict[str, Path]
) -> None:
    (tmp_path / "other.csv").write_text("name,age\nx,1\n")
    for words, error in (
        ([tmp_path / "nowhere"], "no run in"),
        ([tmp_path / "other.csv"], "expected the columns id and ancestor_list"),
        ([runs["users"], runs["phylogeny"]], "got both"),
        ([runs["users"], "--animate", tmp_path / "film.avi"], ".gif or .mp4"),
        ([runs["begun"], "--animate", tmp_path / "film.gif"], "nothing to film"),
    ):
        assert error in symbiont("evoscope", *words).error


def test_a_port_that_is_taken_is_one_line(runs: dict[str, Path]) -> None:
    with served(runs["users"]) as port, pytest.raises(ConfigError, match="take another one"):
        live_server([runs["users"]], port)
    with pytest.raises(ConfigError, match="expected 0 to 65535"):
        live_server([runs["users"]], 70_000)


def test_a_live_run_that_cannot_be_read_for_a_while_is_read_when_it_can_be(tmp_path: Path) -> None:
    folder = lived(tmp_path / "run", users_plan(generations=3))
    replies = folder / "transcripts.jsonl"
    whole = replies.read_bytes()
    with served(folder) as port:

        def asked() -> http.client.HTTPResponse:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            line.request("GET", "/record.json")
            return line.getresponse()

        replies.write_bytes(b"nonsense\n")
        broken = asked()
        assert broken.status == 503
        assert b"transcripts" in broken.read()
        replies.write_bytes(whole)
        assert json.loads(asked().read())["runs"][0]["generations"] == 3


def test_the_canvas_can_be_filmed(
    symbiont: Symbiont, runs: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("one.gif", "two.gif"):
        film = ["--animate", tmp_path / name, "--out", tmp_path / "page.html"]
        symbiont("evoscope", runs["users"], *film)
    assert (tmp_path / "one.gif").read_bytes() == (tmp_path / "two.gif").read_bytes()
    assert (tmp_path / "one.gif").read_bytes().startswith(b"GIF89a")


def test_figures_of_every_view_can_be_written_and_have_the_colours_of_the_page(
    symbiont: Symbiont, runs: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        places = ["--figures", tmp_path / name, "--out", tmp_path / "page.html"]
        symbiont("evoscope", runs["eventful"], *places)
    made = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert {"muller.svg", "lineages.png", "energy.svg", "trials.png"} <= set(made)
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    script = (files("symbiont_ecology.evoscope") / "assets" / "run.js").read_text("utf-8")
    assert all(colour in script for colour in VIEW_COLOURS)


def test_the_charting_library_is_the_one_that_was_published() -> None:
    vendor = files("symbiont_ecology.evoscope") / "assets" / "vendor"
    digest = hashlib.sha256((vendor / "echarts.min.js").read_bytes()).hexdigest()
    assert digest in (vendor / "README.md").read_text("utf-8")


def test_a_run_that_has_not_begun_can_be_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(users_plan(generations=0), folder, host=ToyHost())
    (folder / "events.jsonl").unlink()
    (folder / "state.json").unlink()
    with served(folder) as port:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", "/")
        assert line.getresponse().status == 200


def test_the_queries_of_the_page_about_numbers_give_what_the_page_shows(
    runs: dict[str, Path],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evoscope.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    queries = {line[0]: line[1].strip("`") for line in lines if line[1].startswith("`e.")}
    (record,) = page_record([runs["users"]])["runs"]
    view, acts, books = Canvas(record), record["acts"], record["books"]
    who, cell, user, g = "o2", acts["cells"][0], acts["habitats"][0], 20
    number = [one["id"] for one in record["organelles"]].index(who)
    habitat = [place == 0 for place in acts["habitat"]]

    def total(column: str, *chosen: list[bool]) -> float:
        rows = zip(acts[column], *chosen, strict=True)
        return float(sum(row[0] for row in rows if all(row[1:])))

    is_his = [one == number for one in acts["who"]]
    book = [one == number for one in books["who"]]
    shown = {
        "alive at g": len(view.bubbles(g)),
        "right answers of a generation": record["curves"]["right"][g],
        "right answers of an organelle in a cell": total(
            "right", is_his, [one == 0 for one in acts["cell"]]
        ),
        "energy of an organelle at g, if nobody was born of it since the books": view.balance(
            number, g
        ),
        "earned by an organelle": sum(
            value for value, is_own in zip(books["revenue"], book, strict=True) if is_own
        ),
        "spent on compute": sum(
            value for value, is_own in zip(books["cost"], book, strict=True) if is_own
        ),
        "rank at birth": record["organelles"][number]["ranks"][0][1],
        "born in": record["organelles"][number]["born"],
        "wins of trials": sum(trial["wins"] for trial in record["trials"]),
        "answers to a user": total("asked", habitat),
        "who answered a user last": [
            one["id"] for one in record["servings"] if one["habitat"] == user
        ][-1],
    }
    names = {"e": Run.open(runs["users"]).events, "len": len, "sum": sum}
    places = {"who": who, "cell": cell, "user": user, "g": g, "map": map}
    assert queries.keys() == shown.keys()
    for name, value in shown.items():
        assert eval(queries[name], {**names, **places}) == value, name  # our own page

"""Evoscope without a browser: the live server, the command and its files, the numbers of a page."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
from importlib.resources import files
from pathlib import Path

import pytest

from said import Symbiont
from seen import lived_to_its_end, served, users_plan
from symbiont_ecology import Run
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evoscope.animation import Canvas
from symbiont_ecology.evoscope.live import live_server
from symbiont_ecology.evoscope.page import page_record
from symbiont_ecology.plots.palette import VIEW_COLOURS


def test_the_live_server_answers_for_its_own_name_page_and_record_alone(
    seen: dict[str, Path],
) -> None:
    with served(seen["users"]) as port:

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
    lived_to_its_end(folder, users_plan(generations=4))
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


def test_a_page_made_twice_is_the_same(symbiont: Symbiont, seen: dict[str, Path]) -> None:
    out = seen["eventful"].parent
    for name in ("one.html", "two.html"):
        symbiont("evoscope", seen["eventful"], "--out", out / name)
    assert (out / "one.html").read_bytes() == (out / "two.html").read_bytes()


def test_what_is_no_run_and_no_phylogeny_is_one_line(
    symbiont: Symbiont, tmp_path: Path, seen: dict[str, Path]
) -> None:
    (tmp_path / "other.csv").write_text("name,age\nx,1\n")
    for words, error in (
        ([tmp_path / "nowhere"], "no run in"),
        ([tmp_path / "other.csv"], "expected the columns id and ancestor_list"),
        ([seen["users"], seen["phylogeny"]], "got both"),
        ([seen["users"], "--animate", tmp_path / "film.avi"], ".gif or .mp4"),
        ([seen["begun"], "--animate", tmp_path / "film.gif"], "nothing to film"),
        ([seen["users"], seen["single"], "--animate", "x.gif"], "expected one run, got 2"),
        *(
            ([seen["phylogeny"], *option], "family.csv is none")
            for option in (["--figures", tmp_path], ["--beside-host"], ["--live"])
        ),
    ):
        assert error in symbiont("evoscope", *words).error


def test_a_port_that_is_taken_is_one_line(seen: dict[str, Path]) -> None:
    with served(seen["users"]) as port, pytest.raises(ConfigError, match="take another one"):
        live_server([seen["users"]], port)
    with pytest.raises(ConfigError, match="expected 0 to 65535"):
        live_server([seen["users"]], 70_000)


def test_a_live_run_that_cannot_be_read_for_a_while_is_read_when_it_can_be(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=3))
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


def test_a_run_that_ends_between_two_looks_is_seen_to_have_ended(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=3))
    state, timings = (folder / name for name in ("state.json", "timings.jsonl"))
    last = state.read_bytes(), timings.read_bytes()
    state.write_bytes((folder / "state.previous.json").read_bytes())
    timings.write_bytes(b"".join(last[1].splitlines(keepends=True)[:-1]))
    with served(folder) as port:

        def is_complete() -> bool:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            line.request("GET", "/record.json")
            return bool(json.loads(line.getresponse().read())["runs"][0]["isComplete"])

        assert not is_complete()
        state.write_bytes(last[0])
        timings.write_bytes(last[1])
        assert is_complete()


def test_a_film_that_fails_leaves_the_one_that_was_there(
    symbiont: Symbiont, seen: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film, page = tmp_path / "film.gif", ["--out", tmp_path / "page.html"]
    film.write_bytes(b"an earlier one")

    def full(image: object, path: str, **_: object) -> None:
        """The disk is, in the midst of it."""
        Path(path).write_bytes(b"half a film")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("PIL.Image.Image.save", full)
    said = symbiont("evoscope", seen["users"], "--animate", film, *page)
    assert said.error == f"cannot write {film}: No space left on device"
    assert film.read_bytes() == b"an earlier one"


def test_the_canvas_can_be_filmed(symbiont: Symbiont, tmp_path: Path) -> None:
    run = lived_to_its_end(tmp_path / "run", users_plan(generations=8, drift_at=5))
    for name in ("one.gif", "two.gif"):
        film = ["--animate", tmp_path / name, "--out", tmp_path / "page.html"]
        symbiont("evoscope", run, *film)
    assert (tmp_path / "one.gif").read_bytes() == (tmp_path / "two.gif").read_bytes()
    assert (tmp_path / "one.gif").read_bytes().startswith(b"GIF89a")


def test_figures_of_every_view_can_be_written_and_have_the_colours_of_the_page(
    symbiont: Symbiont, seen: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        places = ["--figures", tmp_path / name, "--out", tmp_path / "page.html"]
        symbiont("evoscope", seen["eventful"], *places)
    made = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert {"muller.svg", "lineages.png", "energy.svg", "trials.png"} <= set(made)
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    script = (files("symbiont_ecology.evoscope") / "assets" / "run.js").read_text("utf-8")
    assert all(colour in script for colour in VIEW_COLOURS)


def test_runs_whose_folders_have_one_name_have_folders_of_figures_of_their_own(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    runs = [
        lived_to_its_end(tmp_path / place, users_plan(generations=generations))
        for generations, place in enumerate(("a/ecology", "b/ecology", "single"), 3)
    ]
    figures = tmp_path / "figures"
    said = symbiont("evoscope", *runs, "--figures", figures, "--out", tmp_path / "page.html")
    targets = [figures / run.relative_to(tmp_path) for run in runs]
    assert all(f" in {target}\n" in said.out for target in targets)
    alone = tmp_path / "alone"
    symbiont("evoscope", runs[1], "--figures", alone, "--out", tmp_path / "page.html")
    same = [(target / "curves.svg").read_bytes() for target in targets]
    assert (alone / "curves.svg").read_bytes() == same[1] not in (same[0], same[2])


def test_the_charting_library_is_the_one_that_was_published() -> None:
    vendor = files("symbiont_ecology.evoscope") / "assets" / "vendor"
    digest = hashlib.sha256((vendor / "echarts.min.js").read_bytes()).hexdigest()
    assert digest in (vendor / "README.md").read_text("utf-8")


def test_a_run_that_has_not_begun_can_be_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lived_to_its_end(folder, users_plan(generations=0))
    (folder / "events.jsonl").unlink()
    (folder / "state.json").unlink()
    with served(folder) as port:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", "/")
        assert line.getresponse().status == 200


def test_the_queries_of_the_page_about_numbers_give_what_the_page_shows(
    seen: dict[str, Path],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evoscope.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    queries = {line[0]: line[1].strip("`") for line in lines if line[1].startswith("`e.")}
    (record,) = page_record([seen["users"]])["runs"]
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
        "energy of an organelle at g, if it had no child in g": view.balance(number, g),
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
    names = {"e": Run.open(seen["users"]).events, "len": len, "sum": sum}
    places = {"who": who, "cell": cell, "user": user, "g": g, "map": map}
    assert queries.keys() == shown.keys()
    for name, value in shown.items():
        assert eval(queries[name], {**names, **places}) == value, name  # our own page

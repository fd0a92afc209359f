"""Evoscope without a browser: the live server, the command and its files, the numbers of a page."""

from __future__ import annotations

import hashlib
import http.client
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from said import Symbiont
from seen import lived_to_its_end, served, users_plan
from symbiont_ecology import Run
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.extensions.evoscope.page import ASSETS, live_server, page_record
from symbiont_ecology.extensions.evoscope.palette import VIEW_COLOURS


def asked(port: int, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    line.request(method, path, headers=headers)
    return line.getresponse()


def record_at(port: int) -> dict[str, Any]:
    """What a live server says of its run."""
    found: dict[str, Any] = json.loads(asked(port, "GET", "/record.json").read())["runs"][0]
    return found


def test_the_live_server_answers_for_its_own_name_page_and_record_alone(
    seen: dict[str, Path],
) -> None:
    with served(seen["users"]) as port:
        assert asked(port, "GET", "/").status == 200
        record = asked(port, "GET", "/record.json")
        assert json.loads(record.read())["runs"][0]["name"] == "users"
        again = {"If-None-Match": record.headers["ETag"]}
        assert asked(port, "GET", "/record.json", **again).status == 304
        assert asked(port, "HEAD", "/record.json").read() == b""
        for name in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
            assert asked(port, "GET", "/", Host=name).status == 421
        for path in ("/config.yaml", "/../config.yaml", "//etc/passwd", "/state.json", "/%2e%2e/"):
            assert asked(port, "GET", path).status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert asked(port, method, "/").status == 501
        names = {name.lower() for name in asked(port, "GET", "/record.json").headers}
        assert "access-control-allow-origin" not in names
        with pytest.raises(ConfigError, match="take another one"):
            live_server([seen["users"]], port)
    with pytest.raises(ConfigError, match="expected 0 to 65535"):
        live_server([seen["users"]], 70_000)


def test_a_log_that_is_rewound_is_read_anew(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=4))
    log = folder / "events.jsonl"
    with served(folder) as port:
        assert record_at(port)["generations"] == 4
        whole = log.read_bytes()
        log.write_bytes(whole[: len(whole) // 2])
        assert record_at(port)["generations"] < 4
        log.write_bytes(whole)
        assert record_at(port)["generations"] == 4


def test_a_live_run_that_cannot_be_read_for_a_while_is_read_when_it_can_be(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=3))
    replies = folder / "transcripts.jsonl"
    whole = replies.read_bytes()
    with served(folder) as port:
        replies.write_bytes(b"nonsense\n")
        broken = asked(port, "GET", "/record.json")
        assert broken.status == 503
        assert b"transcripts" in broken.read()
        replies.write_bytes(whole)
        assert record_at(port)["generations"] == 3


def test_a_run_that_ends_between_two_looks_is_seen_to_have_ended(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=3))
    state, timings = (folder / name for name in ("state.json", "timings.jsonl"))
    last = state.read_bytes(), timings.read_bytes()
    state.write_bytes((folder / "state.previous.json").read_bytes())
    timings.write_bytes(b"".join(last[1].splitlines(keepends=True)[:-1]))
    with served(folder) as port:
        assert not record_at(port)["isComplete"]
        state.write_bytes(last[0])
        timings.write_bytes(last[1])
        assert record_at(port)["isComplete"]


def test_a_run_that_has_not_begun_can_be_followed(tmp_path: Path) -> None:
    folder = lived_to_its_end(tmp_path / "run", users_plan(generations=0))
    (folder / "events.jsonl").unlink()
    (folder / "state.json").unlink()
    with served(folder) as port:
        assert asked(port, "GET", "/").status == 200


def test_a_page_made_twice_is_the_same_and_figures_come_with_it(
    symbiont: Symbiont, seen: dict[str, Path], tmp_path: Path
) -> None:
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    for page in pages:
        words = ("--out", page, "--figures", tmp_path / page.stem)
        assert symbiont("evoscope", seen["eventful"], *words).code == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert {path.name for path in (tmp_path / "one").iterdir()} >= {"curves.svg", "lineages.png"}


def test_what_cannot_be_shown_is_one_line(
    symbiont: Symbiont, tmp_path: Path, seen: dict[str, Path]
) -> None:
    for words, error in (
        ([tmp_path / "nowhere"], "no run in"),
        ([seen["users"], seen["single"], "--figures", tmp_path], "expected one run, got 2"),
        ([seen["begun"], "--figures", tmp_path], "nothing to draw"),
        ([seen["users"], "--live", "--figures", tmp_path], "writes no file"),
    ):
        assert error in symbiont("evoscope", *words).error


def test_the_page_has_the_colours_of_figures_and_the_charting_library_that_was_published() -> None:
    script = (ASSETS / "run.js").read_text("utf-8")
    assert all(colour in script for colour in VIEW_COLOURS)
    vendor = files("symbiont_ecology.extensions.evoscope") / "assets" / "vendor"
    digest = hashlib.sha256((vendor / "echarts.min.js").read_bytes()).hexdigest()
    assert digest in (vendor / "README.md").read_text("utf-8")


def test_the_queries_of_the_page_about_numbers_give_what_the_page_shows(
    seen: dict[str, Path],
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "evoscope.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    queries = {line[0]: line[1].strip("`") for line in lines if line[1].startswith("`e.")}
    (record,) = page_record([seen["users"]])["runs"]
    acts, books, curves = record["acts"], record["books"], record["curves"]
    who, cell, user, g = "o2", acts["cells"][0], acts["users"][0], 20
    number = [one["id"] for one in record["organelles"]].index(who)

    def total(table: dict[str, Any], column: str, **wanted: int) -> float:
        rows = zip(table[column], *(table[name] for name in wanted), strict=True)
        return float(sum(row[0] for row in rows if row[1:] == tuple(wanted.values())))

    balances = [
        balance
        for own, frame, balance in zip(books["who"], books["frame"], books["balance"], strict=True)
        if own == number and frame <= g
    ]
    asked_by = [one["id"] for one in record["servings"] if one["user"] == user]
    shown = {
        "alive at g": curves["population"][g],
        "right answers of a generation": curves["right"][g],
        "right answers of an organelle in a cell": total(acts, "right", who=number, cell=0),
        "energy of an organelle at g, if it had no child in g": balances[-1],
        "earned by an organelle": total(books, "revenue", who=number),
        "spent on compute": total(books, "cost", who=number),
        "rank at birth": record["organelles"][number]["ranks"][0][1],
        "born in": record["organelles"][number]["born"],
        "wins of trials": sum(trial["wins"] for trial in record["trials"]),
        "answers to a user": total(acts, "asked", user=0),
        "who answered a user last": asked_by[-1],
    }
    names = {"e": Run.open(seen["users"]).events, "len": len, "sum": sum}
    places = {"who": who, "cell": cell, "user": user, "g": g, "map": map}
    assert queries.keys() == shown.keys()
    for name, value in shown.items():
        assert eval(queries[name], {**names, **places}) == value, name  # our own page

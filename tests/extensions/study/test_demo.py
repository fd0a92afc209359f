"""``demo``: an ecology and three controls side by side, a table and a picture; it can be
interrupted."""

from __future__ import annotations

import json
from pathlib import Path

from killing import interrupted
from said import Symbiont
from symbiont_ecology.run.config import load_config

SHORT = ("run.generations=8", "tasks.users.arrivals=3", "tasks.users.drift_at=6")
ARMS = {"told", "ecology", "per_user", "single"}


def test_the_demo_compares_four_arms_and_goes_on(symbiont: Symbiont, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    words = ("demo", *SHORT, "--out", folder, "--quiet")
    said = symbiont(*words)
    assert said.code == 0, said.err
    first = json.loads((folder / "summary.json").read_text())
    assert set(first["arms"]) == ARMS
    for arm in first["arms"].values():
        assert 0 < arm["acceptance"] < 1
    assert first["arms"]["told"]["adapters"] == 4
    assert first["arms"]["single"]["serving"] == 1
    assert sum(sum(kinds.values()) for kinds in first["served"].values()) == 24
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    for words_shown in ("answers accepted, %", "who serves whom", "learn-from logs/thumbs.jsonl"):
        assert words_shown in said.out
    again = symbiont(*words)
    assert again.code == 0, again.err
    assert json.loads((folder / "summary.json").read_text()) == first
    assert "another config" in symbiont(*words, "seed=1").error


def test_an_interrupted_demo_says_how_it_goes_on(tmp_path: Path) -> None:
    words = ["demo", "run.generations=100000", "--out", tmp_path / "demo"]
    err = interrupted(words, is_in_background=True)
    assert f"go on with: symbiont {' '.join(map(str, words))}\n" in err


def test_arms_of_the_demo_differ_in_their_strategy_alone() -> None:
    main = load_config("demo").model_dump()
    for arm in ARMS - {"ecology"}:
        control = load_config(f"demo_{arm}").model_dump()
        assert {**main, "strategy": None} == {**control, "strategy": None}
        assert control["strategy"] == {
            "kind": arm,
            "learning_rate": main["strategy"]["learning_rate"],
        }


def test_a_control_that_fails_is_named(symbiont: Symbiont, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    (folder / "told").mkdir(parents=True)
    (folder / "told" / "state.json").write_text("{}")
    words = ("run.generations=2", "tasks.users.arrivals=1", "tasks.users.drift_at=1")
    said = symbiont("demo", *words, "--out", folder, "--quiet")
    assert said.code == 1
    assert "the run of 'told' failed: " in said.error
    assert str(folder / "told.log") in said.error

"""``demo-real`` on a tiny host: everything that it does on SmolLM2, in seconds."""

from __future__ import annotations

import json
from pathlib import Path

from said import Symbiont
from symbiont_ecology.run.config import load_config

SYSTEMS = ["the model", "with 4 examples", "one adapter", "the ecology"]


def test_the_demo_on_a_real_model_compares_and_goes_on(
    symbiont: Symbiont, host: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    small = (f"host.model={host}", "host.rank=2", "tasks.arrivals=[4.0e+9, 6.0e+9, 8.0e+9]")
    words = ("demo-real", *small, "run.train_flops=1.0e+10", "--per-cell", 2, "--out", folder)
    said = symbiont(*words, "--quiet")
    assert said.code == 0, said.err
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary["accuracy"]) == SYSTEMS
    assert {one["questions"] for one in summary["accuracy"].values()} == {8}
    digests = {name: one["questions_digest"] for name, one in summary["accuracy"].items()}
    assert digests["the ecology"] == digests["one adapter"] != digests["with 4 examples"]
    for shown in ("right answers to held-out questions", "evoscope"):
        assert shown in said.out
    again = symbiont(*words, "seed=0", "--quiet")
    assert "(seed 0)" in again.out
    assert again.code == 0, again.err
    assert json.loads((folder / "summary.json").read_text()) == summary


def test_arms_of_the_demo_on_a_real_model_differ_in_their_strategy_alone() -> None:
    main, control = (load_config(name).model_dump() for name in ("demo_real", "demo_real_single"))
    assert {**main, "strategy": None} == {**control, "strategy": None}
    kept = {key: value for key, value in main["strategy"].items() if key != "mechanisms"}
    assert {**kept, "kind": "single"} == control["strategy"]

"""SFT from the command line: matched with a run, swept, killed, resumed, exported, and asked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from killing import kill_when
from said import Symbiont
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.extensions.study import suite
from symbiont_ecology.extensions.study.sft import BUDGET_KEYS, spent_by

ALONE = ("--workers", "1")
"""A worker takes seconds to begin."""


@pytest.fixture(scope="module")
def lived(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The complete run, for this file alone: it is evaluated."""
    return Path(shutil.copytree(lived, tmp_path_factory.mktemp("lived") / "run"))


def swept(folder: Path) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = json.loads((folder / "sft.json").read_text())["sweep"]
    return points


def test_a_budget_is_what_the_run_spent(lived: Path) -> None:
    train = checkpoint.load_state(lived).spent
    before = {measure: spent_by(lived, measure) for measure in BUDGET_KEYS}
    assert before["train_flops"] == before["total_flops"] == train.flops
    assert before["train_tokens"] == before["total_tokens"] == train.tokens > 0
    assert before["wall_clock_seconds"] > 0


@pytest.mark.parametrize("measure", ["train_flops", "wall_clock_seconds"])
def test_sft_spends_what_it_is_matched_with_and_exports_its_best(
    measure: str, symbiont: Symbiont, lived: Path, host: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sft"
    words = [
        "sft",
        "--match",
        lived,
        "--budget",
        measure,
        "--rates",
        "0.01,0.05",
        "--per-cell",
        2,
        "--out",
        out,
    ]
    said = symbiont(*words, *(ALONE if measure != "train_flops" else ()))
    assert said.code == 0, said.err
    report = json.loads((out / "sft.json").read_text())
    assert len(report["sweep"]) == 2 * 3
    if measure == "train_flops":  # the budget, but for what pays for no further lesson
        longest = max(report["sweep"], key=lambda one: one["train_flops"])
        lesson = min(checkpoint.load_state(out / longest["folder"]).effort.values())
        assert 0 <= report["budget"]["amount"] - longest["train_flops"] < lesson
    best = max(report["sweep"], key=lambda one: one["accuracy"])
    assert report["chosen"]["accuracy"] == best["accuracy"]
    assert f"chosen: rate {report['chosen']['learning_rate']:g}, rank" in said.out
    asked = symbiont(
        "baselines", lived, "--per-cell", 2, "--sft", out / "adapter", "--json", tmp_path / "e.json"
    )
    assert asked.code == 0, asked.err
    assert "sft" in json.loads((tmp_path / "e.json").read_text())["systems"]


def test_a_killed_sft_goes_on_and_ends_with_the_same_adapter(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    words = ["sft", "--match", lived, "--rates", "0.01,0.03", "--per-cell", "2", "--amount", "1e9"]
    words += ALONE
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert symbiont(*words, "--out", whole).code == 0
    for saved in (1, 2):  # in the middle of the first rate and of the second
        kill_when(
            lambda saved=saved: len(list(killed.rglob("state.json"))) >= saved,
            *(*words, "--out", killed),
        )
    assert symbiont(*words, "--out", killed).code == 0
    assert swept(killed) == swept(whole)
    for one in ("adapter_model.safetensors", "adapter_config.json"):
        assert (killed / "adapter" / one).read_bytes() == (whole / "adapter" / one).read_bytes()


def test_a_stopped_sft_says_how_it_goes_on_in_its_folder(
    symbiont: Symbiont, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite, "do_jobs", lambda *arguments: False)  # as after Ctrl-C
    (tmp_path / "artifacts" / "sft-1").mkdir(parents=True)
    said = symbiont("sft", "base", "seed=1", "--amount", "1e9")
    assert said.code == 130
    line = "Go on with: symbiont sft --out artifacts/sft-2 base seed=1 --amount 1e9\n"
    assert said.err.endswith(line)


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        (["base"], "0.0025, 0.005, 0.01"),
        (["steady_frozen"], "0.003, 0.006, 0.012"),
        (["base", "--rates", "0.1"], "0.1"),
    ],
)
def test_rates_are_near_that_of_the_config_if_it_has_one(
    words: list[str], rates: str, symbiont: Symbiont
) -> None:
    said = symbiont("sft", *words, "--amount", "1e9", "--dry-run")
    assert said.code == 0, said.err
    assert f"; rates {rates}; ranks" in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected either a config or --match RUN"),
        (["base"], "expected --match RUN or --amount N"),
        (["base", "--amount", "0"], "expected a budget above 0"),
        (["base", "--amount", "1e9", "--rates", "fast"], "expected numbers above 0 with commas"),
        (["--match", "nowhere"], "no run in"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, symbiont: Symbiont) -> None:
    said = symbiont("sft", *words)
    assert said.code in (1, 2)
    assert message in said.error

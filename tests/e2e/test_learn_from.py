"""``learn-from``: a log in, adapters and who uses which out; interrupted, it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from killing import interrupted
from said import Symbiont
from symbiont_ecology.config import find_data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The first rows of the log that comes with the package: four kinds of users."""
    lines = find_data(Path("logs/thumbs.jsonl")).read_text().splitlines()[:360]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_becomes_adapters_that_go_on_after_ctrl_c(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    folder, whole = tmp_path / "learned", tmp_path / "whole"
    words = ["learn-from", str(log), "--out", str(folder)]
    errors = interrupted(words, until="generation    4")
    assert f"learn-from {log} --host embedded --passes 1 --out {folder}" in errors

    said = symbiont(*words)
    assert said.code == 0, said.err
    report = json.loads((folder / "report.json").read_text())
    served = json.loads((folder / "adapters" / "habitats.json").read_text())["habitats"]
    assert sorted(served) == sorted(
        name for adapter in report["adapters"].values() for name in adapter["habitats"]
    )
    assert all(
        (folder / "adapters" / name / "adapter_config.json").exists() for name in report["adapters"]
    )
    assert report["all"]["nats_per_token"] > report["all"]["nats_per_token_of_host"]
    assert report["all"]["written"]["estimate"] > report["all"]["written_by_host"]["estimate"]
    assert f"infer {folder} PROMPT --habitat" in said.out

    assert symbiont("learn-from", log, "--out", whole, "--quiet").code == 0
    assert (folder / "events.jsonl").read_bytes() == (whole / "events.jsonl").read_bytes()
    assert symbiont("infer", folder, "math.add: 47+8", "--habitat", "h05").code == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nothing.jsonl",), "log nothing.jsonl: no such file"),
        (("{log}", "--habitat", "user"), "no column 'user'; it has habitat, family, prompt"),
        (("{log}", "--passes", "0"), "--passes: expected a number above 0, got 0"),
        (("{log}", "strategy=told"), "data do not say it"),
        (("{log}", "strategy.lerning_rate=1"), "did you mean 'learning_rate'"),
        (("{log}", "--host", "nowhere/at-all", "--dry-run", "tasks.depths=[long]"), "tasks.depths"),
    ],
)
def test_a_mistake_is_one_line_before_a_model_is_loaded(
    words: tuple[str, ...], error: str, symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    typed = [word.replace("{log}", str(log)) for word in words]
    said = symbiont("learn-from", *typed, "--out", tmp_path / "run")
    assert said.code == 2
    (line,) = said.err.strip().splitlines()
    assert error in line
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_what_would_be_done(symbiont: Symbiont, log: Path, tmp_path: Path) -> None:
    said = symbiont("learn-from", log, "--dry-run", "--passes", "2", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "360 replies" in said.out
    assert "24 habitats, 5 families" in said.out
    assert "27 generations" in said.out
    assert not (tmp_path / "run").exists()


def test_another_log_is_not_learned_into_the_same_folder(
    symbiont: Symbiont, log: Path, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "run", "--quiet")
    assert symbiont("learn-from", log, "run.generations=2", *out).code == 0
    said = symbiont("learn-from", log, "run.generations=2", "seed=3", *out)
    assert said.code == 2
    assert "holds a run with another config" in said.err

"""What is typed at the original ecology works as it is typed: every flag of the table is tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from door import TABLE, FlagError, script_for, translated
from hosts import add_chat_template, make_host
from said import Symbiont
from symbiont_ecology.cli import app
from tiny import TINY

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "scripts" / "run_paper_ecology_suite.sh"

SCRIPTS: list[dict[str, Any]] = TABLE["script"]
VALUES = {
    "--config": "config/steady.yaml",
    "--mode": "ci",
    "--match-budget-field": "total_tokens",
    "--seeds": "1,2",
}
"""Values that a flag needs; any other has 3."""
ROWS = [
    (script, kind, flag)
    for script in SCRIPTS
    for kind in ("flags", "computed", "ignored", "refused")
    for flag in script.get(kind, ())
]
CHANGES = (
    *("seed", "seeds", "run.generations", "run.checkpoint_every", "run.final_holdout"),
    *("run.final_holdout_samples", "host.model", "host.device", "strategy.questions"),
)
"""Keys that flags become."""


@pytest.mark.parametrize(
    ("script", "kind", "flag"), ROWS, ids=[f"{row['name']} {flag}" for row, _, flag in ROWS]
)
def test_every_flag_becomes_words_that_the_command_knows_or_is_named(
    script: dict[str, Any], kind: str, flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    beside = script.get("when", "--config" if script["command"] == "data" else flag)
    names = dict.fromkeys((beside, flag))
    typed = [
        word
        for name in names
        for word in (name, *([] if name in TABLE["switches"] else [VALUES.get(name, "3")]))
    ]
    assert script_for(script["name"], typed) is script
    if kind == "refused":
        with pytest.raises(FlagError, match=flag):
            translated(script["name"], typed)
        return
    words, ignored = translated(script["name"], typed)
    assert (flag in ignored) is (kind == "ignored")
    command = typer.main.get_group(app).commands[words[0]]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    keys = [word.partition("=")[0] for word in words if "=" in word and word[0] != "-"]
    assert set(keys) <= set(CHANGES)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            "run_evolution --generations=9 demo --seed 1 --disable-human run.transcripts=0",
            "run demo run.transcripts=0 run.generations=9 seed=1",
        ),
        (
            "run_sft --checkpoint a/checkpoint.pt --match-budget-field total_tokens "
            "--backprop-multiplier 2.0 --budget-scale 0.5",
            "sft --match a --budget total_tokens --scale 0.25",
        ),
        (
            "evaluate_holdout --holdout f --model m --sft-adapter s",
            "evaluate --adapter s --host m --holdout f",
        ),
        ("paper_pack --output o --ecology e --frozen f --single s", "pack f s e --out o"),
        ("infer_saved_adapter --prompt q --prompt p --run r", "infer r q p"),
    ],
)
def test_words_become_the_command_that_does_the_same(
    typed: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *words = typed.split()
    assert " ".join(translated(name, words)[0]) == expected


def test_the_chain_of_the_original_works_as_typed(
    script: Symbiont, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = [word for word in small if not word.startswith(("run.", "tasks."))]
    mix = "tasks: {families: [math.add, word.count], depths: [short]}"
    Path("tiny.yaml").write_text(f"extends: [base, strategy/ecology]\n{mix}\n")
    words = ["--config", "tiny.yaml", "--seed", "777", "--output", "run", "--disable-human"]
    said = script(
        "run_evolution", *words, "--generations", 2, "--checkpoint-every", 1, *tiny, "--quiet"
    )
    assert said.code == 0, said.err

    words = ["--config", "tiny.yaml", "--seed", "777", "--resume-from", "run", "--quiet"]
    said = script(
        "generate_grid_datasets",
        *["--config", "tiny.yaml", "--out-dir", "data", "--train-size", 80],
        *["--selection-size", 10, "--holdout-size", 12],
    )
    assert said.code == 0, said.err
    last = ["--final-holdout", "data/holdout.jsonl", "--final-holdout-sample-size", 5]
    said = script("run_evolution", *words, "--generations", 2, *last)
    assert said.code == 0, said.err
    assert json.loads(Path("run/state.json").read_text())["generation"] == 4
    line = json.loads(Path("run/evaluations.jsonl").read_text().splitlines()[-1])
    assert line["asked"]["most_asked"] == 5

    said = script(
        "run_sft",
        *["--checkpoint", "run/checkpoint.pt", "--data", "data/train_sft.jsonl"],
        *["--match-budget-field", "total_tokens", "--backprop-multiplier", "2.0"],
        *["--engine", "manual", "--optim", "adamw_torch", "--attn-implementation", "eager"],
        *["--resume", "--lora-rank", 1, "--learning-rate", "0.01", "--output", "sft"],
        *["--per-cell", 2],
    )
    assert said.code == 0, said.err

    said = script(
        "evaluate_holdout",
        *["--holdout", "data/holdout.jsonl", "--model", "Qwen/Qwen3-0.6B"],
        *["--sft-adapter", "sft/adapter", "--evo-checkpoint", "run/checkpoint.pt"],
        *["--evo-eval-routing", "family", "--evo-selection-tasks", "data/selection.jsonl"],
        *["--max-samples", 6, "--output", "eval.json", "--device", "auto"],
    )
    assert said.code == 0, said.err
    assert json.loads(Path("eval.json").read_text())

    said = script(
        "evaluate_transfer",
        *["--source-family", "math.add", "--target-families", "word.count"],
        *["--holdout", "data/holdout.jsonl", "--evo-checkpoint", "run/checkpoint.pt"],
        *["--output", "transfer.json"],
    )
    assert said.code == 0, said.err
    assert set(json.loads(Path("transfer.json").read_text())["host"]) == {"math.add", "word.count"}

    assert script("analyze_ecology_run", "run", "--plots", "--report").code == 0
    assert Path("run/report.md").exists()
    assert script("export_run_adapters", "--run", "run", "--output", "adapters").code == 0
    assert Path("adapters/index.json").exists()


def test_the_benchmark_runs_by_its_mode(
    script: Symbiont, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    protocol = {**yaml.safe_load(TINY), "budgets": [1], "seeds": [0], "flip": None}
    Path("tiny.yaml").write_text(yaml.safe_dump(protocol))
    said = script("benchmark_suite", "--mode", "ci", "--seeds", "3,4", "--dry-run")
    assert said.code == 0, said.err
    assert "6 to report" in said.out
    said = script("benchmark_suite", "--suite", "tiny.yaml", "--output", "suite", "--workers", 1)
    assert said.code == 0, said.err
    assert len(list(Path("suite", "main").rglob("outcome.json"))) == 2  # of each arm


def test_the_variable_for_the_learning_rule_is_heeded(
    script: Symbiont, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for value, is_there in (("hebbian", True), ("backprop", False)):
        monkeypatch.setenv("EVOLORA_PLASTICITY", value)
        said = script("run_evolution", "--config", "config/steady.yaml", "--dry-run")
        assert said.code == 0, said.err
        assert ("learning_rule=hebbian" in said.err) is is_there


def test_the_chain_of_patterns_goes_through(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text("extends: experiments/regex\nstrategy: {warm: 1}\nhost: {rank: 1}\n")
    words = ["make", "-o", "setup", "regex-evo-vs-sft", f"BIN={Path(sys.executable).parent}"]
    words += [f"REGEX_CONFIG={config}", f"REGEX_OUTPUT={tmp_path / 'out'}", "REGEX_RATES=0.003"]
    words += ["REGEX_CALIB_GENS=1", "REGEX_FULL_GENS=2", "REGEX_EVAL_MAX_SAMPLES=8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    evaluated = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert {"host", "single", "sft", "family"} == set(evaluated["systems"])


def paper(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The paper's runs, with everything they leave in a folder."""
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(folder)}
    command = [str(PAPER), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_step_of_the_papers_runs_goes_on_when_it_is_typed_again(tmp_path: Path) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    tiny = [f"host.model={host}", "host.device=cpu", "host.dtype=float32", "host.memory_mb=500"]
    short = ["tasks.families=[math.add]", "tasks.depths=[short]", "run.train_flops=1e9"]
    said = paper("single", *tiny, *short, folder=tmp_path / "out")
    assert said.returncode == 0, said.stderr
    done = (tmp_path / "out" / "single" / "state.json").read_bytes()
    said = paper("single", *tiny, *short, folder=tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert "complete" in said.stdout
    assert (tmp_path / "out" / "single" / "state.json").read_bytes() == done
    assert "single is there" in paper("single", "--dry-run", folder=tmp_path / "out").stdout
    said = paper("single", *tiny, *short, "seed=1", folder=tmp_path / "out")
    assert said.returncode == 2
    assert "can only change run.generations" in said.stderr
    assert paper("single", "run.train_flops=2e9", folder=tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "single" / "state.json").read_bytes() != done

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hosts import make_host
from killing import COMMAND, interrupted
from said import Symbiont
from symbiont_ecology.base.shipped import presets
from symbiont_ecology.cli.run import AT_ONCE, ENDING, stop_requests
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import load_config


def books(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "state.json").read_bytes(), (folder / "events.jsonl").read_bytes()


def test_dry_run_needs_no_torch_and_writes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['symbiont', 'run', 'steady', '--dry-run']\n"
        "from symbiont_ecology.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert " cells: math.add" in said.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", presets())
def test_every_preset_can_be_run(name: str) -> None:
    whole = name.startswith(("base", "demo", "steady", "experiments", "habitats", "service"))
    check(load_config(name, () if whole else ("tasks.families=[math.add]",)))


def test_an_extended_run_equals_a_long_one(
    symbiont: Symbiont, small: list[str], tmp_path: Path
) -> None:
    said = symbiont("run", "steady", *small, "run.generations=2", "--out", tmp_path / "short")
    assert said.code == 0
    assert said.out.count("alive") == 2
    assert f"symbiont resume {tmp_path / 'short'}" in said.out
    assert symbiont("resume", tmp_path / "short", "run.generations=3", "--quiet").code == 0
    long = ["run.generations=3", "--out", tmp_path / "long", "-q"]
    assert symbiont("run", "steady", *small, *long).code == 0
    assert books(tmp_path / "short") == books(tmp_path / "long")


def test_a_run_that_a_budget_ended_says_what_makes_it_longer(
    symbiont: Symbiont, small: list[str], tmp_path: Path
) -> None:
    run, budgets = tmp_path / "my run", ["run.train_tokens=2000", "run.generations=99"]
    plan = symbiont("run", "steady", *small, *budgets, "--dry-run")
    assert "99 generations or run.train_flops=6e+11 or run.train_tokens=2e+03\n" in plan.out
    said = symbiont("run", "steady", *small, *budgets, "--out", run)
    assert said.code == 0, said.err
    lived = json.loads((run / "state.json").read_text())["generation"]
    assert lived < 99
    line = said.out.splitlines()[-1].strip()
    assert line.startswith(f"symbiont resume '{run}' run.generations=198 ")
    assert symbiont(*shlex.split(line)[1:]).code == 0
    assert json.loads((run / "state.json").read_text())["generation"] > lived


def test_ctrl_c_finishes_the_generation_and_says_how_to_go_on(
    symbiont: Symbiont, small: list[str], tmp_path: Path
) -> None:
    words = ["run", "steady", *small, "run.generations=100000", "run.checkpoint_every=1000"]
    err = interrupted([*words, "--out", tmp_path / "run"])
    assert f"go on with: symbiont resume {tmp_path / 'run'}" in err
    done = json.loads((tmp_path / "run" / "state.json").read_text())["generation"]
    longer = f"run.generations={done + 1}"
    assert symbiont("resume", tmp_path / "run", longer, "-q").code == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_stops_at_once(
    how: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(how)
    with stop_requests() as stops:
        signal.raise_signal(how)
        assert stops
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(how)
    assert signal.getsignal(how) is before
    assert capfd.readouterr().err.split("\n")[1::2] == [ENDING, AT_ONCE]


def test_a_full_disk_loses_nothing(
    symbiont: Symbiont, small: list[str], lived: Path, tmp_path: Path
) -> None:
    limit = (lived / "events.jsonl").stat().st_size - 100  # bytes of a file: the log fills up
    said = subprocess.run(
        [*COMMAND, "run", "steady", *small, "--out", tmp_path / "run", "-q"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert said.returncode == 1
    (line,) = said.stderr.strip().splitlines()
    assert line.startswith("error: cannot write")
    assert json.loads((tmp_path / "run" / "state.json").read_text())["generation"] > 0
    assert symbiont("resume", tmp_path / "run", "-q").code == 0
    assert books(tmp_path / "run") == books(lived)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "dmo"], "did you mean 'demo'?"),
        (["run", "steady", "host.modle=x"], "did you mean 'host.model'?"),
        (["run", "steady", "host.slots=many"], "host.slots: expected a valid integer, got 'many'"),
        (["run", "steady", "host.model=/no/such/host"], "found no folder '/no/such/host'"),
        (["run", "steady", "run.final_holdout=/no/such/file"], "/no/such/file: no such file"),
        (["evaluate"], "expected either a run folder or --adapter"),
        (["evaluate", "--adapter", "/no/such/adapter"], "expected --holdout FILE"),
        (
            ["evaluate", "--adapter", "x", "--per-cell", "20"],
            "--adapter: expected no --per-cell beside it",
        ),
        (
            ["evaluate", "x", "--holdout", "y", "--shift", "wording"],
            "--holdout: expected no --shift beside it",
        ),
        (["evaluate", "x", "--max-samples", "3"], "expected --holdout beside it"),
        (["calibrate", "demo", "run.train_flops=1e9"], "set --generations and --full"),
        (["calibrate", "demo", "--generations", "8", "--full", "4"], "at most --full, 4, got 8"),
        (["look", "base", "tasks.style=fewshot"], "did you mean 'few_shot'?"),
        (["look", "base", "tasks.style={kind: natural, is_chat: true}"], "with a chat template"),
        (["list", "operaters"], "did you mean 'operators'?"),
        (["explain", "strategies"], "expected a name too"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    symbiont: Symbiont,
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont(*words)
    assert expected in said.error
    assert said.code == 2
    assert not list(tmp_path.iterdir())


def test_a_run_is_neither_started_again_nor_made_another_one(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    assert f"symbiont resume {lived}" in symbiont("run", "steady", "--out", lived).error
    assert "can only change run.generations" in symbiont("resume", lived, "seed=4").error
    assert "no run in" in symbiont("resume", tmp_path / "nothing").error
    for words in (["infer", "a"], ["resume"], ["export"], ["serve"], ["verify"], ["evoscope"]):
        said = symbiont(words[0], lived.parent, *words[1:])
        assert f"itself: name one within it, such as {lived}" in said.error


def test_evaluate_leaves_the_run_alone_and_a_line_behind(
    symbiont: Symbiont, copied: Path, tmp_path: Path
) -> None:
    before, routing, file = books(copied), "family", tmp_path / "e.json"
    said = symbiont("evaluate", copied, "--per-cell", 3, "--routing", routing, "--json", file)
    assert said.code == 0
    record = json.loads(file.read_text())
    assert set(record["systems"]) == {"host", "single", routing}
    assert set(record["families"]) == {"math.add", "word.count"}
    assert len(record["items"]) == record["questions"] == sum(record["choices"].values()) == 6
    lines = {
        one["asked"]["routing"]: one
        for one in map(json.loads, (copied / "evaluations.jsonl").open())
    }
    assert set(lines) == set(record["systems"])
    assert lines[routing]["accuracy"] == record["accuracy"]
    assert books(copied) == before


def test_json_on_stdout_is_nothing_but_json(
    symbiont: Symbiont, copied: Path, holdout: Path
) -> None:
    said = symbiont("evaluate", copied, "--holdout", holdout, "--json", "-")
    assert [item["id"] for item in json.loads(said.out)["items"]] == ["a", f"{holdout} line 2"]
    assert "trivia" in said.err
    said = symbiont("transfer", copied, "--per-cell", 2, "--json", "-")
    assert set(json.loads(said.out)) == {"organelles", "host", "accuracy", "gain"}
    assert "gain over the host" in said.err
    said = symbiont("transfer", copied, "--holdout", holdout, "--json", "-")
    assert set(json.loads(said.out)["host"]) == {"math.add", "trivia"}


def test_a_run_ends_with_its_final_holdout(
    symbiont: Symbiont, small: list[str], tmp_path: Path, holdout: Path
) -> None:
    last = [f"run.final_holdout={holdout}", "run.final_holdout_samples=1"]
    for name, more in {"run": last, "without": []}.items():
        words = ("run", "steady", *small, *more, "run.generations=1", "--out", tmp_path / name)
        assert symbiont(*words).code == 0
    (line,) = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line)["questions"] == 1
    assert books(tmp_path / "run") == books(tmp_path / "without")


def test_evaluate_refuses_another_host_and_another_word(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    other = make_host(tmp_path / "other", layers=2, seed=5)
    said = symbiont("evaluate", lived, "--host", other)
    assert said.code == 2
    assert "was founded on host" in said.error
    said = symbiont("evaluate", lived, "--routing", "best")
    assert "no routing 'best';" in said.error
    assert "known: family, host, learned, single, user" in said.error


def test_a_holdout_line_without_target_is_named(
    symbiont: Symbiont, lived: Path, holdout: Path
) -> None:
    with holdout.open("a") as file:
        file.write('{"prompt": "x", "family": "math.add", "depth": "short"}\n')
    said = symbiont("evaluate", lived, "--holdout", holdout)
    assert said.code == 2
    assert f"{holdout} line 3: no column 'target'" in said.error


def test_list_and_explain_know_every_part(symbiont: Symbiont) -> None:
    assert "ecology" in symbiont("list", "strategies").out
    assert {"demo", "strategy/single"} <= {
        line.split()[0] for line in symbiont("list", "presets").out.splitlines()
    }
    said = symbiont("explain", "strategies", "ecology")
    assert "founders = " in said.out
    assert "organelles at the start" in said.out
    assert "run.generations = " in symbiont("explain", "config").out


def test_doctor_finds_a_host_that_answers_or_fails(symbiont: Symbiont, host: Path) -> None:
    said = symbiont("doctor", "--host", host)
    assert said.code == 0
    assert "fingerprint" in said.out
    said = symbiont("doctor", "--host", "/no/such/host")
    assert said.code == 1
    assert "fail  host" in said.out


@pytest.mark.parametrize("word", ["list", "--help"])
def test_a_reader_that_went_away_ends_a_command_quietly(word: str) -> None:
    read, write = os.pipe()
    os.close(read)  # as head does when it has what it wanted
    said = subprocess.run([*COMMAND, word], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert said.returncode == 141
    assert said.stderr == ""

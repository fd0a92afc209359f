"""A suite in real processes: killed and resumed it leaves what one left alone leaves."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from killing import COMMAND, kill_when
from said import Symbiont
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.process import usable_cores
from symbiont_ecology.base.shipped import protocols
from symbiont_ecology.extensions.study.protocol import load_protocol
from symbiont_ecology.extensions.study.suite import check_protocol, claim_folder, usual_workers


def outcomes(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("outcome.json"))
    }


def books(folder: Path) -> dict[str, bytes]:
    files = sorted(path for name in ("state.json", "events.jsonl") for path in folder.rglob(name))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_killed_suite_goes_on_and_leaves_what_one_left_alone_leaves(
    protocol: Path, suite: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    words = ("suite", protocol, "--out", folder, "--workers", 2)
    kill_when(lambda: len(outcomes(folder)) >= 4, *words)
    subprocess.run([*COMMAND, "suite", protocol, "--out", folder], check=True)
    assert outcomes(folder) == outcomes(suite)
    assert books(folder) == books(suite)


def test_workers_do_not_outlive_a_suite_that_was_killed(protocol: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "suite", protocol, "--out", tmp_path / "suite", "--workers", "2"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not outcomes(tmp_path / "suite"):
        time.sleep(0.01)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.5)
    pytest.fail("there still are processes of the suite")


def test_an_outcome_holds_every_answer_and_what_was_spent(suite: Path) -> None:
    unit = json.loads((suite / "protocol.json").read_text())["unit_flops"]
    for path in (suite / "main").rglob("outcome.json"):
        outcome = json.loads(path.read_text())
        (leg,) = outcome["legs"]
        bits = leg["systems"]["single"]["bits"]
        assert set(bits) == {"in-distribution", "shared-families", "retention"}
        assert {len(text) for cells in bits.values() for text in cells.values()} == {4}
        budget = outcome["budget"] * unit
        assert abs(outcome["train"]["flops"] - budget) < 7e7  # less than a lesson takes
        assert ("learned" in leg["systems"]) == (outcome["arm"] == "single")
    for path in (suite / "flip").rglob("outcome.json"):
        outcome = json.loads(path.read_text())
        assert [leg["phase"] for leg in outcome["legs"]] == [
            "before",
            "flipped",
            "flipped",
            "back",
            "back",
        ]
        assert len(outcome["families"]) == 1
    tuned = json.loads((suite / "tuned.json").read_text())
    assert len(tuned["sweep"]) == 2 * 2 * 2  # arms, options, budgets
    assert set(tuned["chosen"]) == {"single", "sft"}


def test_a_changed_protocol_is_another_one(protocol: Path, tmp_path: Path) -> None:
    plain = load_protocol(protocol)
    fewer = load_protocol(protocol, ["seeds=[0]", "arms.sft.about=imitation", "flip=null"])
    assert (fewer.seeds, fewer.arms["sft"].about, fewer.flip) == ((0,), "imitation", None)
    assert fewer.arms["sft"].tune == plain.arms["sft"].tune
    other = load_protocol(protocol, additions=["host.rank=3"])
    assert other.set == (*plain.set, "host.rank=3")
    assert other.config("single", 1, 0).host.rank == 3
    assert len({plain.digest, fewer.digest, other.digest}) == 3
    claim_folder(plain, tmp_path / "suite")
    with pytest.raises(RunError, match="another protocol"):
        claim_folder(fewer, tmp_path / "suite")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected one protocol or --ci, got none"),
        (["ci", "--ci"], "expected one protocol or --ci, got ci ci"),
        (["ci", "per_cel=3"], "did you mean 'per_cell'?"),
        (["ci", "tuning_seeds=[0]"], "seeds that tune cannot be reported"),
        (["ci", "tuning_seeds=[9]", "arms.single.tune=[[], [seed=3]]"], "same number"),
        (["ci", "shifts=[in-distributio]"], "did you mean 'in-distribution'"),
        (["ci", "arms.single.set=[strategy.kind=singel]"], "did you mean 'single'?"),
        (["ci", "--set", "host.modle=x"], "did you mean 'host.model'?"),
        (["ci", "seeds=[]"], "expected one or more, each of them once"),
        (["ci", "name=../elsewhere"], "name"),
        (["ci", "flip={at: 2, back: 1, extra: [0, 1]}"], "and back behind the last of it"),
        (["ci", "arms.single.set=[strategy.kind=ifca]"], "use commit 2c78cec9"),
        (
            ["ci", "arms.single.set=[strategy.kind=single, tasks.style=wording]"],
            "expected the tasks of",
        ),
    ],
)
def test_a_mistake_in_a_change_is_one_line(
    symbiont: Symbiont,
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont("suite", *words)
    assert said.code == 2
    assert message in said.error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_can_be_run(name: str) -> None:
    check_protocol(load_protocol(name))


def test_the_ci_protocol_ends_with_a_table_and_a_summary(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    tiny = ["seeds=[0]", "unit_flops=1e9", "per_cell=2", "--set", "tasks.families=[math.add]"]
    words = ["suite", "--ci", *tiny, "--workers", 1, "--out", tmp_path / "ci", "--json"]
    said = symbiont(*words, tmp_path / "ci.json")
    assert said.code == 0, said.err
    for word in ("roi", "right, %", "ecology minus, points", f"complete: {tmp_path / 'ci'}"):
        assert word in said.out
    summary = json.loads((tmp_path / "ci.json").read_text())
    assert set(summary["arms"]) == {"frozen", "single", "ecology"}
    assert json.loads(symbiont(*words, "-").out) == summary


def test_a_gpu_is_given_to_one_run_at_a_time() -> None:
    assert usual_workers(load_protocol("paper-qwen3")) == 1
    assert usual_workers(load_protocol("embedded-v2")) == usable_cores()

"""A suite in real processes: killed and resumed it leaves what one left alone leaves."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from hosts import add_chat_template, make_host
from killing import COMMAND, kill_when
from said import Symbiont
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.process import usable_cores
from symbiont_ecology.base.shipped import protocols
from symbiont_ecology.extensions.study.protocol import load_protocol
from symbiont_ecology.extensions.study.suite import check_protocol, claim_folder, usual_workers
from tiny import TINY


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("main: single", "main: ecology", "main"),
        ("seeds: [0, 1]\ntuning", "seeds: [0, 7]\ntuning", "seeds that tune cannot be reported"),
        ("tune: [[strategy.questions=1], [strategy.questions=2]]", "tune: [[]]", "same number"),
        ("shifts: [in-distribution,", "shifts: [in-distributio,", "did you mean 'in-distribution'"),
    ],
)
def test_a_mistake_in_a_protocol_is_one_line_before_anything_runs(
    old: str, new: str, message: str, symbiont: Symbiont, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.yaml"
    assert old in TINY
    path.write_text(TINY.replace(old, new, 1))
    said = symbiont("suite", path, "--out", tmp_path / "out")
    assert said.code == 2
    assert message in said.error
    assert not (tmp_path / "out").exists()


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
        (["ci", "arms.single.set=[strategy.kind=singel]"], "did you mean 'single'?"),
        (["ci", "--set", "host.modle=x"], "did you mean 'host.model'?"),
        (["ci", "--set", "seeds"], "expected key.subkey=value"),
        (["ci", "seeds=[]"], "expected one or more, each of them once"),
        (["ci", "budgets=[2, 1]"], "expected rising numbers"),
        (["ci", "name=../elsewhere"], "name"),
        (["ci", "arms.host={about: x}"], "is the bare host"),
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


def test_the_papers_protocol_runs_to_its_end_on_a_tiny_host(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=2))
    folder = tmp_path / "suite"
    size = ["seeds=[0]", "tuning_seeds=[9]", "budgets=[1]", "unit_flops=1e8"]
    size += [
        "per_cell=1",
        "tuning_per_cell=1",
        "arms.single-wide.set=[strategy.kind=single, host.rank=26]",
    ]
    plain = load_protocol("paper-qwen3")
    for arm in plain.own_arms:  # test_every_protocol_can_be_run builds the other options
        options = ", ".join(f"[{', '.join(option)}]" for option in plain.arms[arm].tune[:2])
        size.append(f"arms.{arm}.tune=[{options}]")
    changes = [f"host.model={host}", "host.device=cpu", "host.dtype=float32", "host.rank=2"]
    added = [word for change in changes for word in ("--set", change)]
    said = symbiont("suite", "paper-qwen3", *size, *added, "--out", folder, "--workers", 1)
    assert said.code == 0, said.err
    arms = len(plain.own_arms)
    assert f"{2 * arms} to tune, {arms} to report" in said.out
    assert "tuning: 100%" in said.err
    lived = load_protocol("paper-qwen3", size, changes)
    assert plain.digest != lived.digest
    found = [json.loads(path.read_text()) for path in (folder / "main").rglob("outcome.json")]
    assert sorted(one["arm"] for one in found) == sorted(plain.own_arms)
    for one in found:
        assert one["protocol"] == lived.digest
        assert one["train"]["flops"] >= 1e8
        systems = one["legs"][-1]["systems"]
        assert set(systems[plain.arms[one["arm"]].routing]["bits"]) == set(plain.shifts)


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_can_be_run(name: str) -> None:
    check_protocol(load_protocol(name))


def test_the_arms_of_the_papers_protocols_are_those_of_the_embedded_one() -> None:
    embedded = load_protocol("embedded-v2").arms
    for name in ("paper-qwen3", "paper-qwen2.5"):
        arms = load_protocol(name).arms
        assert list(arms) == list(embedded)
        for arm, sides in arms.items():
            like = embedded[arm]
            assert (sides.sees, sides.routing, sides.of) == (like.sees, like.routing, like.of)


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

"""A suite in real processes: killed and resumed it leaves what one left alone leaves; and its pack."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from said import Symbiont

COMMAND = [sys.executable, "-m", "symbiont_ecology.cli"]
TINY = """
name: tiny
question: does the machinery hold?
base: [base]
set: [host.rank=2, "tasks.families=[math.add, logic.bool]", "tasks.depths=[short]"]
unit_flops: 4.0e+9
budgets: [0.5, 1]
seeds: [0, 1]
tuning_seeds: [7]
main: single
shifts: [in-distribution, shared-families, retention]
per_cell: 4
tuning_per_cell: 3
flip: {at: 1, back: 1.5, extra: [0, 0.5], per_cell: 3}
arms:
  single:
    about: one adapter
    set: [strategy.kind=single, strategy.samples=2]
    routing: single
    tune: [[strategy.questions=1], [strategy.questions=2]]
  sft:
    about: gold
    sees: gold answers
    set: ["strategy={kind: single, samples: 0}", plasticity=supervised]
    routing: single
    also: [learned]
    tune: [[strategy.questions=1], [strategy.questions=2]]
  single-routed: {about: the same behind a router, of: single}
"""


@pytest.fixture(scope="module")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protocol") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def suite(protocol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete suite."""
    folder = tmp_path_factory.mktemp("suite") / "whole"
    subprocess.run([*COMMAND, "suite", protocol, "--out", folder, "--workers", "2"], check=True)
    return folder


def outcomes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("outcome.json"))}


def books(folder: Path) -> dict[str, bytes]:
    files = sorted(path for name in ("state.json", "events.jsonl") for path in folder.rglob(name))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_killed_suite_goes_on_and_leaves_what_one_left_alone_leaves(
    protocol: Path, suite: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    for seconds in (7.0, 9.0):
        process = subprocess.Popen(
            [*COMMAND, "suite", protocol, "--out", folder, "--workers", "2"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*COMMAND, "suite", protocol, "--out", folder], check=True)
    assert outcomes(folder) == outcomes(suite)
    assert books(folder) == books(suite)


def test_an_outcome_holds_every_answer_and_what_was_spent(suite: Path) -> None:
    for path in (suite / "main").rglob("outcome.json"):
        outcome = json.loads(path.read_text())
        bits = outcome["systems"]["single"]["bits"]
        assert set(bits) == {"in-distribution", "shared-families", "retention"}
        assert {len(text) for cells in bits.values() for text in cells.values()} == {4}
        budget = outcome["budget"] * 4e9
        assert abs(outcome["train"]["flops"] / budget - 1) < 0.1  # a question is a large part of so little
        is_whole = outcome["budget"] == 1 and outcome["arm"] == "sft"
        assert ("learned" in outcome["systems"]) == (is_whole or outcome["arm"] == "single")
    for path in (suite / "flip").rglob("outcome.json"):
        outcome = json.loads(path.read_text())
        assert [leg["phase"] for leg in outcome["legs"]] == ["before", "flipped", "flipped", "back", "back"]
        assert len(outcome["families"]) == 1
    tuned = json.loads((suite / "tuned.json").read_text())
    assert len(tuned["sweep"]) == 2 * 2 * 2  # arms, options, budgets
    assert set(tuned["chosen"]) == {"single", "sft"}


def test_a_pack_is_made_again_from_its_own_outcomes_byte_for_byte(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    assert symbiont("pack", suite, "--out", tmp_path / "packs" / "tiny").code == 0
    first = tmp_path / "packs" / "tiny"
    again = tmp_path / "again"
    again.mkdir()
    for name in ("protocol.json", "outcomes.jsonl.gz", "tuned.json"):
        shutil.copy(first / name, again / name)
    assert symbiont("pack", again).code == 0
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {
        p.name: p.read_bytes() for p in first.iterdir()
    }
    page = (first / "README.md").read_text()
    assert page.index("| condition | episodes |") < page.index("## Accuracy")
    assert "tiny/README.md" in (tmp_path / "packs" / "README.md").read_text()
    manifest = json.loads((first / "manifest.json").read_text())
    assert set(manifest["files"]) == {p.name for p in first.iterdir()} - {"manifest.json"}


def test_runs_that_are_no_suite_can_be_compared_and_packed(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    runs = sorted((suite / "main").glob("*/x1/option-*/seed-*"))
    said = symbiont("compare", *runs, "--per-cell", 3, "--json", tmp_path / "c.json")
    assert said.code == 0, said.err
    assert "in-distribution" in said.out
    summary = json.loads((tmp_path / "c.json").read_text())
    assert set(summary["arms"]) == {"single", "single-2"}
    assert symbiont("pack", *runs, "--out", tmp_path / "pack", "--per-cell", 3).code == 0
    assert (tmp_path / "pack" / "README.md").exists()


def test_a_suite_of_another_protocol_is_refused(
    suite: Path, protocol: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    other = tmp_path / "tiny.yaml"
    other.write_text(protocol.read_text().replace("per_cell: 4", "per_cell: 5", 1))
    said = symbiont("suite", other, "--out", suite)
    assert said.code == 1
    assert "another protocol" in said.error


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("main: single", "main: ecology", "is none of the arms"),
        ("seeds: [0, 1]\ntuning", "seeds: [0, 7]\ntuning", "seeds that tune cannot be reported"),
        ("tune: [[strategy.questions=1], [strategy.questions=2]]", "tune: [[]]", "same number"),
        ("strategy.samples=2", "strategy.sample=2", "did you mean 'samples'"),
        ("shifts: [in-distribution,", "shifts: [in-distributio,", "did you mean 'in-distribution'"),
        ("per_cell: 4", "per_cel: 4", "did you mean 'per_cell'"),
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


def test_the_plan_of_a_suite_can_be_read_without_doing_it(symbiont: Symbiont, protocol: Path) -> None:
    said = symbiont("suite", protocol, "--dry-run")
    assert said.code == 0
    assert "4 to tune, 12 to report" in said.out
    assert symbiont("suite", "embedded-v1", "--dry-run").code == 0
    assert "did you mean 'embedded-v1'" in symbiont("suite", "embeded-v1").error

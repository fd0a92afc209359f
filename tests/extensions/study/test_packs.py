"""Packs and comparisons of a suite, and of any runs."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology import Comparison, Suite
from symbiont_ecology.base.errors import EcologyWarning, RunError


def test_a_pack_is_made_again_from_its_own_outcomes_byte_for_byte(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    assert symbiont("pack", suite, "--out", tmp_path / "packs" / "tiny").code == 0
    first = tmp_path / "packs" / "tiny"
    again = tmp_path / "again"
    again.mkdir()
    for name in ("protocol.json", "outcomes.jsonl.gz", "tuned.json"):
        shutil.copy(first / name, again / name)
    made = {p.name: p.read_bytes() for p in first.iterdir()}
    others = {"stages.png": b"of a run before", "notes.txt": b"mine"}  # which no manifest names
    for name, data in others.items():
        (again / name).write_bytes(data)
    assert symbiont("pack", again).code == 0
    assert {p.name: p.read_bytes() for p in again.iterdir()} == made | others
    assert "made again where it is" in symbiont("pack", again, "--out", tmp_path / "b").error
    assert "tiny/README.md" in (tmp_path / "packs" / "README.md").read_text()
    manifest = json.loads((first / "manifest.json").read_text())
    assert set(manifest["files"]) == {p.name for p in first.iterdir()} - {"manifest.json"}


def test_a_pack_whose_inputs_were_changed_is_not_made_again(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    assert symbiont("pack", suite, "--out", tmp_path / "tiny").code == 0
    protocol = tmp_path / "tiny" / "protocol.json"
    protocol.write_text(protocol.read_text().replace('"level": 0.05', '"level": 0.5'))
    said = symbiont("pack", tmp_path / "tiny")
    assert said.code == 2
    assert "is not the file that manifest.json names" in said.error


def repacked(pack: Path, target: Path, **files: bytes | None) -> Path:
    """The inputs of a pack elsewhere, without a manifest, some of them replaced."""
    target.mkdir(parents=True)
    names = {"protocol": "protocol.json", "outcomes": "outcomes.jsonl.gz", "tuned": "tuned.json"}
    for key, name in names.items():
        (target / name).write_bytes(files.get(key) or (pack / name).read_bytes())
    return target


DEEP = b'{"worlds": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcomes": gzip.compress(b"")}, "expected outcomes of one protocol, got none"),
        ({"outcomes": gzip.compress(DEEP)}, "nested deeper than 100 levels"),
        ({"outcomes": gzip.compress(b"x" * 1000)[:-20] + b"y" * 20}, "no paper pack can be read"),
        ({"protocol": b"5"}, "no paper pack can be read"),
        ({"protocol": DEEP}, "nested deeper than 100 levels"),
    ],
)
def test_a_pack_that_somebody_sent_is_refused_in_one_line(
    change: dict[str, bytes], message: str, suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    assert symbiont("pack", suite, "--out", tmp_path / "tiny").code == 0
    said = symbiont("pack", repacked(tmp_path / "tiny", tmp_path / "sent", **change))
    assert said.code == 2
    assert message in said.error


def test_a_neighbour_that_is_no_pack_is_left_out_of_the_index(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    for name, text in (("torn", "{"), ("foreign", '{"seeds": {}}'), ("deep", DEEP.decode())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
        (tmp_path / name / "protocol.json").write_text("{}")
    with pytest.warns(EcologyWarning) as told:
        assert symbiont("pack", suite, "--out", tmp_path / "tiny").code == 0
    ours = [str(one.message) for one in told if issubclass(one.category, EcologyWarning)]
    assert [message.split(" is left out of ")[0] for message in ours] == [
        str(tmp_path / name) for name in ("deep", "foreign", "torn")
    ]
    index = (tmp_path / "README.md").read_text()
    assert "tiny/README.md" in index
    assert not any(name in index for name in ("torn", "foreign", "deep"))


def test_runs_that_are_no_suite_can_be_compared_and_packed(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    runs = sorted((suite / "main").glob("*/x1/option-*/seed-*"))
    said = symbiont("compare", *runs, "--per-cell", 3, "--json", tmp_path / "c.json")
    assert said.code == 0, said.err
    assert "in-distribution" in said.out
    summary = json.loads((tmp_path / "c.json").read_text())
    assert set(summary["arms"]) == {"single", "single-2"}
    same = Comparison.of_runs(*runs, per_cell=3)
    assert json.loads(json.dumps(same.summary.dump())) == summary
    assert symbiont("pack", *runs, "--out", tmp_path / "pack", "--per-cell", 3).code == 0
    assert (tmp_path / "pack" / "README.md").exists()


def test_the_pack_of_a_changed_protocol_does_not_replace_another(
    suite: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    assert symbiont("pack", suite, "--out", tmp_path / "pack").code == 0
    other = json.loads((tmp_path / "pack" / "protocol.json").read_text())
    (tmp_path / "pack" / "protocol.json").write_text(json.dumps(other | {"seeds": [5]}))
    said = symbiont("pack", suite, "--out", tmp_path / "pack")
    assert said.code == 1
    assert "holds the pack of another protocol" in said.error


def test_a_suite_and_its_comparison_are_objects(
    suite: Path, protocol: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    opened = Suite.open(suite)
    assert Suite.start(protocol, folder=suite).finish().protocol == opened.protocol
    comparison = opened.comparison
    assert {"arm", "seed", "budget", "shift", "cell", "item", "right", "flops"} <= {
        *comparison.answers.columns
    }
    assert set(comparison.answers.arm) == {"host", "single", "sft"}
    pack = comparison.save_pack(tmp_path / "packs" / "tiny")
    assert symbiont("pack", suite, "--out", tmp_path / "other" / "tiny").code == 0
    for file in pack.iterdir():
        assert file.read_bytes() == (tmp_path / "other" / "tiny" / file.name).read_bytes()
    shares = comparison.summary.accuracy[comparison.summary.largest]["in-distribution"]
    assert 0 < shares["sft"].estimate <= 1
    assert "single-routed" in repr(comparison)
    assert len(repr(comparison)) < 400


def test_a_suite_that_is_not_there_or_not_run_says_so(protocol: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no suite in .*: expected a protocol\.json"):
        Suite.open(tmp_path)
    begun = Suite.start(protocol, "seeds=[0]", folder=tmp_path / "new")
    with pytest.raises(RunError, match="no reported runs"):
        _ = begun.comparison

"""What happened to the folder of a run between two sittings is found, and said in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import ConfigError, EcologyWarning, RunError
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run import provenance
from symbiont_ecology.run.config import dump_config
from toy import ToyHost, toy_config

STOPPED, GENERATIONS = 5, 8


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped; copy it before changing it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    config = toy_config(seed=3, generations=GENERATIONS, checkpoint_every=3)
    left = iter(range(STOPPED, 0, -1))
    start(config, folder, host=ToyHost(), should_stop=lambda: next(left) == 1)
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture(scope="module")
def whole(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """How a run ends that nothing happened to."""
    folder = Path(shutil.copytree(stopped, tmp_path_factory.mktemp("whole") / "run"))
    resume(folder, host=ToyHost())
    return ending(folder)


def ending(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("state.json", "events.jsonl")}


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(folder: Path, match: str) -> None:
    """It is refused in one line, and nothing in the folder changes."""
    before = everything(folder)
    with pytest.raises((RunError, ConfigError), match=match) as error:
        resume(folder, host=ToyHost())
    assert "\n" not in str(error.value)
    assert everything(folder) == before


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Changes a JSON file as a person would."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=1))


def test_a_run_whose_state_was_lost_is_refused_and_keeps_what_is_left(run: Path) -> None:
    (run / "state.json").unlink()
    refused(run, r"state\.json is missing, and generations were lived there")
    (run / "state.previous.json").unlink(missing_ok=True)
    refused(run, "generations were lived there: symbiont verify .* --repair")
    with pytest.raises(RunError, match="generations were lived there"):
        start(toy_config(), run, host=ToyHost())


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(seed=4),
        lambda state: state.update(population={}),
        lambda state: state.pop("population"),
        lambda state: state.update(generation=-5),
        lambda state: state["effort"].update(dict.fromkeys(state["effort"], float("nan"))),
        lambda state: state.pop("checkpoint", None),
    ],
)
def test_a_state_that_was_edited_is_refused(change: Callable[[Any], object], run: Path) -> None:
    edit(run / "state.json", change)
    refused(run, r"state\.json is damaged|does not bear a checksum")


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: lines.insert(9, b"garbage\n"),
        lambda lines: lines.insert(9, lines[9]),
        lambda lines: lines.pop(9),
        lambda lines: lines.__setitem__(9, lines[9].replace(b"0", b"1")),
    ],
)
def test_a_log_that_was_damaged_in_its_middle_is_refused(
    harm: Callable[[list[bytes]], object], run: Path
) -> None:
    log = run / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    harm(lines)
    log.write_bytes(b"".join(lines))
    refused(run, r"events\.jsonl (line 1[01]|was edited)")


def test_a_bit_that_flipped_in_any_blob_is_found(stopped: Path, tmp_path: Path) -> None:
    refs = checkpoint.load_state(stopped).reachable()
    assert len(refs) > 8
    for ref in sorted(refs):
        run = Path(shutil.copytree(stopped, tmp_path / ref))
        path = run / "blobs" / f"{ref}.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 4
        path.write_bytes(data)
        refused(run, f"{ref}.* is damaged")


def test_what_another_process_writes_into_the_log_is_found_at_the_next_checkpoint(
    run: Path,
) -> None:
    def scribble(state: checkpoint.EcologyState, *_: Any) -> None:
        if state.generation == 7:
            with (run / "events.jsonl").open("ab") as file:
                file.write(b"hello\n")

    with pytest.raises(RunError, match=r"another process has written to it"):
        resume(run, host=ToyHost(), watch=scribble)


# A config that was edited by hand.


def test_an_end_that_was_edited_by_hand_is_named_until_it_is_typed(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("generations: 8", "generations: 9"))
    refused(run, r"run\.generations was 8, is 9.*symbiont resume .* run\.generations=")
    resume(run, host=ToyHost(), overrides=["run.generations=9"], should_stop=lambda: True)
    assert resume(run, host=ToyHost()).state.generation == 9


def test_a_mechanism_without_knobs_that_was_edited_by_hand_is_named(tmp_path: Path) -> None:
    config = toy_config(strategy={"kind": "ecology", "mechanisms": {"merging": {}}})
    start(config, tmp_path / "run", host=ToyHost(), should_stop=lambda: True)
    for now, said in (
        ({"speciation": {}}, r"merging was \{\}, is None; .*speciation was None"),
        ({}, r"mechanisms was None, is \{\}; .*merging was \{\}, is None"),
    ):
        changed = config.model_copy(update={"strategy": {"kind": "ecology", "mechanisms": now}})
        (tmp_path / "run/config.yaml").write_text(dump_config(changed))
        refused(tmp_path / "run", said)


def test_a_comment_in_the_config_changes_nothing(run: Path, whole: dict[str, bytes]) -> None:
    config = run / "config.yaml"
    config.write_text("# mine\n" + config.read_text())
    resume(run, host=ToyHost())
    assert ending(run) == whole


def test_other_versions_are_named_and_the_run_goes_on(
    run: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = provenance.versions() | {"torch": "99.1"}
    monkeypatch.setattr(provenance, "versions", lambda: now)
    with pytest.warns(
        EcologyWarning, match=r"founded with torch .*this is torch 99\.1.*bit by bit"
    ):
        resume(run, host=ToyHost())
    assert ending(run) == whole


# Links: nothing is written elsewhere.


@pytest.mark.parametrize(
    "name", ["lock", "state.json.new", "state.previous.json.new", "events.jsonl", "timings.jsonl"]
)
def test_a_link_in_the_folder_is_refused_and_its_target_stays(
    name: str, run: Path, tmp_path: Path
) -> None:
    target = tmp_path / "precious.txt"
    content = (run / name).read_bytes() if (run / name).exists() else b"precious"
    target.write_bytes(content or b"precious")
    before = target.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    with pytest.raises(RunError, match=f"{name} is a link") as error:
        resume(run, host=ToyHost())
    assert "\n" not in str(error.value)
    assert target.read_bytes() == before


def test_the_name_of_a_lock_does_not_empty_a_file(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_bytes(b"precious")
    (run / "lock").unlink()
    (run / "lock").hardlink_to(target)
    (run / "state.json.new").hardlink_to(target)
    resume(run, host=ToyHost())
    assert target.read_bytes() == b"precious"


def test_a_folder_of_blobs_that_is_a_link_is_refused_and_nothing_is_deleted_there(
    run: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / "blobs").rename(elsewhere)
    (elsewhere / f"{'1' * 32}.safetensors").write_bytes(b"of another run")
    (run / "blobs").symlink_to(elsewhere)
    with pytest.raises(RunError, match="blobs is a link"):
        resume(run, host=ToyHost())
    assert (elsewhere / f"{'1' * 32}.safetensors").exists()


@pytest.mark.parametrize("name", ["events.jsonl", "state.json", "lock", "blobs/x.safetensors"])
def test_a_folder_in_the_place_of_a_file_is_refused_in_one_line(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    with pytest.raises(RunError) as error:
        resume(run, host=ToyHost())
    assert "\n" not in str(error.value)


# Checksums.


def test_a_run_without_checksums_is_refused(run: Path) -> None:
    state, facts = run / "state.json", run / "provenance.json"
    whole = state.read_bytes()
    lines = whole.splitlines(keepends=True)
    state.write_bytes(b"".join(line for line in lines if b'"checkpoint"' not in line))
    refused(run, r"state\.json is damaged: expected a checksum in its second line")
    state.write_bytes(whole)
    edit(facts, lambda known: known.pop("checksum"))
    refused(run, r"provenance\.json is damaged or was edited: bring back a copy")


def test_a_state_that_contradicts_itself_is_refused_whatever_its_checksum(run: Path) -> None:
    state = checkpoint.load_state(run)
    state.ledger.world += 7
    checkpoint.save_state(state, run)
    refused(run, "accounts hold 7 mATP, expected 0")
    state.ledger.balances.popitem()
    state.ledger.world = -sum(state.ledger.balances.values())
    checkpoint.save_state(state, run)
    refused(run, "and one for each of the living")

"""``symbiont verify``: what is damaged is told, and nothing but time is lost where the run can go
back to the checkpoint before the last one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.ecology.state import read_checkpoint
from symbiont_ecology.run import verification
from symbiont_ecology.run.verification import go_back, parts_of
from toy import Crash, ToyHost, toy_config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that was stopped in generation 5, with checkpoints in every second; a complete one."""
    place, left = tmp_path_factory.mktemp("made"), iter(range(5, 0, -1))
    config = toy_config(seed=3, generations=9, checkpoint_every=2)
    start(config, place / "stopped", host=ToyHost(), should_stop=lambda: next(left) == 1)
    start(config, place / "complete", host=ToyHost())
    return {"stopped": place / "stopped", "complete": place / "complete"}


@pytest.fixture
def run(made: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made["stopped"], tmp_path / "run"))


def files(folder: Path) -> dict[str, bytes]:
    """What must be equal, byte for byte."""
    names = "config.yaml", "state.json", "state.previous.json", "events.jsonl", "transcripts.jsonl"
    paths = [*(folder / name for name in names), *sorted((folder / "blobs").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def faults(folder: Path) -> dict[str, str]:
    """What is wrong, by the name of the part."""
    return {name: fault for name, fault in parts_of(folder).items() if fault}


def blobs(run: Path, name: str) -> set[str]:
    return read_checkpoint(run / name).state.reachable()


def flip_last_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def damage_a_new_blob(run: Path) -> None:
    """One that the checkpoint before does not need."""
    new = blobs(run, "state.json") - blobs(run, "state.previous.json")
    flip_last_bit(run / "blobs" / f"{min(new)}.safetensors")


def damage_a_late_line(run: Path) -> None:
    log = run / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[-2] = b"garbage\n"
    log.write_bytes(b"".join(lines))


def cut_the_log(run: Path) -> None:
    log = run / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-400])


MENDABLE: list[Callable[[Path], object]] = [
    lambda run: (run / "state.json").unlink(),
    lambda run: (run / "state.json").write_bytes(b""),
    lambda run: flip_last_bit(run / "state.json"),
    damage_a_new_blob,
    damage_a_late_line,
    cut_the_log,
]


def test_of_a_run_in_order_every_part_is_whole(made: dict[str, Path]) -> None:
    for folder in made.values():
        assert not faults(folder)
        names = {"state.json", "state.previous.json", "config.yaml", "provenance.json"}
        assert names < set(parts_of(folder))


@pytest.mark.parametrize("harm", MENDABLE)
def test_a_run_that_went_back_ends_as_if_nothing_had_happened(
    harm: Callable[[Path], object], run: Path, made: dict[str, Path]
) -> None:
    harm(run)
    with pytest.raises(RunError, match=r"symbiont verify .*run"):
        resume(run, host=ToyHost())
    assert "state.json" in faults(run)
    assert go_back(run).startswith("gone back to generation 4: ")
    assert not faults(run)
    assert resume(run, host=ToyHost()).is_complete
    assert files(run) == files(made["complete"])


def test_what_both_checkpoints_need_cannot_be_repaired_and_it_is_said_how_to_live_it_again(
    run: Path,
) -> None:
    both = blobs(run, "state.json") & blobs(run, "state.previous.json")
    flip_last_bit(run / "blobs" / f"{min(both)}.safetensors")
    with pytest.raises(RunError, match=r"symbiont run .*config\.yaml --out") as error:
        go_back(run)
    assert "\n" not in str(error.value)


def test_every_part_that_is_damaged_is_named(run: Path) -> None:
    config, facts = run / "config.yaml", run / "provenance.json"
    config.write_text(config.read_text().replace("seed: 3", "seed: 4"))
    assert "seed was 3, is 4" in faults(run)["config.yaml"]
    facts.write_text(facts.read_text().replace("toy-0", "toy-1"))
    others = "transcripts.jsonl", "timings.jsonl", "evaluations.jsonl"
    (run / others[0]).write_bytes(b"nonsense\n")
    (run / others[1]).write_bytes(b'{"generation": 1}\n')
    (run / others[2]).write_bytes(b'{"a": 1}\ngarbage\n{"b": 2}\n')
    flip_last_bit(run / "state.previous.json")
    assert {*others, config.name, facts.name, "state.previous.json"} == set(faults(run))


def test_who_dies_on_the_way_back_goes_it_again_with_the_same_result(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Crash

    run = Path(shutil.copytree(made["stopped"], tmp_path / "run"))
    flip_last_bit(run / "state.json")
    with monkeypatch.context() as patch:
        patch.setattr(verification, "write_whole", die)
        with pytest.raises(Crash):
            go_back(run)
    go_back(run)
    assert resume(run, host=ToyHost()).is_complete
    assert files(run) == files(made["complete"])


def test_a_run_goes_on_without_the_checkpoint_before(run: Path, made: dict[str, Path]) -> None:
    flip_last_bit(run / "state.previous.json")
    resume(run, host=ToyHost())
    assert files(run) == files(made["complete"])

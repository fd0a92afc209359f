"""``symbiont verify``: what is whole is told, what is not can be repaired, and nothing but time is
lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.ecology.state import read_checkpoint
from symbiont_ecology.run import verification
from symbiont_ecology.run.start import resume, start
from symbiont_ecology.run.verification import parts_of, repair
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
    return {part.name: part.fault for part in parts_of(folder) if part.fault}


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
        parts = [part.name for part in parts_of(folder)]
        assert {"state.json", "state.previous.json", "config.yaml", "provenance.json"} < {*parts}


@pytest.mark.parametrize("harm", MENDABLE)
def test_a_run_that_was_repaired_ends_as_if_nothing_had_happened(
    harm: Callable[[Path], object], run: Path, made: dict[str, Path]
) -> None:
    harm(run)
    with pytest.raises(RunError, match=r"symbiont verify .*run"):
        resume(run, host=ToyHost())
    assert "state.json" in faults(run)
    (said,) = repair(run)
    assert said.startswith("state.json: gone back to generation 4; 1 of 5 are lived again")
    assert not faults(run)
    assert resume(run, host=ToyHost()).is_complete
    assert files(run) == files(made["complete"])


@pytest.mark.parametrize("harm", MENDABLE[:2])
def test_a_complete_run_that_was_repaired_ends_as_it_was(
    harm: Callable[[Path], object], made: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(made["complete"], tmp_path / "run"))
    harm(run)
    repair(run)
    assert resume(run, host=ToyHost()).is_complete
    assert files(run) == files(made["complete"])


def test_what_both_checkpoints_need_cannot_be_repaired_and_it_is_said_how_to_live_it_again(
    run: Path, made: dict[str, Path]
) -> None:
    both = blobs(run, "state.json") & blobs(run, "state.previous.json")
    flip_last_bit(run / "blobs" / f"{min(both)}.safetensors")
    with pytest.raises(RunError, match=r"symbiont run .*config\.yaml --out") as error:
        repair(run)
    assert "\n" not in str(error.value)


def test_a_config_that_was_edited_is_written_again(run: Path, made: dict[str, Path]) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 3", "seed: 4"))
    (wrong,) = faults(run).values()
    assert "seed was 3, is 4" in wrong
    repair(run)
    resume(run, host=ToyHost())
    assert files(run) == files(made["complete"])


def test_files_that_a_run_does_without_are_set_aside(run: Path) -> None:
    (run / "transcripts.jsonl").write_bytes(b"nonsense\n")
    (run / "timings.jsonl").write_bytes(b'{"generation": 1}\n')
    (run / "evaluated").mkdir()
    (run / "evaluated/3.json").write_bytes(b"{}")
    (run / "evaluations.jsonl").write_bytes(b'{"a": 1}\ngarbage\n{"b": 2}\n')
    assert len(repair(run)) == 4
    assert (run / "transcripts.jsonl.damaged").read_bytes() == b"nonsense\n"
    assert (run / "evaluations.jsonl").read_bytes() == b'{"a": 1}\n{"b": 2}\n'
    assert not faults(run)
    assert resume(run, host=ToyHost()).is_complete


def test_a_repair_that_dies_in_any_write_is_done_again_with_the_same_result(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(name: str) -> Path:
        run = Path(shutil.copytree(made["stopped"], tmp_path / name))
        flip_last_bit(run / "state.json")
        (run / "evaluations.jsonl").write_bytes(b'{"a": 1}\ngarbage\n')
        return run

    def every_file(run: Path) -> dict[str, bytes]:
        paths = (path for path in run.rglob("*") if path.is_file())
        return {str(path.relative_to(run)): path.read_bytes() for path in paths}

    def die_in(number: int) -> Callable[..., None]:
        def write(*arguments: Any) -> None:
            nonlocal number
            number -= 1
            if number < 0:
                raise Crash
            write_whole(*arguments)

        return write

    repair(whole := damaged("whole"))
    for number in range(3):  # the state, the damaged lines, the others
        run = damaged(f"killed-{number}")
        with monkeypatch.context() as patch:
            patch.setattr(verification, "write_whole", die_in(number))
            with pytest.raises(Crash):
                repair(run)
        repair(run)
        assert every_file(run) == every_file(whole)


@pytest.mark.parametrize("name", ["provenance.json", "provenance.copy.json"])
@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"{}"),
        lambda path: path.write_text(path.read_text().replace("toy-0", "toy-1")),
    ],
    ids=["gone", "empty", "another host"],
)
def test_a_damaged_provenance_is_written_again_from_its_copy_and_the_copy_from_it(
    name: str, harm: Callable[[Path], object], run: Path, made: dict[str, Path]
) -> None:
    before = (run / "provenance.json").read_bytes()
    harm(run / name)
    is_copy_gone = name != "provenance.json" and not (run / name).exists()
    assert (not faults(run)) == is_copy_gone  # nothing is lost by that
    said = repair(run)
    assert all(one.startswith(f"{name}: written again from ") for one in said)
    assert len(said) == (not is_copy_gone)
    resume(run, host=ToyHost())
    for one in ("provenance.json", "provenance.copy.json"):
        assert (run / one).read_bytes() == before
    assert not faults(run)
    assert files(run) == files(made["complete"])


def test_a_provenance_that_is_lost_with_its_copy_cannot_be_repaired(run: Path) -> None:
    for name in ("provenance.json", "provenance.copy.json"):
        (run / name).unlink()
    assert repair(run) == []
    assert list(faults(run)) == ["provenance.json"]


def test_a_run_that_goes_on_without_the_checkpoint_before_says_so(
    run: Path, made: dict[str, Path]
) -> None:
    flip_last_bit(run / "state.previous.json")
    with pytest.warns(match="the checkpoint before the last one cannot be used"):
        resume(run, host=ToyHost())
    assert files(run) == files(made["complete"])

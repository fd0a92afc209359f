"""A run that stops or crashes anywhere ends, once resumed, in the same bytes as one never
stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resumed import GENERATIONS, config, finish, stop_after, stopped, trace
from runs import resume, start
from symbiont_ecology import Run
from symbiont_ecology.base.errors import HostError, RunError
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run.config import RunConfig
from toy import Crash, ToyHost, toy_config


def test_two_runs_of_one_seed_are_equal_and_those_of_two_seeds_are_not(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    start(config(), tmp_path / "again", host=ToyHost())
    assert trace(tmp_path / "again") == whole
    start(config().model_copy(update={"seed": 4}), tmp_path / "other", host=ToyHost())
    assert trace(tmp_path / "other")["events.jsonl"] != whole["events.jsonl"]


@pytest.mark.parametrize("stop", range(1, GENERATIONS + 1))
def test_a_run_stopped_at_any_generation_resumes_exactly(
    stop: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    finished = start(config(), tmp_path / "run", host=ToyHost(), should_stop=stop_after(stop))
    assert finished.state.generation == stop
    assert finished.is_complete == (stop == GENERATIONS)
    assert checkpoint.load_state(tmp_path / "run") == finished.state
    assert finish(tmp_path / "run") == whole


@pytest.mark.parametrize("count", [1, 5, GENERATIONS])
def test_whoever_breaks_out_of_the_generations_leaves_a_checkpoint(
    count: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    folder = tmp_path / "run"
    for generation in Run.start(config(), folder=folder, host=ToyHost()):
        assert generation.state.generation == generation.summary.generation + 1
        if generation.state.generation == count:
            break
    assert checkpoint.load_state(folder) == generation.state
    assert generation.state.generation == count
    assert finish(folder) == whole


def test_who_iterates_keeps_others_out_and_founds_nothing_twice(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    folder = tmp_path / "run"
    lived = iter(Run.start(config(), folder=folder, host=ToyHost()))
    other = iter(Run.start(config(), folder=folder, host=ToyHost()))
    next(lived)
    with pytest.raises(RunError, match="another process is writing"):
        next(iter(Run.open(folder, host=ToyHost())))
    lived.close()
    with pytest.raises(RunError, match="holds a run already"):
        next(other)
    assert finish(tmp_path / "run") == whole


@pytest.mark.parametrize("call", range(2 * GENERATIONS + 1))
def test_a_crash_at_any_call_of_the_host_loses_nothing(
    call: int, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    with pytest.raises(Crash):
        start(config(), tmp_path / "run", host=ToyHost(crash_at=call))
    assert finish(tmp_path / "run") == whole


@pytest.mark.parametrize(
    "tail",
    [b'{"seq":', b"\x00\xff\xfe", b'{"seq":9999,"kind":"Whole","generation":7}\n' * 3, b"\n"],
)
def test_whatever_a_crash_left_at_the_end_of_the_log_is_dropped(
    tail: bytes, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    with (stopped(tmp_path / "run") / "events.jsonl").open("ab") as file:
        file.write(tail)
    assert finish(tmp_path / "run") == whole


def test_half_written_files_of_a_crash_are_ignored_and_removed(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    folder = stopped(tmp_path / "run")
    names = ("state.json", "config.yaml", "provenance.json", "transcripts.jsonl", "trackers.json")
    halves = [folder / f"{name}.new" for name in names]
    for half in halves:
        half.write_bytes(b'{"torn')
    (folder / "blobs" / f"{'0' * 40}.safetensors.tmp").write_bytes(b"torn")
    (folder / "blobs" / f"{'1' * 40}.safetensors").write_bytes(b"of nobody")
    with (folder / "timings.jsonl").open("a") as file:
        file.write('{"generation":')
    assert finish(folder) == whole
    assert not any(half.exists() for half in halves)


def test_files_of_others_stay_in_the_folder_of_a_run_whatever_their_ending(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    folder = stopped(tmp_path / "run")
    others = [folder / "notes.new", folder / "plan.json.new"]
    for other in others:
        other.write_text("mine")
    assert finish(folder) == whole
    assert all(other.read_text() == "mine" for other in others)


def test_a_run_that_left_nothing_but_its_config_begins_again(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_bytes(whole["config.yaml"])
    assert finish(tmp_path / "run") == whole


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, whole: dict[str, bytes]) -> None:
    start(config(), tmp_path / "run", host=ToyHost())
    host = ToyHost()
    assert resume(tmp_path / "run", host=host).is_complete
    assert host.rolled == []
    assert trace(tmp_path / "run") == whole


def test_blobs_that_a_death_at_the_last_moment_left_are_removed(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    start(config(), tmp_path / "run", host=ToyHost())
    (tmp_path / "run/blobs" / f"{'1' * 40}.safetensors").write_bytes(b"of nobody")
    resume(tmp_path / "run", host=ToyHost())
    assert trace(tmp_path / "run") == whole


def test_blobs_of_the_dead_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def watch(state: checkpoint.EcologyState, *_: Any) -> None:
        if state.generation % 3 == 0:
            before = checkpoint.read_checkpoint(folder / "state.previous.json").state
            assert before.generation == state.generation - 3
            needed = state.reachable() | before.reachable()
            assert {path.stem for path in (folder / "blobs").iterdir()} == needed
            seen.update(needed)

    seen = set[str]()
    start(toy_config(generations=15), folder, host=ToyHost(), watch=watch)
    assert len(seen) > 2 * len(list((folder / "blobs").iterdir()))


def test_a_finished_run_that_goes_on_equals_one_that_was_longer_from_the_start(
    tmp_path: Path,
) -> None:
    start(toy_config(seed=3, generations=7), tmp_path / "longer", host=ToyHost())
    resume(tmp_path / "longer", overrides=["run.generations=13"], host=ToyHost())
    start(toy_config(seed=3, generations=13), tmp_path / "whole", host=ToyHost())
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "longer" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


# Who may write where.


def test_a_run_that_another_process_founds_and_ends_meanwhile_is_not_founded_again(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(_: RunConfig) -> ToyHost:
        """Takes as long as the other needs."""
        start(config(), tmp_path / "run", host=ToyHost())
        return ToyHost()

    monkeypatch.setattr("symbiont_ecology.run.run.build_host", loaded)
    with pytest.raises(RunError, match="holds a run already"):
        start(toy_config(seed=4, generations=GENERATIONS), tmp_path / "run")
    assert trace(tmp_path / "run") == whole


def test_another_host_is_refused_by_its_fingerprint(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    before = trace(stopped(tmp_path / "run"))
    with pytest.raises(HostError, match=r"toy-0.*toy-1"):
        resume(tmp_path / "run", host=ToyHost(seed=1))
    assert trace(tmp_path / "run") == before
    assert finish(tmp_path / "run") == whole


def test_the_checkpoint_is_json_that_a_person_can_read(whole: dict[str, bytes]) -> None:
    state = json.loads(whole["state.json"])
    assert state["generation"] == GENERATIONS
    assert sum(state["ledger"]["balances"].values()) + state["ledger"]["world"] == 0
    assert state["next_seq"] == len(whole["events.jsonl"].splitlines()) - 1

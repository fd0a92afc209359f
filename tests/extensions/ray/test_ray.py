"""A run whose host is in Ray's workers: the same bytes however many they are, and whoever dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray")

import ray

from ray_hosts import ToySource, ray_host
from runs import resume, start
from symbiont_ecology.base.errors import ConfigError, HostError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.ray.workers import ROWS_OF_HOST, shards_of
from symbiont_ecology.run.config import RunConfig, load_config
from toy import ToyHost, toy_config, toy_ecology


def books(folder: Path) -> dict[str, bytes]:
    """What must be equal."""
    files = [folder / "state.json", folder / "events.jsonl", *sorted((folder / "blobs").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def town(generations: int) -> RunConfig:
    """A toy run of many shards."""
    return toy_config(5, generations, strategy=toy_ecology(questions=2, samples=2))


@given(slots=st.lists(st.integers(HOST_SLOT, 40), max_size=300), most=st.integers(1, 20))
def test_every_row_is_in_one_shard_with_its_slot(slots: list[int], most: int) -> None:
    shards = shards_of(slots, most)
    assert sorted(row for shard in shards for row in shard.rows) == list(range(len(slots)))
    held = [slot for shard in shards for slot in shard.slots]
    assert sorted(held) == sorted(set(slots) - {HOST_SLOT})
    for shard in shards:
        assert len(shard.slots) <= most
        assert shard.slots == tuple(sorted(shard.slots))
        assert {slots[row] for row in shard.rows} == set(shard.slots or (HOST_SLOT,))
        assert shard.slots or len(shard.rows) <= ROWS_OF_HOST


def test_a_run_in_shards_lives_as_one_on_one_host(tmp_path: Path) -> None:
    config = toy_config(generations=8)
    start(config, tmp_path / "whole", host=ToyHost())
    start(config, tmp_path / "shards", host=ray_host(ToySource(), workers=2, slots_per_shard=2))
    whole, shards = (
        [
            replace(event, calls=0) if isinstance(event, GenerationEnded) else event
            for event in read_events(tmp_path / name / "events.jsonl")
        ]
        for name in ("whole", "shards")
    )
    assert shards == whole


def test_a_language_model_lives_the_same_with_one_worker_two_and_three(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        spec = f"{{kind: ray, workers: {count}, slots_per_shard: 2, seconds: 300}}"
        changes = ["run.generations=3", "host.memory_mb=200", f"executor={spec}"]
        start(load_config("base", changes), tmp_path / str(count))
    assert books(tmp_path / "1") == books(tmp_path / "2") == books(tmp_path / "3")


def kill_workers(times: int, pause: float, is_over: threading.Event, killed: list[int]) -> None:
    """Kills a worker that is at work, again and again."""
    while len(killed) < times and not is_over.wait(pause):
        for process in psutil.Process().children(recursive=True):
            if "ray::Worker.do" in " ".join(process.cmdline()) and process.pid not in killed:
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)
                break


def test_workers_killed_in_mid_generation_leave_the_bytes_of_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    start(town(5), tmp_path / "run", host=ray_host(ToySource(), workers=1, slots_per_shard=2))
    two = ray_host(ToySource(), workers=2, slots_per_shard=2)
    resume(tmp_path / "run", overrides=["run.generations=12"], host=two)
    host = ray_host(ToySource(pause=0.15), workers=2, slots_per_shard=2)
    is_over, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_workers, args=(3, 1.0, is_over, killed), daemon=True)
    killer.start()
    start(town(12), tmp_path / "disturbed", host=host)
    is_over.set()
    killer.join()
    assert len(killed) == 3
    assert books(tmp_path / "disturbed") == books(tmp_path / "run")


def test_a_shard_that_kills_every_worker_ends_the_run_in_one_line(tmp_path: Path) -> None:
    host = ray_host(ToySource(fault="die"), workers=2)
    with pytest.raises(RunError, match="workers were lost over the same shard") as caught:
        start(town(3), tmp_path, host=host)
    assert "\n" not in str(caught.value)
    with pytest.raises(HostError, match=r"^expected a host on this machine, found none$"):
        ray_host(ToySource(fault="load"), workers=1)


@pytest.fixture
def no_ray() -> Iterator[None]:
    """Ray is not running in this process."""
    ray.shutdown()
    yield
    ray.shutdown()


@pytest.mark.usefixtures("no_ray")
def test_a_cluster_that_does_not_answer_is_an_error_within_the_limit() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        began = time.monotonic()
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(RunError, match="nobody answered within 2 s"):
                ray_host(ToySource(), address=address, seconds=2)
        with pytest.raises(ConfigError, match=r"executor.address: expected auto, HOST:PORT"):
            ray_host(ToySource(), address="nowhere", seconds=2)
        assert time.monotonic() - began < 30

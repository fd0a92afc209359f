"""A run whose host is in Ray's workers: the same bytes however many they are, and whoever dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_hosts import Squatter, ToySource, memory_here, ray_host
from symbiont_ecology.config import RunConfig, load_config
from symbiont_ecology.engine import build
from symbiont_ecology.engine.executors.sharded import ShardedHost
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError, HostError, MissingExtraError, RunError
from toy import ToyHost, toy_config, toy_ecology

ray = pytest.importorskip("ray")


def books(folder: Path) -> dict[str, bytes]:
    """What must be equal."""
    files = [folder / "state.json", folder / "events.jsonl", *sorted((folder / "blobs").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def town(generations: int) -> RunConfig:
    """A toy run of many shards."""
    return toy_config(5, generations, strategy=toy_ecology(questions=2, samples=2))


def test_a_toy_lives_the_same_with_one_worker_two_and_three(tmp_path: Path) -> None:
    config = town(8)
    for count in (1, 2, 3):
        host = ray_host(ToySource(), workers=count, slots_per_shard=2)
        assert len(host.workers) == count
        assert len({worker.pid for worker in host.workers}) == count
        start(config, tmp_path / str(count), host=host)
    assert books(tmp_path / "1") == books(tmp_path / "2") == books(tmp_path / "3")


def test_a_language_model_lives_the_same_with_one_worker_two_and_three(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        executor = f"{{kind: ray, workers: {count}, slots_per_shard: 2, seconds: 300}}"
        changes = ["run.generations=3", "host.memory_mb=200", f"executor={executor}"]
        start(load_config("base", changes), tmp_path / str(count))
    assert books(tmp_path / "1") == books(tmp_path / "2") == books(tmp_path / "3")


class Killer(threading.Thread):
    """Kills a worker again and again, until the run is over."""

    def __init__(self, host: ShardedHost, kills: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.host, self.kills, self.pause, self.killed = host, kills, pause, list[int]()
        self.is_over = threading.Event()

    def run(self) -> None:
        """Whoever is at work, in the midst of a call."""
        while len(self.killed) < self.kills and not self.is_over.wait(self.pause):
            alive = [one.pid for one in self.host.workers if one.pid not in self.killed]
            if alive:
                os.kill(alive[0], signal.SIGKILL)
                self.killed.append(alive[0])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    start(town(12), folder, host=ray_host(ToySource(), workers=2, slots_per_shard=2))
    return books(folder)


def test_workers_killed_in_mid_generation_leave_the_bytes_of_an_undisturbed_run(
    undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    host = ray_host(ToySource(pause=0.15), workers=2, slots_per_shard=2)
    killer = Killer(host, kills=3, pause=1.0)
    killer.start()
    start(town(12), tmp_path / "run", host=host)
    killer.is_over.set()
    assert len(killer.killed) == 3
    assert books(tmp_path / "run") == undisturbed


def test_a_run_goes_on_with_other_workers(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(town(5), folder, host=ray_host(ToySource(), workers=1, slots_per_shard=2))
    two = ray_host(ToySource(), workers=2, slots_per_shard=2)
    resume(folder, overrides=["run.generations=12"], host=two)
    assert books(folder) == undisturbed


def test_a_shard_that_kills_every_worker_ends_the_run_in_one_line(tmp_path: Path) -> None:
    host = ray_host(ToySource(fault="die"), workers=2)
    with pytest.raises(RunError, match=r"3 workers were lost over the same shard.*memory_mb"):
        start(town(3), tmp_path, host=host)


def test_all_workers_lost_and_none_to_come_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_here()
    host = ray_host(ToySource(bytes=int(memory / 1.5)), workers=1)
    # Another user's worker takes the place as soon as it is free.
    other = ray.remote(num_cpus=0, memory=int(memory / 1.5))(Squatter).remote()
    os.kill(host.workers[0].pid, signal.SIGKILL)
    assert ray.get(other.sit.remote()) == "here"
    wait = ray.wait  # the limit is long enough to load a host; here nobody loads one
    monkeypatch.setattr(ray, "wait", lambda *what, **how: wait(*what, **{**how, "timeout": 2}))
    with pytest.raises(RunError, match=r"all workers were lost .*resume the run"):
        start(town(3), tmp_path, host=host)


def test_a_host_that_a_worker_cannot_load_says_why() -> None:
    with pytest.raises(HostError, match=r"^expected a host on this machine, found none$"):
        ray_host(ToySource(fault="load"), workers=1)


def test_a_worker_that_no_machine_holds_is_an_error_before_any_is_started() -> None:
    began = time.monotonic()
    for workers in ("auto", 1):
        with pytest.raises(RunError, match=r"one worker takes 1000000 MB.*no machine has them"):
            ray_host(ToySource(bytes=10**12), workers=workers)
    assert time.monotonic() - began < 60


def test_as_many_workers_as_memory_holds() -> None:
    memory = memory_here()
    host = ray_host(ToySource(bytes=int(memory / 1.5)), workers="auto")
    assert len(host.workers) == 1


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
        with pytest.raises(RunError, match="expected a Ray cluster"):
            ray_host(ToySource(), address="auto", seconds=2)
        with pytest.raises(ConfigError, match=r"executor.address: expected auto, HOST:PORT"):
            ray_host(ToySource(), address="nowhere", seconds=2)
        assert time.monotonic() - began < 30


def test_an_executor_is_checked_before_a_model_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no executor 'rey'; did you mean 'ray'"):
        build.check(load_config("base", ["executor=rey"]))
    with pytest.raises(ConfigError, match="unknown key 'worker'; did you mean 'workers'"):
        build.check(load_config("base", ["executor={kind: ray, worker: 2}"]))
    missing = "symbiont_ecology.engine.executors.ray_cluster.find_spec"
    monkeypatch.setattr(missing, lambda name: None)
    with pytest.raises(MissingExtraError, match=r"symbiont-ecology\[ray\]"):
        build.check(load_config("base", ["executor=ray"]))


def test_the_executor_is_no_part_of_what_decides_a_run(tmp_path: Path) -> None:
    start(toy_config(generations=2), tmp_path, host=ToyHost())
    with pytest.raises(ConfigError, match="a run that exists can only change"):
        resume(tmp_path, overrides=["executor.slots_per_shard=3"], host=ToyHost())

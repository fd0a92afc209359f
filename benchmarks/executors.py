"""One population on the kernel in this process, and on Ray's workers: rollouts and lessons a
second.

    python benchmarks/executors.py --json executors.json

All of it is timed in one run, alternately, so that a busy machine is busy for everyone: the kernel
with one thread and with two, Ray with one worker and with two. ``--kills 20`` then kills a worker
in each of so many calls, and compares what comes back with what came undisturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from symbiont_ecology.config import HostConfig
from symbiont_ecology.engine.build import KernelSource
from symbiont_ecology.engine.executors.ray_executor import RayExecutor
from symbiont_ecology.engine.executors.sharded import ShardedHost
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.types import Completions, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState

RANK, NEW_TOKENS = 4, 16


@dataclass(frozen=True)
class Population:
    """So many adapters with so many questions each."""

    adapters: tuple[AdapterWeights, ...]
    rows: tuple[Request, ...]
    lessons: LearningBatch

    @classmethod
    def of(cls, host: Host, count: int, questions: int) -> Population:
        """Random adapters, sums to solve, and as many lessons."""
        adapters = tuple(
            AdapterWeights.random(host.layout, RANK, 1.0, np.random.default_rng(seed), 0.02)
            for seed in range(count)
        )
        prompts = [f"math.add: {47 + number}+{8 * number}\n" for number in range(questions)]
        rows = tuple(
            Request(prompt, slot, NEW_TOKENS) for slot in range(count) for prompt in prompts
        )
        (answer,) = host.encode_answers(["=55"])
        lessons = tuple(Lesson(row.prompt, answer, row.slot) for row in rows)
        return cls(adapters, rows, LearningBatch(lessons, dict.fromkeys(range(count), 1e-3)))

    def roll_out(self, host: Host) -> Completions:
        """Sampled answers to every question."""
        for slot, adapter in enumerate(self.adapters):
            host.place(slot, adapter)
        draws = [np.random.default_rng([1, row]) for row in range(len(self.rows))]
        return host.rollout(self.rows, draws, Decoding(1.0, min_new_tokens=NEW_TOKENS))

    def learn(self, host: Host) -> dict[int, AdapterWeights]:
        """One step of everyone."""
        weights = dict(enumerate(self.adapters))
        states = {slot: OptimizerState() for slot in weights}
        return host.learn(self.lessons, weights, states)[0]


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed(
    hosts: Mapping[str, tuple[Host, int]], population: Population, repeats: int
) -> dict[str, dict[str, float]]:
    """The median seconds of rollouts and of lessons by each host, which take turns."""
    samples: dict[str, dict[str, list[float]]] = {
        name: {"rollouts": [], "lessons": []} for name in hosts
    }
    for repeat in range(repeats + 1):
        for name, (host, threads) in hosts.items():
            torch.set_num_threads(threads)
            rollouts = seconds(lambda host=host: population.roll_out(host))  # type: ignore[misc]
            lessons = seconds(lambda host=host: population.learn(host))  # type: ignore[misc]
            if repeat:  # the first time warms up
                samples[name]["rollouts"].append(rollouts)
                samples[name]["lessons"].append(lessons)
    return {
        name: {work: median(times) for work, times in kinds.items()}
        for name, kinds in samples.items()
    }


def killed(host: ShardedHost, population: Population, kills: int, usual: float) -> int:
    """How many of so many calls, in each of which a worker is killed, answer as one undisturbed."""
    calm, same = population.roll_out(host), 0
    for number in range(kills):
        pid = host.workers[0].pid
        moment = usual * (0.2 + 0.6 * number / kills)
        timer = threading.Timer(moment, os.kill, (pid, signal.SIGKILL))
        timer.start()
        again = population.roll_out(host)
        timer.join()
        same += (
            again.texts == calm.texts
            and np.array_equal(again.log_probabilities, calm.log_probabilities)
            and np.array_equal(again.ids, calm.ids)
        )
        print(f"killed {number + 1} of {kills}, {same} with the same bytes", flush=True)
    return same


def main() -> None:
    """Prints the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="embedded", help="folder or name of the host")
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--questions", type=int, default=8, help="of each adapter")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--per-shard", type=int, default=32, help="slots of a shard")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = HostConfig(model=arguments.host, slots=arguments.population, rank=RANK, memory_mb=1024)
    source = KernelSource(config, is_chat=False)
    kernel = source.load()
    crews = {
        count: RayExecutor(count, slots_per_shard=arguments.per_shard, seconds=600).host(source)
        for count in (1, 2)
    }
    hosts: dict[str, tuple[Host, int]] = {
        "kernel, 1 thread": (kernel, 1),
        "kernel, 2 threads": (kernel, 2),
        "ray, 1 worker": (crews[1], 1),
        "ray, 2 workers": (crews[2], 1),
    }
    population = Population.of(kernel, arguments.population, arguments.questions)
    times = timed(hosts, population, arguments.repeats)
    rows, result = len(population.rows), dict[str, object]()
    result["rows"], result["seconds"] = rows, times
    for name, kinds in times.items():
        line = ", ".join(f"{work} {rows / duration:.0f} rows/s" for work, duration in kinds.items())
        print(f"{name:18s} {line}")
    pairs = {
        "ray, 2 workers ÷ ray, 1 worker": ("ray, 2 workers", "ray, 1 worker"),
        "ray, 2 workers ÷ kernel, 1 thread": ("ray, 2 workers", "kernel, 1 thread"),
        "ray, 1 worker ÷ kernel, 1 thread": ("ray, 1 worker", "kernel, 1 thread"),
        "kernel, 2 threads ÷ 1": ("kernel, 2 threads", "kernel, 1 thread"),
    }
    result["ratios"] = {
        name: {work: times[slow][work] / times[fast][work] for work in times[fast]}
        for name, (fast, slow) in pairs.items()
    }
    print(json.dumps(result["ratios"], indent=1, ensure_ascii=False))
    if arguments.kills:
        typical = times["ray, 2 workers"]["rollouts"]
        same = killed(crews[2], population, arguments.kills, typical)
        result["kills"], result["same"] = arguments.kills, same
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What a run would take on this machine: what its host is asked, and hours from a few seconds of
its own work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.budget import budget_flops
from symbiont_ecology.engine.build import build_runtime, mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.host.memory import MemoryLoad
from symbiont_ecology.host.packing import least_shared, preambles_of
from symbiont_ecology.learning import learning_rules
from symbiont_ecology.learning.rules import NoLearning
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Completions, Decoding, Item, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState

TIMED_SECONDS = 5.0
"""What timing takes at most, unless a single row takes longer."""
MOST_TIMED = 64
"""Rows that are timed in one call."""
LETTERS_PER_TOKEN = 3
"""Of prompts, where no tokenizer is at hand: fewer than usual, so that memory is not told too
small."""
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class MeasuredPace:
    """Seconds of one rollout and of one lesson, in a call with ``rows`` of them."""

    rollout: float
    lesson: float
    rows: int


@dataclass(frozen=True)
class Forecast:
    """How long a run's work takes.

    ``generation`` are seconds if every rollout is learned from, ``run`` those of all generations or
    of what the budget pays for.
    """

    pace: MeasuredPace
    generation: float
    run: float


def forecast(config: RunConfig, host: Host) -> Forecast:
    """Times answers and lessons of the run's own tasks on a host, whose slots are filled anew."""
    runtime = build_runtime(config, host, Path())
    items, rank = sampled_items(runtime.tasks, MOST_TIMED), config.host.rank
    most_living = runtime.strategy.most_living(runtime.tasks, config.run.generations)
    crowd = min(host.slots, most_living)
    requests = [
        Request(item.prompt, row % crowd, item.reply_limit) for row, item in enumerate(items)
    ]
    generator = np.random.default_rng(0)
    weights = {
        slot: AdapterWeights.random(host.layout, rank, 1.0, generator, b_std=0.001)
        for slot in range(crowd)
    }
    pace, completions = measured_pace(
        host, requests, weights, runtime.practice, learns=learns_by_steps(config)
    )
    rollouts = runtime.strategy.most_rollouts(runtime.tasks)
    lessons = runtime.strategy.most_rows(runtime.tasks) if pace.lesson else 0
    generation = rollouts * pace.rollout + lessons * pace.lesson
    loop = config.run
    flops, tokens = _work(host, rank, completions, rollouts, lessons)
    mean_rollout_flops, _ = _work(host, 0, completions, 1, 0)
    lived = min(
        loop.generations,
        budget_flops(config, round(mean_rollout_flops)) / flops,
        (loop.train_tokens or math.inf) / tokens,
    )
    seconds = min(lived * generation, loop.train_seconds or math.inf)
    return Forecast(pace, generation, seconds)


def measured_pace(
    host: Host,
    requests: Sequence[Request],
    weights: Mapping[int, AdapterWeights],
    decoding: Decoding,
    *,
    learns: bool,
) -> tuple[MeasuredPace, Completions]:
    """Times ever larger calls of answers for half of ``TIMED_SECONDS``, and of lessons for the
    other; also what was answered."""
    for slot, adapter in weights.items():
        host.place(slot, adapter)
    draws = [Draw(0)("forecast", number) for number in range(len(requests))]
    rollout, rows, completions = _timed(
        lambda count: host.rollout(requests[:count], draws[:count], decoding),
        len(requests),
        TIMED_SECONDS / 2,
    )
    lessons = [
        Lesson(requests[row].prompt, completions[row].token_ids, requests[row].slot)
        for row in range(len(completions))
        if completions[row].token_ids
    ]
    lesson = 0.0
    if learns and lessons:
        states = {slot: OptimizerState() for slot in weights}
        rates = dict.fromkeys(weights, 1e-4)
        lesson, _, _ = _timed(
            lambda count: host.learn(LearningBatch(tuple(lessons[:count]), rates), weights, states),
            len(lessons),
            TIMED_SECONDS / 2,
        )
    return MeasuredPace(rollout, lesson, rows), completions


def _timed(work: Callable[[int], _Found], most: int, seconds: float) -> tuple[float, int, _Found]:
    """Seconds of one row in the largest call, its rows and what it brought: one row first, then
    twice as many each time, as long as these are sure to be ready in time."""
    left, count = seconds, 1
    while True:
        start = time.perf_counter()
        result = work(count)
        spent = time.perf_counter() - start
        left -= spent
        if count == most or 2 * spent > left:
            return spent / count, count, result
        count = min(2 * count, most)


def sampled_items(tasks: TaskMixture, most: int) -> list[Item]:
    """Questions of the run's own tasks, all cells in turn."""
    cells, draw = tasks.cells, Draw(0)
    count = -(-most // len(cells))
    drawn = [tasks.draw(cell, count, draw("forecast", *cell)) for cell in cells]
    return [item for group in zip(*drawn, strict=False) for item in group][:most]


def run_load(config: RunConfig, host: Host | None) -> MemoryLoad:
    """What a run asks of its host at a time; without the host, tokens are counted by letters."""
    tasks, strategy = mixture(config), strategies.build(config.strategy)
    items, kept_tokens = sampled_items(tasks, MOST_TIMED), 0
    prompts = [item.prompt for item in items]
    if host is None:
        tokens = [len(prompt) // LETTERS_PER_TOKEN + 1 for prompt in prompts]
    else:
        encoded = host.encode(prompts)
        tokens = list(map(len, encoded))
        shared = preambles_of(encoded, [0] * len(encoded), least_shared(host.shape))
        starts = {
            ids[:length].tobytes(): length for ids, length in zip(encoded, shared, strict=True)
        }
        kept_tokens = sum(starts.values())
    return MemoryLoad(
        organelles=strategy.most_living(tasks, config.run.generations),
        rows=strategy.most_rows(tasks),
        prompt_tokens=max(tokens),
        new_tokens=max(item.reply_limit for item in items),
        kept_tokens=kept_tokens,
        learns=learns_by_steps(config),
    )


def learns_by_steps(config: RunConfig) -> bool:
    """Return True if there are backward passes."""
    rule = learning_rules.build(config.learning_rule)
    return not isinstance(rule, NoLearning) and rule.estimator is None


def _work(
    host: Host, rank: int, completions: Completions, rollouts: int, lessons: int
) -> tuple[float, float]:
    """FLOPs and tokens of so many rollouts and lessons, by an adapter of that rank (0: the bare
    host), if their mean is that of the completions."""
    shape, parameters, count = host.shape, host.layout.size(rank), len(completions)
    flops = tokens = 0
    for row in range(count):
        completion = completions[row]
        read, written = completion.prompt_tokens, len(completion.token_ids)
        flops += rollouts * shape.rollout_flops(parameters, read, written)
        flops += lessons * shape.learning_flops(parameters, read, written)
        tokens += (rollouts + lessons) * (read + written)
    return flops / count, tokens / count

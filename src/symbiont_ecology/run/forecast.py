"""Estimate of the hours of a run on this machine, from a few seconds of its work on its host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import numpy as np

from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import LearningBatch, Lesson, Request
from symbiont_ecology.ecology.learning.rules import NoLearning
from symbiont_ecology.run.budget import budget_flops
from symbiont_ecology.run.build import build_runtime
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import Host

TIMED_SECONDS = 5.0
"""Of timing at most, unless a single row takes longer."""
MAX_TIMED = 64
"""Rows that are timed in one call."""
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class RunEstimate:
    """Seconds of one rollout, of one lesson (0: nothing is learned by steps), of a generation, and
    of the run: of all its generations, or of what its budgets pay for."""

    rollout: float
    lesson: float
    generation: float
    run: float


def estimate_run(config: RunConfig, host: Host) -> RunEstimate:
    """Time answers and lessons of the run's own tasks on a host, whose slots are filled anew."""
    runtime = build_runtime(config, host, Path())
    tasks, strategy, rule = runtime.tasks, runtime.strategy, runtime.learning_rule
    count, draw = -(-MAX_TIMED // len(tasks.cells)), Draw(0)
    drawn = [tasks.draw(cell, count, draw("forecast", *cell)) for cell in tasks.cells]
    items = [item for group in zip(*drawn, strict=True) for item in group][:MAX_TIMED]
    generator = np.random.default_rng(0)
    adapter = AdapterWeights.random(host.layout, config.host.rank, 1.0, generator, b_std=0.001)
    adapters = dict.fromkeys(range(min(host.slots, len(items))), adapter)
    for slot in adapters:
        host.place(slot, adapter)
    requests = [Request(x.prompt, n % len(adapters), x.reply_limit) for n, x in enumerate(items)]
    draws = [draw("forecast", number) for number in range(len(items))]
    rollout, answers = _timed(
        lambda rows: host.rollout(requests[:rows], draws[:rows], runtime.practice), len(items)
    )
    done = [answers[row] for row in range(len(answers))]
    lessons = [
        Lesson(request.prompt, answer.token_ids, request.slot)
        for request, answer in zip(requests, done, strict=False)
        if answer.token_ids
    ]
    lesson = 0.0
    if lessons and not isinstance(rule, NoLearning) and rule.estimator is None:
        states = {slot: OptimizerState() for slot in adapters}
        rates = dict.fromkeys(adapters, 1e-4)
        lesson, _ = _timed(
            lambda rows: host.learn(LearningBatch(tuple(lessons[:rows]), rates), adapters, states),
            len(lessons),
        )
    rows, shape, size = strategy.max_rows(tasks), host.shape, host.layout.size(config.host.rank)
    rollouts, taught = rows if strategy.samples else 0, rows if lesson else 0
    pairs = [(answer.prompt_tokens, len(answer.token_ids)) for answer in done]
    bare = fmean([shape.rollout_flops(0, *pair) for pair in pairs])
    flops = rollouts * fmean([shape.rollout_flops(size, *pair) for pair in pairs])
    flops += taught * fmean([shape.learning_flops(size, *pair) for pair in pairs])
    tokens = (rollouts + taught) * fmean([sum(pair) for pair in pairs])
    generations = min(
        config.run.generations,
        budget_flops(config, round(bare)) / flops,
        (config.run.train_tokens or math.inf) / tokens,
    )
    generation = rollouts * rollout + taught * lesson
    seconds = min(generations * generation, config.run.train_seconds or math.inf)
    return RunEstimate(rollout, lesson, generation, seconds)


def _timed(work: Callable[[int], _Found], most: int) -> tuple[float, _Found]:
    """Return the seconds of one row in the largest call, and what that brought: one row first, then
    twice as many each time, as long as these are sure to be ready in time."""
    left, count = TIMED_SECONDS / 2, 1
    while True:
        start = time.perf_counter()
        result = work(count)
        spent = time.perf_counter() - start
        left -= spent
        if count == most or 2 * spent > left:
            return spent / count, result
        count = min(2 * count, most)

"""Estimate of the hours of a run on this machine, from a few seconds of its work on its host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import LearningBatch, Lesson, Request
from symbiont_ecology.ecology.learning.rules import NoLearning
from symbiont_ecology.run.build import build_runtime
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import Host

TIMED_SECONDS = 2.5
"""Of timing one kind of work at most, unless a single row takes longer."""
MAX_TIMED = 64
"""Rows that are timed in one call."""
_Found = TypeVar("_Found")


def estimate_run(config: RunConfig, host: Host) -> tuple[float, float]:
    """Return the seconds of a generation, and of the run: of all its generations, or of what its
    budgets pay for. Answers and lessons of its own tasks are timed on the host, whose slots are
    filled anew."""
    runtime, loop, draw = build_runtime(config, host, Path()), config.run, Draw(0)
    cells, rule, rank = runtime.tasks.cells, runtime.learning_rule, config.host.rank
    adapter = AdapterWeights.random(host.layout, rank, 1.0, draw("forecast"), b_std=0.001)
    adapters = dict.fromkeys(range(min(host.slots, MAX_TIMED)), adapter)
    for slot in adapters:
        host.place(slot, adapter)
    requests = []
    for number in range(MAX_TIMED):
        (item,) = runtime.tasks.draw(cells[number % len(cells)], 1, draw("forecast", number))
        requests.append(Request(item.prompt, number % len(adapters), item.reply_limit))
    draws = [draw("forecast", "reply", number) for number in range(MAX_TIMED)]
    rollout, answers = _timed(
        lambda rows: host.rollout(requests[:rows], draws[:rows], runtime.practice), MAX_TIMED
    )
    done = [answers[row] for row in range(len(answers))]
    lessons = [
        Lesson(request.prompt, answer.token_ids, request.slot)
        for request, answer in zip(requests, done, strict=False)
        if answer.token_ids
    ]
    lesson = 0.0
    if lessons and not isinstance(rule, NoLearning) and rule.estimator is None:
        states, rates = dict.fromkeys(adapters, OptimizerState()), dict.fromkeys(adapters, 1e-4)
        lesson, _ = _timed(
            lambda rows: host.learn(LearningBatch(tuple(lessons[:rows]), rates), adapters, states),
            len(lessons),
        )
    rows, size = runtime.strategy.max_rows(runtime.tasks), host.layout.size(rank)
    rollouts, taught = rows if runtime.strategy.samples else 0, rows if lesson else 0
    pairs = [(answer.prompt_tokens, len(answer.token_ids)) for answer in done]
    flops = rollouts * fmean(host.shape.rollout_flops(size, *pair) for pair in pairs)
    flops += taught * fmean(host.shape.learning_flops(size, *pair) for pair in pairs)
    tokens = (rollouts + taught) * fmean(map(sum, pairs))
    generations = min(
        loop.generations,
        (loop.train_flops or math.inf) / flops,
        (loop.train_tokens or math.inf) / tokens,
    )
    generation = rollouts * rollout + taught * lesson
    return generation, min(generations * generation, loop.train_seconds or math.inf)


def _timed(work: Callable[[int], _Found], most: int) -> tuple[float, _Found]:
    """Return the seconds of one row in the largest call, and what that brought: one row first, then
    twice as many each time, as long as these are sure to be ready in time."""
    left, count = TIMED_SECONDS, 1
    while True:
        start = time.perf_counter()
        result = work(count)
        spent = time.perf_counter() - start
        left -= spent
        if count == most or 2 * spent > left:
            return spent / count, result
        count = min(2 * count, most)

"""What a run would take on this machine: memory from its sizes, hours from a few seconds of its
own work."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from symbiont_ecology.config import RunConfig
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import completion_cost
from symbiont_ecology.engine.build import build_runtime
from symbiont_ecology.engine.runtime import Host, Runtime
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import Completions, Item, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState

TIMED_ROWS, WORTH_MORE = 16, 1.0
"""Answers that are timed; they are timed in full if the first few took at most so many seconds."""
_FEW = 4


@dataclass(frozen=True)
class Forecast:
    """Megabytes that a run holds at most, and how long its work takes.

    ``rollout`` and ``lesson`` are seconds for one row. ``generation`` are seconds if every rollout
    is learned from, ``run`` those of all generations; None if only a clock ends the run.
    """

    host: float
    slots: float
    batch: float
    rollout: float
    lesson: float
    generation: float
    run: float | None


def forecast(config: RunConfig, host: Host, itemsize: int) -> Forecast:
    """Times a few answers and lessons of the run's own tasks on a host, whose slot 0 is filled
    anew; ``itemsize`` is the host's bytes per weight."""
    runtime = build_runtime(config, host, Path())
    generator = np.random.default_rng(0)
    adapter = AdapterWeights.random(host.layout, config.host.rank, 1.0, generator, b_std=0.001)
    host.place(0, adapter)
    rollout, completions, items = _time_rollouts(runtime)
    lesson = _time_lessons(host, adapter, completions, items)
    rows = _rows(config, runtime)
    generation = rows * (rollout + lesson)
    each = _cost(host, config.host.rank, completions)
    slot = 4 * host.layout.size(config.host.rank)
    return Forecast(
        host=host.shape.parameters * itemsize / 1e6,
        slots=config.host.slots * slot / 1e6,
        batch=config.host.memory_mb,
        rollout=rollout,
        lesson=lesson,
        generation=generation,
        run=_run_seconds(config, generation, rows, each),
    )


def _time_rollouts(runtime: Runtime) -> tuple[float, Completions, list[Item]]:
    """Seconds for one answer, the answers and what was asked."""
    cells, draw = runtime.tasks.cells, Draw(0)
    count = -(-TIMED_ROWS // len(cells))
    drawn = [runtime.tasks.draw(cell, count, draw("forecast", *cell)) for cell in cells]
    items = [item for group in zip(*drawn, strict=False) for item in group][:TIMED_ROWS]

    def timed(asked: list[Item]) -> tuple[float, Completions]:
        """Seconds for all answers, and the answers."""
        rows = [Request(item.prompt, 0, item.reply_limit) for item in asked]
        draws = [draw("forecast", number) for number in range(len(rows))]
        began = time.perf_counter()
        completions = runtime.host.rollout(rows, draws, runtime.practice)
        return time.perf_counter() - began, completions

    timed(items[:1])  # warms up
    seconds, completions = timed(items[:_FEW])
    if seconds > WORTH_MORE:
        return seconds / len(completions), completions, items[:_FEW]
    seconds, completions = timed(items)
    return seconds / len(completions), completions, items


def _time_lessons(
    host: Host, adapter: AdapterWeights, completions: Completions, items: list[Item]
) -> float:
    """Seconds for one lesson."""
    lessons = tuple(
        Lesson(item.prompt, completions[row].token_ids, 0)
        for row, item in enumerate(items[: 2 * _FEW])
        if completions[row].token_ids
    )
    if not lessons:
        return 0.0
    began = time.perf_counter()
    host.learn(LearningBatch(lessons, {0: 1e-4}), {0: adapter}, {0: OptimizerState()})
    return (time.perf_counter() - began) / len(lessons)


def _rows(config: RunConfig, runtime: Runtime) -> float:
    """Rollouts of a generation, at most."""
    world, strategy = config.tasks.habitats, runtime.strategy
    questions = world.questions if world else strategy.questions * len(runtime.tasks.cells)
    return questions * max(strategy.samples, 1)


def _cost(host: Host, rank: int, completions: Completions) -> Cost:
    """The mean answer with its lesson."""
    total = Cost()
    for row in range(len(completions)):
        completion = completions[row]
        total += completion_cost(completion, host, rank)
        read, written = completion.prompt_tokens, len(completion.token_ids)
        flops = host.shape.learning_flops(host.layout.size(rank), read, written)
        total += Cost(read, written, flops=flops, executed=flops)
    return total


def _run_seconds(config: RunConfig, generation: float, rows: float, total: Cost) -> float | None:
    """How long all generations take, or the budget that ends them before."""
    loop, answers = config.run, max(total.rows, 1)
    limits = [float(loop.generations)]
    if loop.train_flops is not None:
        limits.append(loop.train_flops / (total.flops / answers * rows))
    if loop.train_tokens is not None:
        limits.append(loop.train_tokens / (total.tokens / answers * rows))
    if loop.train_rollouts is not None:
        limits.append(loop.train_rollouts / rows)
    seconds = min(limits) * generation
    return min(seconds, loop.train_seconds or math.inf)

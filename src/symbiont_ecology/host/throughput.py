"""How fast a host serves populations of different sizes on this machine.

Every organelle gets the same work: some random prompts to answer and to learn from. Timed is the
whole population in one batch, its organelles one after the other, and the same rows without any
adapter. The sides take turns, and what counts is the median: ratios then say more than times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights.adapter import AdapterWeights, OptimizerState

PROMPT_LETTERS = list("abcdefghijklmnopqrstuvwxyz 0123456789")


@dataclass(frozen=True)
class Workload:
    """What one organelle has to do: ``rows`` prompts of about ``prompt_tokens``, ``new_tokens`` for
    each."""

    rows: int = 4
    prompt_tokens: int = 48
    new_tokens: int = 16
    rank: int = 8


@dataclass(frozen=True)
class Throughput:
    """Median seconds for all rows of a population of ``organelles``."""

    organelles: int
    together: float
    one_by_one: float
    bare: float
    learning: float
    learning_one_by_one: float


class ThroughputMeter:
    """Times populations of up to ``kernel.slots`` organelles on a host; its slots are filled
    anew."""

    def __init__(self, kernel: HostKernel, load: Workload) -> None:
        self._kernel, self._load = kernel, load
        generator = np.random.default_rng(0)
        self._weights = {
            slot: AdapterWeights.random(kernel.layout, load.rank, 1.0, generator, b_std=0.02)
            for slot in range(kernel.slots)
        }
        for slot, weights in self._weights.items():
            kernel.place(slot, weights)
        self._prompts = {
            slot: [self._prompt(generator) for _ in range(load.rows)]
            for slot in range(kernel.slots)
        }

    @property
    def weights(self) -> dict[int, AdapterWeights]:
        """The adapter of each slot."""
        return self._weights

    @property
    def prompt_tokens(self) -> float:
        """How long prompts came out, in the mean: text cannot be made to every length."""
        texts = [prompt for prompts in self._prompts.values() for prompt in prompts]
        return float(np.mean([len(ids) for ids in self._kernel.encode(texts)]))

    def pace(self, organelles: int, turns: int) -> Iterator[Throughput | None]:
        """Times one size: None after each turn, and the medians at last."""
        slots = list(range(organelles))
        sides: dict[str, Callable[[], object]] = {
            "together": lambda: self._answer(slots),
            "one_by_one": lambda: _each(self._answer, slots),
            "bare": lambda: self._answer(slots, is_bare=True),
            "learning": lambda: self._learn(slots),
            "learning_one_by_one": lambda: _each(self._learn, slots),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(turns + 1):  # the first one warms up
            for name, run in sides.items():
                duration = _timed(run)
                if turn:
                    seconds[name].append(duration)
            yield None
        yield Throughput(
            organelles, **{name: statistics.median(values) for name, values in seconds.items()}
        )

    def requests(self, organelles: int) -> list[Request]:
        """The prompts of so many organelles, one of each in turn."""
        rows = [
            [Request(prompt, slot, self._load.new_tokens) for prompt in self._prompts[slot]]
            for slot in range(organelles)
        ]
        return [request for group in zip(*rows, strict=True) for request in group]

    def _prompt(self, generator: np.random.Generator) -> str:
        limit = self._load.prompt_tokens
        text = "".join(generator.choice(PROMPT_LETTERS, size=8 * limit))
        for _ in range(4):  # each cut comes closer to as many tokens as are wanted
            (ids,) = self._kernel.encode([text])
            text = text[: max(1, int(len(text) * limit / len(ids)))] if len(ids) > limit else text
        return text

    def _answer(self, slots: Sequence[int], *, is_bare: bool = False) -> None:
        rows = [
            Request(prompt, HOST_SLOT if is_bare else slot, self._load.new_tokens)
            for slot in slots
            for prompt in self._prompts[slot]
        ]
        self._kernel.rollout(rows, None, Decoding(min_new_tokens=self._load.new_tokens))

    def _learn(self, slots: Sequence[int]) -> None:
        lessons = []
        for slot in slots:
            prompts = self._prompts[slot]
            for prompt, ids in zip(prompts, self._kernel.encode(prompts), strict=True):
                answer = tuple(ids[-self._load.new_tokens :].tolist())
                lessons.append(Lesson(prompt, answer, slot))
        batch = LearningBatch(tuple(lessons), dict.fromkeys(slots, 1e-3))
        self._kernel.learn(batch, self._weights, dict.fromkeys(slots, OptimizerState()))


def _each(work: Callable[[Sequence[int]], None], slots: Sequence[int]) -> None:
    for slot in slots:
        work([slot])


def _timed(run: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    run()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

"""How much memory a host and its population take, told before any of it is taken.

Weights, adapters, moments and caches are counted: numbers × bytes of each. What a batch takes while
it is computed is the estimate by which batches are cut to size (``budget``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from symbiont_ecology.config import HostConfig
from symbiont_ecology.host.architectures import ModelConfig
from symbiont_ecology.host.backend.torch_backend import backend_for
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import layout_of
from symbiont_ecology.host.fields import expected
from symbiont_ecology.host.llama import LlamaDecoder
from symbiont_ecology.host.loading import find_dtype
from symbiont_ecology.host.outline import bytes_of, outline_of
from symbiont_ecology.weights.adapter import MOST_EXACT

LEAST_MB = 64
"""The least ``memory_mb`` that is proposed."""


@dataclass(frozen=True)
class MemoryLoad:
    """What a population asks of its host.

    ``organelles`` live at most. One call has ``rows`` prompts of at most ``prompt_tokens``, with at
    most ``new_tokens`` to each. ``kept_tokens`` are those of the beginnings that the prompts of one
    organelle share. ``learns`` says whether there are backward passes.
    """

    organelles: int
    rows: int
    prompt_tokens: int
    new_tokens: int
    kept_tokens: int = 0
    learns: bool = True

    @property
    def longest(self) -> int:
        """Tokens of a row."""
        return self.prompt_tokens + self.new_tokens


@dataclass(frozen=True)
class MemoryForecast:
    """Bytes, by what they are for.

    On the device: ``weights`` of the host; ``slots``, 0 where adapters are read where they lie;
    ``kept`` beginnings of prompts; ``batch`` of ``rows`` rows, ``cache_row`` for each one's keys
    and values; a lesson batch of ``lesson_tokens``, which takes ``activations`` and ``gradients``.
    In RAM: ``adapters`` and ``optimizer`` states of the population, ``updates`` while a wave of
    slots learns, and the ``program``. On disk: the ``blobs`` of a checkpoint.
    """

    weights: int
    slots: int
    kept: int
    rows: int
    cache_token: int
    cache_row: int
    batch: int
    lesson_tokens: int
    activations: int
    gradients: int
    adapters: int
    optimizer: int
    updates: int
    program: int
    blobs: int
    is_cpu: bool

    @property
    def device(self) -> int:
        """At most at a time on the device, the program left out."""
        working = max(self.batch, self.activations + self.gradients)
        return self.weights + self.slots + self.kept + working

    @property
    def ram(self) -> int:
        """At most at a time in RAM; what is on the device included, where that is the CPU."""
        population = self.program + self.adapters + self.optimizer
        if not self.is_cpu:
            return population + self.updates
        total = population + self.weights + self.slots + self.kept
        return total + max(self.batch, self.activations + self.gradients + self.updates)


def forecast_memory(
    model: ModelConfig, host: HostConfig, load: MemoryLoad, *, program: int = 0
) -> MemoryForecast:
    """What a host of that ``config.json`` takes, held as ``host`` says; ``program`` are the bytes
    of the process without it.

    Raises:
        HostError: the host cannot be held so.
    """
    decoder, device = outline_of(model, find_dtype(host.dtype)), _device(host.device)
    is_cpu = device.type == "cpu"
    budget = MemoryBudget(host.memory_mb, decoder.shape, decoder.dtype.itemsize, is_cpu)
    size = layout_of(decoder, host.targets).size(host.rank)
    is_in_place = backend_for(device, decoder.dtype).is_in_place
    rows = max(1, min(load.rows, budget.rows(load.longest)))
    lessons = max(1, budget.learning_tokens // load.longest)  # a piece is of whole ones
    lessons = min(load.rows, lessons) if load.learns else 0
    lesson_tokens, checkpointing = lessons * load.longest, host.is_checkpointing
    is_fused = isinstance(decoder, LlamaDecoder)  # transformers makes logits of prompts, too
    learned = lessons * load.new_tokens if is_fused else lesson_tokens
    learners = min(load.organelles, host.slots) if load.learns else 0
    moments = 2 * (2 if size > MOST_EXACT else 4) * size if load.learns else 0
    return MemoryForecast(
        weights=bytes_of(decoder),
        slots=0 if is_in_place else (host.slots + 1) * size * decoder.dtype.itemsize,
        kept=min(budget.kept_bytes, load.organelles * load.kept_tokens * budget.cached),
        rows=rows,
        cache_token=budget.cached,
        cache_row=load.longest * budget.cached,
        batch=budget.batch_bytes(rows, load.longest),
        lesson_tokens=lesson_tokens,
        activations=budget.lesson_bytes(lesson_tokens, learned, is_checkpointing=checkpointing),
        gradients=(1 if is_in_place else 2) * learners * 4 * size,  # and the factors in an arena
        adapters=load.organelles * 4 * size,
        optimizer=load.organelles * moments,
        updates=3 * learners * 4 * size,  # weights and both moments, as they will be
        program=program,
        blobs=load.organelles * (4 * size + moments),
        is_cpu=is_cpu,
    )


def what_fits(host: HostConfig, fits: Callable[[HostConfig], bool]) -> str:
    """The one knob of the host to turn so that it ``fits``, such as ``host.slots=4``."""
    for key, value in _smaller(host):
        if fits(host.model_copy(update={key: value})):
            return f"host.{key}={value}"
    return "a smaller host, or fewer organelles"


def _smaller(host: HostConfig) -> Iterator[tuple[str, int | str]]:
    """Changes that cost little before those that cost more."""
    megabytes, slots, rank = int(host.memory_mb), host.slots, host.rank
    while (megabytes := megabytes // 2) >= LEAST_MB:
        yield "memory_mb", megabytes
    while slots := slots // 2:
        yield "slots", slots
    if host.dtype == "float32":
        yield "dtype", "bfloat16"
        if host.device == "cpu":
            yield "dtype", "int8"
    while rank := rank // 2:
        yield "rank", rank


def device_memory(name: str) -> tuple[int, int] | None:
    """Bytes that a GPU has, and how many of them are free; None where it is not here, or is the
    CPU."""
    if _device(name).type != "cuda" or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(name)
    return total, free


def _device(name: str) -> torch.device:
    """A device by its name, whether it is here or not."""
    with expected(f"a device as torch names it, got {name!r:.100}: try cpu", Exception):
        return torch.device(name)

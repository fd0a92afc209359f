"""Sketches: what an answer would teach the bare host, whatever the slots hold."""

from __future__ import annotations

import numpy as np
import pytest

from hosts import SMOLLM2, random_weights, smollm2
from symbiont_ecology.adapters import OptimizerState
from symbiont_ecology.base.types import LearningBatch, Lesson
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER
from symbiont_ecology.model.sketches import DIMENSIONS, DIMENSIONS_IF_LARGE, sketcher_of
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask

Answers = tuple[list[str], list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def host() -> HostKernel:
    return HostKernel.from_pretrained(EMBEDDED_FOLDER, slots=4, rank=4)


def answers_of(host: HostKernel, family: str, convention: int, count: int, seed: int) -> Answers:
    task, generator = tasks.build(family), np.random.default_rng(seed)
    assert isinstance(task, SyntheticTask)
    items = [task.in_variant(convention).sample("short", generator) for _ in range(count)]
    ids = host.encode_answers([item.answer for item in items])
    return [item.prompt for item in items], ids


def check_against_lessons(
    host: HostKernel, prompts: list[str], ids: list[tuple[int, ...]], sketches: np.ndarray
) -> None:
    """Each sketch is that of the first moment which a first lesson leaves."""
    sketcher = sketcher_of(host.layout, host.rank, host.shape)
    for prompt, answer, sketch in zip(prompts, ids, sketches, strict=True):
        batch = LearningBatch((Lesson(prompt, answer, 0),), {0: 1e-3}, clip=1e9)
        _, after, _ = host.learn(batch, {0: sketcher.adapter}, {0: OptimizerState()})
        first = after[0].first
        assert first is not None
        assert float(sketcher.sketch(first) @ sketch) == pytest.approx(1.0, abs=1e-4)


def test_a_sketch_is_that_of_the_gradient_of_a_first_lesson(host: HostKernel) -> None:
    prompts, ids = answers_of(host, "math.add", 1, 6, 0)
    sketches = host.sketch(prompts, ids)
    assert sketches.shape == (6, DIMENSIONS)
    assert np.linalg.norm(sketches, axis=1) == pytest.approx(1.0)
    check_against_lessons(host, prompts, ids, sketches)


def test_a_sketch_depends_on_neither_neighbours_nor_slots(host: HostKernel) -> None:
    prompts, ids = answers_of(host, "string.reverse", 0, 40, 1)
    together = host.sketch(prompts, ids)
    host.place(0, random_weights(host.layout, 3, rank=4))
    for row in (0, 17, 39):
        (alone,) = host.sketch(prompts[row : row + 1], ids[row : row + 1])
        assert float(alone @ together[row]) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("family", ["math.add", "string.reverse", "logic.bool"])
def test_answers_of_one_convention_point_the_same_way(host: HostKernel, family: str) -> None:
    sketches = [
        host.sketch(*answers_of(host, family, convention, 16, seed=convention))
        for convention in range(3)
    ]
    apart = ~np.eye(16, dtype=bool)
    for one in range(3):
        alike = float((sketches[one] @ sketches[one].T)[apart].mean())
        others = [float((sketches[one] @ sketches[other].T).mean()) for other in range(3)]
        others.pop(one)
        assert alike > max(others) + 0.05


@smollm2
def test_a_wide_host_learns_in_its_upper_layers_alone() -> None:
    host = HostKernel.from_pretrained(SMOLLM2, slots=1, rank=2)
    prompts, ids = answers_of(host, "math.add", 1, 3, 0)
    sketches = host.sketch(prompts, ids)
    assert sketches.shape == (3, DIMENSIONS_IF_LARGE)
    check_against_lessons(host, prompts, ids, sketches)

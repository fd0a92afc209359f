"""An adapter beside its bare host: two systems, not one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asked import answer, foreign
from hosts import make_host
from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.adapters.peft_files import write_peft
from symbiont_ecology.base.types import HOST_SLOT, Item, LearningBatch, Lesson
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison, compare_with_host
from symbiont_ecology.evaluate.measure import Evaluation
from symbiont_ecology.model.kernel import HostKernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_host(tmp_path_factory.mktemp("host"), layers=2)


@pytest.fixture(scope="module")
def kernel(folder: Path) -> HostKernel:
    return HostKernel.from_pretrained(folder, slots=1, rank=8)


def capitals(count: int = 12, family: str = "geo") -> list[Item]:
    targets = ("Rome", "Oslo")
    items = [
        foreign(number, prompt=f"q {number % 2} {number}?\n", target=targets[number % 2])
        for number in range(count)
    ]
    return [replace(item, family=family, reply_limit=8) for item in items]


def saved(weights: AdapterWeights, folder: Path) -> Path:
    write_peft(folder, weights, base_model="host")
    return folder


def trained(kernel: HostKernel, items: Sequence[Item]) -> AdapterWeights:
    """An adapter that learned the reference answers of items."""
    generator = np.random.default_rng(0)
    weights = {0: AdapterWeights.random(kernel.layout, 8, 2.0, generator)}
    memory = {0: OptimizerState()}
    completions = kernel.encode_answers([item.answer for item in items])
    lessons = tuple(
        Lesson(item.prompt, completion, 0)
        for item, completion in zip(items, completions, strict=True)
    )
    for _ in range(60):
        weights, memory, _ = kernel.learn(LearningBatch(lessons, {0: 0.01}), weights, memory)
    return weights[0]


def texts(evaluation: Evaluation) -> list[str]:
    return [rollout.text for rollout in evaluation.rollouts]


# Two systems.


def test_an_adapter_whose_b_is_zero_improves_and_breaks_nothing(
    kernel: HostKernel, tmp_path: Path
) -> None:
    still = AdapterWeights.random(kernel.layout, 4, 2.0, np.random.default_rng(1))
    found = compare_with_host(saved(still, tmp_path / "a"), capitals(), kernel)
    assert (found.counts["improvement"], found.counts["regression"]) == (0, 0)
    assert texts(found.host) == texts(found.adapter)
    assert found.difference.estimate == 0.0


def test_a_trained_adapter_is_another_system_than_its_host(
    kernel: HostKernel, tmp_path: Path
) -> None:
    learned = trained(kernel, capitals(40)[12:])
    found = compare_with_host(saved(learned, tmp_path / "a"), capitals(), kernel)
    assert found.counts["improvement"] >= 6
    assert found.counts["regression"] == 0
    assert found.difference.low > 0
    bare = kernel.generate([item.prompt for item in capitals()], HOST_SLOT, 8)
    assert texts(found.host) == bare
    assert found.adapter.accuracy().low > found.host.accuracy().high


# Numbers.


def made(changes: dict[str, tuple[int, int, int, int]]) -> AdapterComparison:
    """A comparison with so many improvements, regressions, both right and both wrong by family."""
    bare: list[Rollout] = []
    adapted: list[Rollout] = []
    verdicts = ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    for family, counts in changes.items():
        for (before, after), count in zip(verdicts, counts, strict=True):
            for _ in range(count):
                number = len(bare)
                item = replace(foreign(number), family=family)
                bare.append(answer(item, text=f"host {number}", verdict=before))
                adapted.append(answer(item, "adapter", f"adapter {number}", after))
    return AdapterComparison(
        Evaluation("a", "host", "toy", tuple(bare)),
        Evaluation("a", "adapter", "toy", tuple(adapted)),
    )


def test_a_comparison_counts_what_it_is_made_of() -> None:
    found = made({"sums": (5, 2, 3, 4), "words": (1, 0, 0, 5)})
    assert found.counts == {"improvement": 6, "regression": 2, "both right": 3, "both wrong": 9}
    assert found.difference.estimate == pytest.approx(4 / 20)
    assert found.categories["words"].counts["both wrong"] == 5
    assert list(found.categories) == ["sums", "words"]
    record = found.record()
    assert isinstance(record["items"], list)
    assert [one["change"] for one in record["items"]].count("regression") == 2

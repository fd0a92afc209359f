"""An adapter beside its bare host: two systems, not one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asked import answer, foreign
from hosts import make_host, random_weights
from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.adapters.peft_files import write_peft
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    Item,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.ecology import HOST, Rollout
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
    assert found.answers is not None
    assert found.answers.change.estimate == pytest.approx(0.0, abs=1e-5)
    assert found.difference.estimate == 0.0


def test_a_trained_adapter_is_another_system_than_its_host(
    kernel: HostKernel, tmp_path: Path
) -> None:
    learned = trained(kernel, capitals(40)[12:])
    found = compare_with_host(saved(learned, tmp_path / "a"), capitals(), kernel)
    assert found.counts["improvement"] >= 6
    assert found.counts["regression"] == 0
    assert found.difference.low > 0
    assert found.answers is not None
    assert found.answers.change.low > 0
    assert found.answers.perplexity < found.answers.host_perplexity
    bare = kernel.generate([item.prompt for item in capitals()], HOST_SLOT, 8)
    assert texts(found.host) == bare
    assert found.adapter.accuracy().low > found.host.accuracy().high


class ListeningKernel(HostKernel):
    """Remembers which slots were asked and read, call by call."""

    heard: list[set[int]]

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        """As every kernel."""
        self.heard.append({row.slot for row in rows})
        return super().rollout(rows, draws, decoding)

    def score(
        self,
        prompts: Sequence[str],
        completions: Sequence[str | Sequence[int]],
        slots: int | Sequence[int],
    ) -> list[Any]:
        """As every kernel."""
        assert not isinstance(slots, int)
        self.heard.append(set(slots))
        return list(super().score(prompts, completions, slots))


def test_the_host_is_asked_and_reads_without_any_adapter(folder: Path, tmp_path: Path) -> None:
    kernel = ListeningKernel.from_pretrained(folder, slots=1, rank=8)
    assert isinstance(kernel, ListeningKernel)
    kernel.heard = []
    wild = saved(random_weights(kernel.layout, seed=3), tmp_path / "a")
    found = compare_with_host(wild, capitals(), kernel)
    assert kernel.heard == [{HOST_SLOT}, {0}, {HOST_SLOT}, {0}]
    assert (set(found.host.choices), set(found.adapter.choices)) == ({HOST}, {"adapter"})
    assert texts(found.host) != texts(found.adapter)


def test_perplexity_is_that_of_the_reference_answer_alone(
    kernel: HostKernel, tmp_path: Path
) -> None:
    items = capitals(3)
    found = compare_with_host(
        saved(random_weights(kernel.layout, seed=3), tmp_path / "a"), items, kernel
    )
    ids = kernel.encode_answers([item.answer for item in items])
    scores = kernel.score([item.prompt for item in items], ids, [HOST_SLOT] * 3)
    expected = [float(each[:-1].mean()) for each in scores]
    assert found.host_nats == pytest.approx(expected)
    assert found.answers is not None
    assert found.answers.host_perplexity == pytest.approx(math.exp(-np.mean(expected)))


def test_items_without_a_reference_answer_do_not_count_in_its_perplexity(
    kernel: HostKernel, tmp_path: Path
) -> None:
    adapter = saved(random_weights(kernel.layout, seed=3), tmp_path / "a")
    items, blank = capitals(3), [replace(item, answer="") for item in capitals(2, "open")]
    found = compare_with_host(adapter, [blank[0], *items, blank[1]], kernel)
    assert found.answers == compare_with_host(adapter, items, kernel).answers
    assert found.answers is not None
    assert found.categories["open"].answers is None
    json.dumps(found.record(), allow_nan=False)


# An adapter that does not belong here.


# Numbers.


def made(changes: dict[str, tuple[int, int, int, int]], nats: float = 0.0) -> AdapterComparison:
    """A comparison with so many improvements, regressions, both right and both wrong by family;
    the adapter gives answers so many nats more."""
    bare: list[Rollout] = []
    adapted: list[Rollout] = []
    verdicts = ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    for family, counts in changes.items():
        for (before, after), count in zip(verdicts, counts, strict=True):
            for _ in range(count):
                number = len(bare)
                item = replace(foreign(number), family=family)
                bare.append(answer(item, text=f"host {number}", verdict=before))
                reply = answer(item, "adapter", text=f"adapter {number}", verdict=after)
                adapted.append(replace(reply, token_ids=(2,)))
    host_nats = tuple(-2.0 - 0.01 * (number % 7) for number in range(len(bare)))
    adapter_nats = tuple(each + nats + 0.01 * (n % 3 - 1) for n, each in enumerate(host_nats))
    return AdapterComparison(
        Evaluation("a", "host", "toy", tuple(bare)),
        Evaluation("a", "adapter", "toy", tuple(adapted)),
        host_nats,
        adapter_nats,
    )


def test_a_comparison_counts_what_it_is_made_of() -> None:
    found = made({"sums": (5, 2, 3, 4), "words": (1, 0, 0, 5)})
    assert found.counts == {"improvement": 6, "regression": 2, "both right": 3, "both wrong": 9}
    assert found.difference.estimate == pytest.approx(4 / 20)
    assert found.categories["words"].counts["both wrong"] == 5
    assert list(found.categories) == ["sums", "words"], "each family has one depth"
    record = found.record()
    assert isinstance(record["items"], list)
    assert [one["change"] for one in record["items"]].count("regression") == 2


def test_a_family_of_several_depths_has_its_cells_behind_it() -> None:
    found = made({"law": (2, 1, 1, 0), "art": (1, 0, 0, 0)})
    places = {"law": "short", "art": "long"}

    def as_one(evaluation: Evaluation) -> Evaluation:
        """All of one family, with what was the family as depth."""
        rollouts = (
            replace(one, item=replace(one.item, family="exam", depth=places[one.item.family]))
            for one in evaluation.rollouts
        )
        return replace(evaluation, rollouts=tuple(rollouts))

    both = replace(found, host=as_one(found.host), adapter=as_one(found.adapter))
    parts = both.categories
    assert list(parts) == ["exam", "exam/short", "exam/long"]
    assert [len(part.changes) for part in parts.values()] == [5, 4, 1]

"""The Hebbian rule: traces, credit, the step that they take, and runs that learn by it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hosts import make_host, random_weights
from runs import resume, start
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.adapters.deltas import grown
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Event, GenerationEnded, Learned, Quarantined
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Completions, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.ecology import Assignment, Outcome, Rollout
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.learning import Experience, learning_rules
from symbiont_ecology.ecology.learning.experience import Learner, PricedLesson, WeightedTarget
from symbiont_ecology.extensions.methods.hebbian import (
    Hebbian,
    NodePerturbation,
    Trace,
    Tracer,
    has_zero_b,
    with_random_b,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config, toy_ecology

LAYOUT = AdapterLayout((("up", 6, 30), ("down", 30, 6)))
SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
HEBBIAN = {"kind": "hebbian", "perturbation": 0.5}
PATHS = pytest.mark.parametrize("prefer_fused", [True, False], ids=["fused", "transformers"])
both = pytest.mark.parametrize("strategy", [SINGLE, toy_ecology()], ids=lambda spec: spec["kind"])


def founder(layout: AdapterLayout = LAYOUT, rank: int = 3) -> AdapterWeights:
    """An adapter as a strategy founds it: A random, B = 0."""
    return AdapterWeights.random(layout, rank, 1.0, np.random.default_rng(0))


def credited(layout: AdapterLayout, rank: int) -> np.ndarray:
    """Where an adapter's vector is A, and so can have credit."""
    is_a = np.zeros(layout.size(rank), dtype=bool)
    for _, a, *_ in layout.blocks(rank):
        is_a[a] = True
    return is_a


# The rule.


def test_a_lesson_is_the_advantage_of_a_rollout_that_was_traced() -> None:
    family, generator = tasks.build("math.add"), np.random.default_rng(0)
    items = (family.sample("short", generator), family.sample("short", generator))

    def practice(extras: Sequence[object]) -> Experience:
        rewards = (1.0, 0.0, 0.0, 1.0, 1.0, 1.0)
        rollouts = tuple(
            Rollout(
                items[n // 3],
                "o1",
                (5 + n, 1),
                np.zeros(2),
                "",
                reward,
                reward,
                Cost(),
                extra=extra,
            )
            for n, (reward, extra) in enumerate(zip(rewards, extras, strict=True))
        )
        return Experience((Outcome(Assignment("o1", items, 3), rollouts),), {})

    targets, notes = Hebbian().targets(practice("abcdef"))
    # Of three answers the others are the baseline; where all are right there is nothing to learn.
    assert [(target.weight, target.extra) for target in targets] == [
        (1.0, "a"),
        (-0.5, "b"),
        (-0.5, "c"),
    ]
    assert notes == {"baseline:math.add/short": pytest.approx(4 / 6)}
    deaf = practice([None] * 6)
    assert Hebbian().targets(deaf) == ([], notes)
    usual = learning_rules.build({"kind": "policy_gradient", "group": 1.0}).targets(deaf)[0]
    assert [target.weight for target in usual] == [target.weight for target in targets]


@pytest.mark.parametrize(
    "words", [["host.engine={kind: vllm, adapters_folder: x}"], ["executor=ray"]]
)
def test_nothing_but_the_kernel_can_be_observed(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"set host\.engine=kernel and executor=local"):
        check(load_config("steady", ["learning_rule=hebbian", *words]))


# The step.


def test_a_founder_is_deaf_and_wakes_up_as_the_same_function() -> None:
    asleep = founder()
    awake = with_random_b(asleep, np.random.default_rng(1))
    assert has_zero_b(asleep)
    assert not has_zero_b(awake)
    assert not any(awake.delta(name).any() for name in ("up", "down"))
    assert np.array_equal(with_random_b(awake, np.random.default_rng(2)).vector, awake.vector)
    # Rank that was gained later wakes up, too; what can be heard already is left alone.
    larger = grown(awake, awake.rank + 1, np.random.default_rng(2))
    assert has_zero_b(larger)
    again = with_random_b(larger, np.random.default_rng(3))
    assert not has_zero_b(again)
    for (_, a, b), (_, old_a, old_b) in zip(again.factors(), awake.factors(), strict=True):
        assert np.array_equal(a[:-1], old_a)
        assert np.array_equal(b[:, :-1], old_b)
        assert not a[-1].any()


class Credited(Tracer):
    """A tracer that knows its credit."""

    def __init__(self, credit: np.ndarray) -> None:
        self._credit = credit

    def credit(self, rows: Any, rewards: Any, rank: int) -> np.ndarray:
        return self._credit


def test_a_step_goes_up_the_credit_and_leaves_b_as_it_is() -> None:
    is_a = credited(LAYOUT, 3)
    credit = np.where(is_a, np.random.default_rng(2).normal(size=len(is_a)), 0).astype(np.float32)
    item = tasks.build("math.add").sample("short", np.random.default_rng(0))
    target = WeightedTarget(item, (5, 6, 1), 1.0, Trace(Credited(credit), 0))
    organelle: Any = type("Somebody", (), {"id": "o1"})
    awake = with_random_b(founder(), np.random.default_rng(1))
    learner = Learner(
        organelle, 2, awake, OptimizerState(), 0.01, [PricedLesson(target, "", Cost())]
    )
    for step in range(1, 4):  # with one credit again and again, Adam's step is its sign
        weights, states, statistics = NodePerturbation(1.0).learn([learner], Draw(0))
        moved = weights[2].vector - learner.weights.vector
        np.testing.assert_allclose(moved, 0.01 * np.sign(credit), atol=1e-5)
        assert (states[2].step, statistics.tokens) == (step, {2: 3})
        assert statistics.gradient_norm[2] == pytest.approx(float(np.linalg.norm(credit)))
        learner = replace(learner, weights=weights[2], optimizer_state=states[2])
    idle = replace(learner, weights=founder(), lessons=())
    weights, states, _ = NodePerturbation(1.0).learn([idle], Draw(0))
    assert states == {}
    woken = with_random_b(founder(), Draw(0)("wake", "o1"))
    assert np.array_equal(weights[2].vector, woken.vector)
    assert NodePerturbation(1.0).learn([replace(idle, rate=0.0)], Draw(0))[0] == {}


# The gradient that it stands for.


def traced(
    kernel: HostKernel, rows: Sequence[Request], std: float, first: int = 0
) -> tuple[Completions, Tracer]:
    """Answers in the midst of noise, and what was traced of them."""
    draws = [Draw(1)("row", first + row) for row in range(len(rows))]
    answers, traces = NodePerturbation(std).rollout(kernel, rows, draws, Decoding())
    assert [trace and trace.row for trace in traces] == list(range(len(rows)))
    assert traces[0] is not None
    return answers, traces[0].tracer


@PATHS
def test_traces_point_along_the_gradient_of_the_expected_reward(
    tmp_path: Path, prefer_fused: bool
) -> None:
    # One layer without adapters on k and v: the last prompt token alone decides on the first answer
    # token.
    targets, rows = ["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], 6000
    kernel = HostKernel.from_pretrained(
        make_host(tmp_path, layers=1), slots=1, targets=targets, prefer_fused=prefer_fused
    )
    weights = random_weights(kernel.layout, 0, rank=3)
    kernel.place(0, weights)
    found, tracer = traced(kernel, [Request("12+7=", 0, 1)] * rows, 0.05)
    target = int(found.ids[0, 0])
    # A graded reward, so that few rows are enough: the log-probability of the target where it was
    # said.
    is_target, scores = found.ids[:, 0] == target, found.log_probabilities[:, 0]
    reward = np.where(is_target, scores, scores.mean())
    assert is_target.mean() > 0.9
    credit = tracer.credit(range(rows), (reward - reward.mean()) / rows, weights.rank)
    batch = LearningBatch((Lesson("12+7=", (target,), 0),), {0: 1e-3}, 1e9)
    first = kernel.learn(batch, {0: weights}, {})[1][0].first
    assert first is not None
    ascent, is_a = -10 * first, credited(kernel.layout, 3)
    assert not credit[~is_a].any()
    assert np.corrcoef(credit[is_a], ascent[is_a])[0, 1] > 0.9
    assert np.linalg.norm(credit) / np.linalg.norm(ascent[is_a]) == pytest.approx(1.0, abs=0.25)


@PATHS
def test_a_trace_is_of_its_row_alone_however_many_are_written_at_a_time(
    tmp_path: Path, prefer_fused: bool
) -> None:
    """Prompts that sort differently without their last token are read in several pieces."""
    folder = make_host(tmp_path)
    prompts = ["47", "478", "4", "aé", "aa", "a", "ab"]
    rows = [Request(prompt, index % 4, 6) for prompt in prompts for index in range(6)]
    texts, credits = [], []
    for memory_mb in (2048.0, 2.0):
        kernel = HostKernel.from_pretrained(
            folder, slots=4, memory_mb=memory_mb, prefer_fused=prefer_fused
        )
        for slot in range(4):
            kernel.place(slot, random_weights(kernel.layout, slot))
        replies, tracer = traced(kernel, rows, 0.1)
        texts.append(replies.texts)
        credits.append(np.array([tracer.credit([row], [1.0], 8) for row in (3, 11, 40)]))
    assert texts[0] == texts[1] != kernel.rollout(rows, None, Decoding()).texts
    np.testing.assert_allclose(credits[1], credits[0], atol=0.05, rtol=1e-2)
    alone, tracer = traced(kernel, [rows[40]], 0.1, 40)
    assert alone.texts == (texts[0][40],)
    np.testing.assert_allclose(tracer.credit([0], [1.0], 8), credits[0][2], atol=0.05, rtol=1e-2)
    # Credit is by row or by token.
    by_row = tracer.credit([0], [-0.5], 8)
    np.testing.assert_array_equal(tracer.credit([0], [np.full(6, -0.5)], 8), by_row)
    tokens = [tracer.credit([0], [np.eye(6)[place]], 8) for place in range(6)]
    np.testing.assert_allclose(sum(tokens), tracer.credit([0], [1.0], 8), atol=1e-3)


# Runs.


@dataclass
class WatchedToy(ToyHost):
    """A toy that knows whether its last observer is still kept. ``is_doomed`` makes no number of
    what is read of a sum with a 7 in it."""

    is_doomed: bool = False
    last: Callable[[], Any] = lambda: None

    def rollout(self, rows: Any, draws: Any, decoding: Any, observer: Any = None) -> Completions:
        self.last = weakref.ref(observer)
        found = super().rollout(rows, draws, decoding, observer)
        if self.is_doomed:
            is_ill = ["add" in row.prompt and "7" in row.prompt for row in rows]
            for read in observer._inputs.values():
                read[is_ill] = np.nan
        return found


def live(folder: Path, host: ToyHost | None = None, **changes: Any) -> list[Event]:
    """The events of a toy run that learns by traces."""
    start(toy_config(learning_rule=HEBBIAN, **changes), folder, host=host or WatchedToy())
    return list(read_events(folder / "events.jsonl"))


@both
def test_an_organelle_learns_from_verdicts_without_a_backward_pass(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    host = WatchedToy()
    events = live(tmp_path / "run", host, generations=40, strategy=strategy)
    found = [event.accuracy or 0.0 for event in events if isinstance(event, GenerationEnded)]
    assert host.learned == []
    assert sum(found[-5:]) / 5 > max(sum(found[:3]) / 3 + 0.25, 0.75)
    gc.collect()
    assert host.last() is None  # traces do not outlive their generation


@pytest.mark.parametrize("is_doomed", [False, True])
def test_it_resumes_exactly_and_a_step_that_is_not_finite_is_quarantined(
    is_doomed: bool, tmp_path: Path
) -> None:
    whole, parts, host = tmp_path / "whole", tmp_path / "parts", WatchedToy(is_doomed=is_doomed)
    plan = toy_config(generations=12, families=("math.add", "math.max"), learning_rule=HEBBIAN)
    start(plan, whole, host=host)
    start(plan, parts, host=host, should_stop=lambda: True)
    while not resume(parts, host=host, should_stop=lambda: True).is_complete:
        pass
    sick = [e for e in read_events(whole / "events.jsonl") if isinstance(e, Quarantined)]
    assert bool(sick) is is_doomed
    for file in ("state.json", "events.jsonl"):
        assert (whole / file).read_bytes() == (parts / file).read_bytes()
    state, store = checkpoint.load_state(whole), BlobStore(whole / "blobs")
    assert state.ledger.total == 0
    for organelle in state.population.values():
        assert np.isfinite(store.weights(organelle.genome.weights).vector).all()


def test_a_founder_wakes_up_after_a_generation_and_a_lesson_takes_its_outer_products(
    tmp_path: Path,
) -> None:
    host = WatchedToy()
    events = live(tmp_path / "run", host, generations=6, strategy=SINGLE)
    learned = [event for event in events if isinstance(event, Learned)]
    rank, ((_, d_in, _),) = toy_config().host.rank, host.layout.modules
    assert min(event.generation for event in learned) == 1
    for event in learned:
        assert event.flops == 2 * event.tokens * rank * d_in
        assert event.loss == 0
        assert event.gradient_norm > 0
    budget = checkpoint.load_state(tmp_path / "run").spent
    assert budget.flops == sum(e.flops for e in events if isinstance(e, Acted | Learned))
    assert budget.calls == len(host.rolled)

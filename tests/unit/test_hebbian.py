"""Learning by three factors: traces, credit and the step that they take, without a run around
them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from symbiont_ecology.ecology import Assignment, Outcome, Rollout
from symbiont_ecology.economics import Cost, tracing_flops
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.learning import Experience, learning_rules
from symbiont_ecology.learning.policy_gradient import Hebbian
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import tasks
from symbiont_ecology.types import Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.weights.deltas import grown
from symbiont_ecology.weights.traces import B_SCALE, Traces, ascended, has_zero_b, with_random_b

LAYOUT = AdapterLayout((("up", 6, 30), ("down", 30, 6)))
HEBBIAN = Hebbian()


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


def practice(traces: Traces | None, first: int) -> Outcome:
    """Two sums, three answers each."""
    family, generator = tasks.build("math.add"), np.random.default_rng(0)
    items = (family.sample("short", generator), family.sample("short", generator))
    rewards = (1.0, 0.0, 0.0, 1.0, 1.0, 1.0)
    rollouts = tuple(
        Rollout(
            items[place // 3],
            "o1",
            token_ids=(5 + place, 1),
            log_probabilities=np.zeros(2),
            text="",
            verdict=reward,
            reward=reward,
            cost=Cost(rows=1),
            trace=traces[first + place] if traces else None,
        )
        for place, reward in enumerate(rewards)
    )
    return Outcome(Assignment("o1", items, 3), rollouts)


def test_a_lesson_is_the_advantage_of_a_rollout_and_the_trace_of_that_very_rollout() -> None:
    traces = Traces(LAYOUT, 1.0, {})
    targets, notes = HEBBIAN.targets(Experience((practice(traces, 10),), {}))
    # Of three answers the others are the baseline; where all are right there is nothing to learn.
    assert [target.weight for target in targets] == [1.0, -0.5, -0.5]
    assert [target.trace and target.trace.row for target in targets] == [10, 11, 12]
    assert all(target.trace and target.trace.traces is traces for target in targets)
    assert notes == {"baseline:math.add/short": pytest.approx(4 / 6)}


def test_without_traces_it_teaches_what_policy_gradient_teaches() -> None:
    lived = Experience((practice(None, 0),), {"baseline:math.add/short": 0.2})
    other = learning_rules.build({"kind": "policy_gradient", "group": 1.0})
    assert HEBBIAN.targets(lived)[0] == other.targets(lived)[0]


# The step.


def test_a_founder_is_deaf_and_wakes_up_as_the_same_function() -> None:
    asleep = founder()
    awake = with_random_b(asleep, np.random.default_rng(1))
    assert has_zero_b(asleep)
    assert not has_zero_b(awake)
    for name in ("up", "down"):
        assert not awake.delta(name).any()
    assert np.array_equal(with_random_b(awake, np.random.default_rng(2)).vector, awake.vector)


def test_rank_that_was_gained_later_wakes_up_too() -> None:
    awake = with_random_b(founder(), np.random.default_rng(1))
    larger = grown(awake, awake.rank + 1, np.random.default_rng(2))
    assert has_zero_b(larger)
    again = with_random_b(larger, np.random.default_rng(3))
    assert not has_zero_b(again)
    for (_, a, b), (_, old_a, old_b) in zip(again.factors(), awake.factors(), strict=True):
        assert np.array_equal(a[:-1], old_a)
        assert np.array_equal(b[:, :-1], old_b)
        assert not a[-1].any()


def test_what_can_be_heard_already_is_left_alone() -> None:
    factors = {name: (a, b) for name, a, b in founder().factors()}
    factors["up"] = (factors["up"][0], np.ones((30, 3)))
    half = AdapterWeights.from_factors(LAYOUT, 3, 1.0, factors)
    awake = with_random_b(half, np.random.default_rng(1))
    assert has_zero_b(half)
    assert not has_zero_b(awake)
    assert np.array_equal(awake.delta("up"), half.delta("up"))


@pytest.mark.parametrize(("rank", "modules"), [(1, 1), (8, 1), (1, 12), (4, 6)])
def test_noise_of_one_size_is_heard_alike_whatever_the_rank_and_the_number_of_modules(
    rank: int, modules: int
) -> None:
    layout = AdapterLayout(tuple((f"m{number}", 8, 500) for number in range(modules)))
    generator = np.random.default_rng(0)
    awake = with_random_b(founder(layout, rank), generator)
    heard = sum(
        b @ generator.normal(0, 2.0, (rank, 40)) for _, _, b in awake.factors()
    )  # (d_out, draws)
    assert np.sqrt(np.mean(np.square(heard))) == pytest.approx(2.0 * B_SCALE, rel=0.15)


def test_a_step_goes_up_the_credit_and_leaves_b_as_it_is() -> None:
    weights, optimizer_state, is_a = (
        with_random_b(founder(), np.random.default_rng(1)),
        OptimizerState(),
        credited(LAYOUT, 3),
    )
    credit = np.where(is_a, np.random.default_rng(2).normal(size=len(is_a)), 0).astype(np.float32)
    for step in range(
        1, 4
    ):  # with one credit again and again, Adam's step is its sign times the rate
        after, optimizer_state = ascended(weights, optimizer_state, credit, 0.01)
        np.testing.assert_allclose(after.vector - weights.vector, 0.01 * np.sign(credit), atol=1e-5)
        assert optimizer_state.step == step
        weights = after


def test_a_lesson_from_a_trace_costs_what_torch_counts() -> None:
    rank, steps = 3, 7
    with FlopCounterMode(display=False) as counter:
        for _, d_in, _ in LAYOUT.modules:
            _ = torch.randn(rank, steps) @ torch.randn(steps, d_in)
    assert tracing_flops(int(credited(LAYOUT, rank).sum()), steps) == counter.get_total_flops()


# The gradient that it stands for.


def test_the_mean_update_turns_towards_the_policy_gradient_as_samples_are_added() -> None:
    """On the embedded host: one decision per question, its gradient known by a backward pass over
    the right first tokens, and adapters in the last layer, where nothing but that decision
    passes."""
    targets = ["layers.4.self_attn.o_proj", "layers.4.mlp.down_proj"]
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=2, targets=targets)
    weights = with_random_b(founder(kernel.layout, 2), np.random.default_rng(1))
    kernel.place(0, weights)
    family, questions, samples = tasks.build("logic.bool"), 16, 256
    items = family.distinct("short", questions, Draw(0)("items"), split="train")
    prompts = [item.prompt for item in items]
    right = [ids[0] for ids in kernel.encode_answers([item.answer for item in items])]

    chances = [float(one.exp()) for one in kernel.score(prompts, [(token,) for token in right], 0)]
    lessons = [
        Lesson(prompt, (token,), 0, chance)
        for prompt, token, chance in zip(prompts, right, chances, strict=True)
    ]
    first = kernel.learn(LearningBatch(tuple(lessons), {0: 1e-3}, 1e9), {0: weights}, {})[1][
        0
    ].first
    assert first is not None
    exact = np.where(credited(kernel.layout, 2), -first, 0)

    rows = [Request(prompt, 0, 1) for prompt in prompts for _ in range(samples)]
    draws = [Draw(0)("row", row) for row in range(len(rows))]
    found = kernel.rollout(
        rows, draws, Decoding(temperature=1.0, perturbation=HEBBIAN.perturbation)
    )
    assert found.traces is not None
    rewards = (
        (found.ids[:, 0] == np.repeat(right, samples)).astype(float).reshape(questions, samples)
    )

    def cosine(start: int, stop: int) -> float:
        """Of the update from some of the samples of every question."""
        part = rewards[:, start:stop]
        advantages = (part - part.mean(1, keepdims=True)).ravel()
        places = (samples * np.arange(questions)[:, None] + np.arange(start, stop)).ravel()
        credit = found.traces.credit(places.tolist(), advantages.tolist(), 2)  # type: ignore[union-attr]
        return float(credit @ exact / np.linalg.norm(credit) / np.linalg.norm(exact))

    means = [
        np.mean([cosine(start, start + size) for start in range(0, samples, size)])
        for size in (4, 32, 256)
    ]
    assert means == sorted(means)
    assert means[-1] >= 0.5  # 4,096 samples
    assert means[0] < 0.3  # 64 samples: it is the number that does it

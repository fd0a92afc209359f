"""What every operator, learning rule and router promises, and that every knob is checked; a new one
is tested by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import start
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import Registry, knobs
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import cell_name
from symbiont_ecology.ecology import HOST, Assignment, Outcome, Rollout
from symbiont_ecology.ecology.learning import Experience, learning_rules, reward_rules
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.routing.allocators import allocators
from symbiont_ecology.ecology.routing.routers import Observation, routers
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.run.build import check
from symbiont_ecology.tasks import tasks
from toy import LAYOUT, ToyHost, toy_config

# Operators.

WIDER = AdapterLayout((("up", 6, 3), ("down", 3, 6), ("zero", 2, 2)))


def parents_of(name: str, layout: AdapterLayout, seed: int) -> list[AdapterWeights]:
    parents = []
    for k in range(operators[name].arity):
        generator = np.random.default_rng([seed, k])
        parents.append(AdapterWeights.random(layout, 3 - k, 1.0 + k, generator, b_std=0.1))
    return parents


@pytest.mark.parametrize("name", operators.names())
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), layout=st.sampled_from((LAYOUT, WIDER)))
def test_an_operator_is_pure_seeded_and_keeps_shape(
    name: str, seed: int, layout: AdapterLayout
) -> None:
    operator, parents = operators.build(name), parents_of(name, layout, seed)
    before = [parent.vector.copy() for parent in parents]
    child, twin = (operator(parents, np.random.default_rng(seed)) for _ in range(2))
    assert child.layout == layout
    assert 1 <= child.rank <= sum(parent.rank for parent in parents)
    assert child.vector.dtype == np.float32
    assert np.isfinite(child.vector).all()
    assert np.array_equal(child.vector, twin.vector)
    assert (child.rank, child.scaling) == (twin.rank, twin.scaling)
    for parent, vector in zip(parents, before, strict=True):
        assert np.array_equal(parent.vector, vector)


# Learning rules.


@st.composite
def lives(draw: st.DrawFn) -> Experience:
    """Practice of one organelle in one or two cells, with any verdicts and any notes from
    before."""
    outcomes, notes = [], {}
    for name in draw(
        st.lists(st.sampled_from(("math.add", "string.sort")), min_size=1, max_size=2, unique=True)
    ):
        count, samples = draw(st.integers(1, 3)), draw(st.integers(1, 4))
        family, generator = (tasks.build(name), np.random.default_rng(draw(st.integers(0, 99))))
        items = tuple(family.sample("short", generator) for _ in range(count))
        size = count * samples
        completions = [(*generator.integers(2, 9, size=2).tolist(), 1) for _ in range(size)]
        rewards = draw(st.lists(st.sampled_from((0.0, 1.0)), min_size=size, max_size=size))
        rollouts = tuple(
            Rollout(item, "o1", ids, np.zeros(3), "", reward, reward, Cost(rows=1))
            for item, ids, reward in zip(
                (item for item in items for _ in range(samples)), completions, rewards, strict=True
            )
        )
        outcomes.append(Outcome(Assignment("o1", items, samples), rollouts))
        if draw(st.booleans()):
            notes[f"baseline:{cell_name(outcomes[-1].assignment.cell)}"] = draw(st.floats(0, 1))
    answers = (item.answer for outcome in outcomes for item in outcome.assignment.items)
    reference_ids = {answer: (*map(ord, answer), 1) for answer in answers}
    return Experience(tuple(outcomes), notes, reference_ids=reference_ids)


@pytest.mark.parametrize("name", learning_rules.names())
@given(lived=lives())
def test_a_learning_rule_is_pure_and_teaches_what_was_lived(name: str, lived: Experience) -> None:
    rule, notes = learning_rules.build(name), dict(lived.notes)
    (teachings, kept), again = rule.targets(lived), rule.targets(lived)
    assert (list(teachings), dict(kept)) == (list(again[0]), dict(again[1]))
    assert lived.notes == notes
    assert all(np.isfinite(value) for value in kept.values())
    said = {
        (rollout.item, rollout.token_ids)
        for outcome in lived.outcomes
        for rollout in outcome.rollouts
    }
    for one in teachings:
        assert np.isfinite(one.weight).all()
        assert np.all(one.weight)
        assert rule.sees_gold or (one.item, one.token_ids) in said


@given(lived=lives())
def test_expert_iteration_imitates_accepted_answers_alone(lived: Experience) -> None:
    teachings, _ = learning_rules.build("expert_iteration").targets(lived)
    accepted = {
        (rollout.item, rollout.token_ids)
        for outcome in lived.outcomes
        for rollout in outcome.rollouts
        if rollout.reward == 1.0
    }
    assert {(one.item, one.token_ids) for one in teachings} == accepted
    assert all(one.weight == 1.0 for one in teachings)


# Routers.


def prompts(name: str, count: int, seed: int = 0) -> list[str]:
    family, generator = tasks.build(name), Draw(seed)("prompts", name)
    return [family.sample("short", generator).prompt for _ in range(count)]


def choosing(
    name: str, seen: list[Observation], candidates: list[str]
) -> Callable[[list[str]], list[str]]:
    """Whoever is promised most of, for each prompt."""
    promise, everyone = routers.build(name).fit(seen, candidates), [HOST, *candidates]

    def choose(asked: list[str]) -> list[str]:
        promised = promise(asked)
        assert promised.shape == (len(asked), len(everyone))
        return [everyone[index] for index in promised.argmax(axis=1)]

    return choose


def separable() -> list[Observation]:
    """o1 knows sums, o2 knows letters, the host knows neither well."""
    seen = []
    for name, expert, other in (("math.add", "o1", "o2"), ("string.sort", "o2", "o1")):
        for index, prompt in enumerate(prompts(name, 40)):
            seen += [Observation(prompt, expert, 1.0), Observation(prompt, other, 0.0)]
            seen += [Observation(prompt, HOST, float(index % 5 == 0))]
    return seen


@pytest.mark.parametrize("name", routers.names())
def test_a_router_sends_new_prompts_to_whoever_knows_their_like(name: str) -> None:
    choose = choosing(name, separable(), ["o1", "o2"])
    for family, expert in (("math.add", "o1"), ("string.sort", "o2")):
        chosen = Counter(choose(prompts(family, 40, seed=1)))
        assert chosen[expert] >= 38, chosen


@pytest.mark.parametrize("name", routers.names())
def test_a_router_abstains_where_nobody_is_better_than_the_host(name: str) -> None:
    seen = [
        Observation(prompt, organelle_id, 0.0)
        for prompt in prompts("math.add", 40)
        for organelle_id in ("o1", "o2")
    ]
    seen += [
        Observation(prompt, HOST, float(index % 4 == 0))
        for index, prompt in enumerate(prompts("math.add", 40))
    ]
    choose = choosing(name, seen, ["o1", "o2"])
    assert Counter(choose(prompts("math.add", 30, seed=2)))[HOST] == 30
    assert choosing(name, [], ["o1", "o2"])(prompts("math.add", 3)) == [HOST] * 3
    assert choosing(name, [], [])(prompts("math.add", 3)) == [HOST] * 3


@pytest.mark.parametrize("name", routers.names())
def test_a_route_depends_on_its_own_prompt_alone(name: str) -> None:
    choose = choosing(name, separable(), ["o1", "o2"])
    asked = prompts("math.add", 5, 3) + prompts("string.sort", 5, 3) + ["", "x" * 2000]
    together = choose(asked)
    assert together == [choose([prompt])[0] for prompt in asked]
    assert together == list(reversed(choose(list(reversed(asked)))))
    assert set(together) <= {"o1", "o2", HOST}


# Knobs.

WHOLE, REAL = (-1, 0, 1), (-1.0, 0.0, 0.5, 1.0, 2.0, float("nan"), float("inf"))
KINDS: dict[str, Registry[Any]] = {
    "strategy": strategies,
    "learning_rule": learning_rules,
    "allocator": allocators,
    "router": routers,
    "reward": reward_rules,
}
KNOBS = [
    (key, name, knob.name, value)
    for key, registry in KINDS.items()
    for name in registry.names()
    for knob in knobs(registry[name])
    for value in (WHOLE if knob.type in ("int", "PositiveInt", "NonNegativeInt") else REAL)
    if knob.type not in ("Spec", "bool", "str")
]


FEW: dict[str, Any] = {"questions": 1, "samples": 2}
READS_GOLD: dict[str, Any] = {"hyper": {"ranks": [1, 2], "batch": 32}}
"""Knobs that make a life short and fit the toy, where a strategy has them; and those of strategies
that only learn by a rule which reads gold answers."""


@pytest.mark.parametrize(("key", "name", "knob", "value"), KNOBS, ids=str)
def test_any_value_of_a_knob_works_or_is_refused_in_one_line(
    key: str, name: str, knob: str, value: object, tmp_path: Path
) -> None:
    known = {field.name for field in knobs(KINDS[key][name])}
    small: dict[str, Any] = {}
    if key == "strategy":
        small[key] = {"kind": name} | {field: FEW[field] for field in known & set(FEW)}
        if name in READS_GOLD:
            small = {key: small[key] | READS_GOLD[name], "learning_rule": "supervised"}
    economy = Prices(dowry=2000)
    cheap = {"economy": economy, "families": ["math.add"]}
    config = toy_config(
        generations=3, **{**cheap, **small, key: {**small.get(key, {"kind": name}), knob: value}}
    )
    try:
        check(config)
    except ConfigError as error:
        message = str(error)
    else:
        state = start(config, tmp_path / "run", host=ToyHost()).state
        assert state.ledger.total == 0
        run = LoadedRun.of_run(tmp_path / "run")
        run.evaluate(run.items(2), ToyHost())
        return
    assert knob in message
    assert "\n" not in message

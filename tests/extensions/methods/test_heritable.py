"""Rules of learning as heredity: who learns by the better rule has more descendants, and chance
alone decides between equals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Event, Learned
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.ecology import RULE, EcologyState
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.start import resume, start
from towns import config as town
from towns import lived
from toy import ToyHost, toy_config, toy_ecology, toy_prices

LIVELY, LAZY = "expert_iteration", "none"


def config(rules: Sequence[Spec], seed: int = 0, generations: int = 100) -> RunConfig:
    """Eight founders, half of them by each rule, and room for four more; who is in debt is out."""
    strategy = toy_ecology(founders=8, capacity=12, least=1)
    rule = {"kind": "heritable", "rules": list(rules)}
    prices = toy_prices(dowry=12_000, grace=0, cap=40_000)
    return toy_config(seed, generations, economy=prices, strategy=strategy, learning_rule=rule)


@dataclass(frozen=True)
class Life:
    """A run under two rules."""

    state: EcologyState
    events: Sequence[Event]

    @property
    def second(self) -> float:
        """Share of the living that learn by the second rule."""
        living = self.state.population.values()
        return sum(one.genome.traits[RULE] >= 0.5 for one in living) / len(living)

    @property
    def born(self) -> dict[str, Born]:
        """Everyone who ever lived."""
        return {event.id: event for event in self.events if isinstance(event, Born)}


def lives(folder: Path, rules: Sequence[Spec], seeds: int) -> Iterator[Life]:
    """One run of every seed."""
    for seed in range(seeds):
        state = start(config(rules, seed), folder / str(seed), host=ToyHost()).state
        yield Life(state, list(read_events(folder / str(seed) / "events.jsonl")))


@pytest.fixture(scope="module")
def equals(tmp_path_factory: pytest.TempPathFactory) -> list[Life]:
    """Lives under two rules that are one."""
    return list(lives(tmp_path_factory.mktemp("equals"), [LIVELY, LIVELY], 4))


@pytest.fixture(scope="module")
def unequals(tmp_path_factory: pytest.TempPathFactory) -> list[Life]:
    """Lives in which half of the founders learn nothing."""
    return list(lives(tmp_path_factory.mktemp("unequals"), [LAZY, LIVELY], 3))


def test_founders_are_spread_evenly_over_the_rules(equals: list[Life]) -> None:
    for life in equals:
        founders = [one for one in life.born.values() if one.operator == "founder"]
        assert [sum(one.traits[RULE] >= 0.5 for one in founders), len(founders)] == [4, 8]


def test_a_child_has_its_parents_rule_or_seldom_another(equals: list[Life]) -> None:
    kept = [
        child.traits[RULE] == life.born[parent].traits[RULE]
        for life in equals
        for child in life.born.values()
        for parent in child.parents
    ]
    assert len(kept) > 40
    assert 0.8 * len(kept) < sum(kept) < len(kept)


def test_everyone_learns_by_their_own_rule(unequals: list[Life]) -> None:
    for life in unequals:
        learned = {event.id for event in life.events if isinstance(event, Learned)}
        lively = {
            organelle_id for organelle_id, one in life.born.items() if one.traits[RULE] >= 0.5
        }
        assert len(learned) > 8
        assert learned <= lively


def test_a_useful_rule_takes_over_whatever_its_place(unequals: list[Life], tmp_path: Path) -> None:
    useful = [life.second for life in unequals]
    useful += [1 - life.second for life in lives(tmp_path, [LIVELY, LAZY], 3)]
    assert min(useful) > 0.75
    assert sum(useful) / len(useful) > 0.85


def test_between_equal_rules_chance_decides(equals: list[Life]) -> None:
    shares = [life.second for life in equals]
    assert min(shares) < 0.5 < max(shares)
    assert 0.25 < sum(shares) / len(shares) < 0.75


def test_newcomers_are_given_a_rule_and_not_always_the_same(tmp_path: Path) -> None:
    strategy = toy_ecology(least=6, breed_at=10**9)
    plan = toy_config(
        0, 40, strategy=strategy, learning_rule={"kind": "heritable", "rules": [LAZY, LIVELY]}
    )
    start(plan, tmp_path / "run", host=ToyHost())
    born = [
        event for event in read_events(tmp_path / "run/events.jsonl") if isinstance(event, Born)
    ]
    newcomers = [event.traits[RULE] for event in born if event.operator == "refounded"]
    assert min(newcomers) < 0.5 <= max(newcomers)


def test_a_rule_for_all_leaves_the_genome_without_the_trait(tmp_path: Path) -> None:
    start(toy_config(generations=12), tmp_path / "run", host=ToyHost())
    born = [
        event for event in read_events(tmp_path / "run/events.jsonl") if isinstance(event, Born)
    ]
    assert any(event.parents for event in born)
    assert {frozenset(event.traits) for event in born} == {frozenset({"learning_rate", "aging"})}


def test_a_run_stopped_in_the_middle_goes_on_exactly(tmp_path: Path) -> None:
    plan = config([LIVELY, "policy_gradient"], generations=12)
    start(plan, tmp_path / "whole", host=ToyHost())
    start(plan, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([], "rules: expected the name of one or more, got none"),
        (["supervised"], "rules.0: expected a rule whose sees_gold"),
        ([LIVELY, {"kind": "hebbian"}], "rules.1: expected a rule whose estimator"),
        ([LAZY, "grpo"], "rules.1: expected a rule whose least_samples"),
        (["heritable"], "rules.0: expected a rule whose rule_count"),
        ([{"kind": LIVELY, "replay": 1.0}], "rules.0: expected a rule whose replay"),
        (
            [LAZY, {"kind": LIVELY, "temperature": 0.7}],
            "rules.1: expected a rule whose temperature is 1.0",
        ),
        (["expert_iteratoin"], "did you mean 'expert_iteration'?"),
        ([{"kind": LIVELY, "acept": 1}], "did you mean 'accept'?"),
        ([3], "rules.0: expected"),
    ],
    ids=str,
)
def test_a_mistake_in_the_rules_is_one_line_before_a_host_is_loaded(
    rules: Sequence[Spec], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        check(config(rules))
    assert "\n" not in str(caught.value)


def test_who_colonises_is_given_a_rule(tmp_path: Path) -> None:
    rule = {"kind": "heritable", "rules": [LIVELY, "policy_gradient"]}
    plan = town().model_copy(update={"learning_rule": rule})
    _, events = lived(tmp_path, plan)
    born = [event for event in events if isinstance(event, Born)]
    assert {"coloniser"} <= {event.operator for event in born}
    assert all(RULE in event.traits for event in born)


def test_a_reward_that_one_of_the_rules_cannot_use_is_refused() -> None:
    plan = config([LAZY, LIVELY]).model_copy(update={"reward": "conciseness"})
    with pytest.raises(ConfigError, match="expected one that is 1 for right answers"):
        check(plan)

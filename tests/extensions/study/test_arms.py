"""The arms of a comparison: what each sees, what each spends, and how the world changes under all
of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, GenerationEnded, Learned, Quarantined, Retired
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.learning import Experience, learning_rules
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.config import Flip
from symbiont_ecology.tasks.splits import split_of
from toy import ToyHost, toy_config, toy_ecology

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
SFT = {"kind": "single", "questions": 4, "samples": 0, "learning_rate": 0.1}
SPECIALISTS = {"kind": "independent", "questions": 4, "samples": 0, "learning_rate": 0.1}
SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
ARMS: dict[str, dict[str, Any]] = {
    "frozen": {
        "strategy": {"kind": "frozen", "founders": 3, "questions": 3},
        "learning_rule": "none",
    },
    "single": {"strategy": SINGLE},
    "ecology": {"strategy": toy_ecology()},
    "independent": {"strategy": {**SINGLE, "kind": "independent"}},
    "es": {
        "strategy": {"kind": "es", "population": 6, "questions": 3, "looks": 4},
        "learning_rule": "none",
    },
    "genetic": {"strategy": {"kind": "genetic", "questions": 3}, "learning_rule": "none"},
    "hyper": {
        "strategy": {"kind": "hyper", "train_size": 96, "eval_size": 96, "ranks": [2, 4]},
        "learning_rule": "supervised",
    },
    "sft": {"strategy": SFT, "learning_rule": "supervised"},
    "sft-specialists": {"strategy": SPECIALISTS, "learning_rule": "supervised"},
}
every_arm = pytest.mark.parametrize("arm", ARMS)


def live(folder: Path, host: ToyHost | None = None, **changes: Any) -> list[Any]:
    changes.setdefault("families", FAMILIES)
    start(toy_config(**changes), folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


def accuracy(folder: Path, routing: str) -> float:
    run = LoadedRun.of_run(folder)
    return run.evaluate(run.items(25), ToyHost(), routing).accuracy().estimate


# Supervised learning.


@pytest.mark.parametrize("arm", ["sft", "sft-specialists"])
def test_gold_answers_are_learned_without_a_single_rollout(arm: str, tmp_path: Path) -> None:
    host = ToyHost()
    events = live(tmp_path / "run", host, generations=40, **ARMS[arm])
    assert len(host.rolled) == 1  # the founding, which measures the exchange rate
    assert accuracy(tmp_path / "run", "learned") > accuracy(tmp_path / "run", "host") + 0.4
    for event in events:
        if isinstance(event, Acted) and event.id != HOST:
            assert (event.verdicts, event.flops, event.samples) == ((), 0, 0)
    assert [event for event in events if isinstance(event, Learned)]


def test_only_a_rule_that_says_so_is_given_gold_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Experience] = []
    for name in ("policy_gradient", "expert_iteration"):
        rule = learning_rules[name]
        targets = rule.targets
        monkeypatch.setattr(
            rule,
            "targets",
            lambda self, lived, targets=targets: seen.append(lived) or targets(self, lived),
        )
        live(tmp_path / name, generations=2, strategy=SINGLE, learning_rule=name)
    assert seen
    assert all(lived.reference_ids == {} for lived in seen)
    assert [name for name in learning_rules.names() if learning_rules[name].sees_gold] == [
        "supervised"
    ]


def test_no_rollouts_and_a_rule_that_needs_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"strategy\.samples: 0 .* learning_rule=supervised"):
        start(toy_config(strategy=SFT), tmp_path / "run", host=ToyHost())


# Independent learners.


def test_independent_learners_keep_to_their_families_and_never_breed(tmp_path: Path) -> None:
    strategy = {**SINGLE, "kind": "independent"}
    events = live(tmp_path / "run", generations=12, strategy=strategy)
    met: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, Acted) and event.id != HOST:
            met.setdefault(event.id, set()).add(cell_family(event.cell))
    assert sorted(map(sorted, met.values())) == sorted([name] for name in FAMILIES)
    assert {event.parents for event in events if isinstance(event, Born)} == {()}
    assert not [event for event in events if isinstance(event, Retired)]
    assert accuracy(tmp_path / "run", "learned") > accuracy(tmp_path / "run", "host") + 0.3


def test_a_niche_whose_learner_met_a_nan_is_founded_anew(tmp_path: Path) -> None:
    strategy = {**SINGLE, "kind": "independent"}
    events = live(tmp_path / "run", ToyHost(poison={2: 1}), generations=6, strategy=strategy)
    assert len([event for event in events if isinstance(event, Quarantined)]) == 1
    state = checkpoint.load_state(tmp_path / "run")
    assert sorted(o.genome.traits["niche"] for o in state.population.values()) == [0, 1, 2, 3]


# Budgets.


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> int:
    """FLOPs of twenty generations of one adapter."""
    config = toy_config(generations=20, families=FAMILIES, **ARMS["single"])
    return start(config, tmp_path_factory.mktemp("probe"), host=ToyHost()).state.spent.flops


@every_arm
@pytest.mark.parametrize("part", [0.3, 1.0])
def test_every_arm_meets_its_budget_within_two_percent_and_does_not_end_in_crumbs(
    arm: str, part: float, probed: int, tmp_path: Path
) -> None:
    budget = part * probed
    config = toy_config(generations=100_000, families=FAMILIES, train_flops=budget, **ARMS[arm])
    spent = start(config, tmp_path / "run", host=ToyHost()).state.spent.flops
    assert 0.98 * budget <= spent <= 1.02 * budget
    asked: dict[int, int] = {}
    for event in read_events(tmp_path / "run/events.jsonl"):
        if isinstance(event, Acted) and event.purpose == "practice":
            asked[event.generation] = asked.get(event.generation, 0) + len(event.items)
    assert asked
    assert sum(count <= 2 for count in list(asked.values())[-6:]) <= 2


# Changes of the world.


def flipping(
    at: float, back: float | None, families: tuple[str, ...] = FAMILIES[:2], **changes: Any
) -> Any:
    config = toy_config(families=FAMILIES, **changes)
    flip = Flip(families=families, at_flops=at, back_flops=back)
    return config.model_copy(update={"tasks": config.tasks.model_copy(update={"flip": flip})})


@every_arm
def test_every_arm_meets_the_flip_at_its_moment_and_has_the_same_extra_flops(
    arm: str, tmp_path: Path
) -> None:
    unit = 3e8
    config = flipping(unit, 1.5 * unit, generations=100_000, train_flops=2 * unit, **ARMS[arm])
    start(config, tmp_path / "run", host=ToyHost())
    spent, began, ended = 0, 0, 0
    for event in read_events(tmp_path / "run/events.jsonl"):
        if isinstance(event, Acted | Learned):
            spent += event.flops
        if isinstance(event, Acted) and event.purpose == "practice":
            for identity in event.items:
                name, _, convention, _ = identity.split("/", 3)
                family = tasks.build(name)
                if int(convention) != family.target:
                    began, ended = began or spent, spent
                    assert name in FAMILIES[:2]
                    assert int(convention) == family.flipped().convention
    assert began == pytest.approx(unit, rel=0.03)  # within the generation that it falls into
    assert ended <= 1.51 * unit
    ends = [
        e.train_flops
        for e in read_events(tmp_path / "run/events.jsonl")
        if isinstance(e, GenerationEnded)
    ]
    for moment in (unit, 1.5 * unit, 2 * unit):
        assert min(abs(end - moment) for end in ends) < 0.02 * unit


def test_an_interrupted_run_with_a_flip_equals_one_that_was_not(tmp_path: Path) -> None:
    config = flipping(4e7, 9e7, generations=14, strategy=SINGLE)
    start(config, tmp_path / "whole", host=ToyHost())
    start(config, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_flip_that_would_be_told_or_met_by_nobody_is_refused(tmp_path: Path) -> None:
    config = flipping(1, None)
    told = config.model_copy(update={"tasks": config.tasks.model_copy(update={"style": "natural"})})
    with pytest.raises(ConfigError, match="tells what is right"):
        start(told, tmp_path / "run", host=ToyHost())
    with pytest.raises(ConfigError, match=r"tasks\.flip\.families: \['countdown'\]"):
        start(flipping(1, None, ("countdown",)), tmp_path / "run", host=ToyHost())


@pytest.mark.parametrize(
    "strategy",
    [
        {**SINGLE, "questions": 6, "reset": 8.0},
        {**SINGLE, "questions": 6, "reset": 6.0, "by_family": True},
    ],
)
def test_one_whose_success_falls_starts_anew(strategy: dict[str, Any], tmp_path: Path) -> None:
    parts = {"generations": 60, "strategy": strategy, "learning_rule": "expert_iteration"}
    calm = live(tmp_path / "calm", **parts)
    assert not [event for event in calm if isinstance(event, Retired)]
    spent = checkpoint.load_state(tmp_path / "calm").spent.flops
    start(flipping(spent / 2, None, **parts), tmp_path / "changed", host=ToyHost())
    events = list(read_events(tmp_path / "changed/events.jsonl"))
    gone = [event for event in events if isinstance(event, Retired)]
    assert [event.cause for event in gone] == ["reset"]
    assert all(25 < event.generation < 50 for event in gone)
    assert len(checkpoint.load_state(tmp_path / "changed").population) == len(
        checkpoint.load_state(tmp_path / "calm").population
    )


# Leaks.


@every_arm
def test_no_payload_of_selection_or_holdout_reaches_learning_or_allocation(
    arm: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    events = live(folder, generations=25, **ARMS[arm])
    run = LoadedRun.of_run(folder)
    run.evaluate(run.items(20), ToyHost())
    resume(folder, overrides=["run.generations=30"], host=ToyHost())
    events = list(read_events(folder / "events.jsonl"))
    payloads = {
        tuple(one.split("/", 3))
        for event in events
        if isinstance(event, Acted)
        for one in event.items
    }
    assert len(payloads) > (15 if arm == "genetic" else 100)  # an exam is asked of who is new
    for name, _, _, payload in payloads:
        assert split_of(name, tasks.build(name).split_key(payload)) == "train"


def test_every_strategy_is_an_arm_here() -> None:
    """But for those of worlds with users (test_users)."""
    here = {name for name in strategies.names() if "cells" in strategies.build(name).worlds}
    assert {arm["strategy"]["kind"] for arm in ARMS.values()} == here

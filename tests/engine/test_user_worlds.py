"""What a world with users is, and what fits into it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logs import ECOLOGY, FORAGING
from runs import resume, start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.run.build import mixture
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.splits import split_of
from towns import config, world_of
from toy import ToyHost, toy_config


def test_the_stream_is_what_its_config_says() -> None:
    plan = config(count=40, kinds=4, questions=20, activity=0.8, arrivals=20, length=40)
    world = world_of(plan)
    assert world.arrivals[11] == 0
    assert (np.diff(world.arrivals) >= 0).all()
    seen = Counter[str]()
    for generation in range(40):
        items = world.questions(generation)
        assert len(items) == 20
        assert items == world.questions(generation)
        for item in items:
            assert world.arrivals[world.names.index(item.user)] <= generation
            assert item.verifier(item.answer)
            assert not item.verifier("")
        seen.update(item.user for item in items)
    counts = sorted(seen.values(), reverse=True)
    assert counts[0] > 5 * counts[len(counts) // 2]
    assert Counter(world.kinds(0).tolist()) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_an_evaluation_asks_every_user_what_nobody_met() -> None:
    plan = config(noise=0.5, fickle=2)
    drawn = draw_shifts(mixture(plan), ["users"], 5)
    assert Counter(item.user for item in drawn) == dict.fromkeys(world_of(plan).names, 5)
    assert len({item.id for item in drawn}) == len(drawn)
    for item in drawn:
        assert item.verifier(item.answer) == 1  # without noise
        key = tasks.build(item.family).split_key(item.question)
        assert split_of(item.family, key) == "holdout"
    assert draw_shifts(mixture(toy_config()), ["users"], 5) == []


def test_an_evaluation_judges_as_users_do_in_the_last_generation_that_was_lived(
    tmp_path: Path,
) -> None:
    plan = config(count=24, kinds=4, drift_at=3, length=3)
    world, folder = world_of(plan), tmp_path / "run"
    start(plan, folder, host=ToyHost())
    before = LoadedRun.of_run(folder)
    resume(folder, overrides=["run.generations=4"], host=ToyHost())
    after = LoadedRun.of_run(folder)

    def wanted(items: Sequence[Item]) -> list[tuple[str, str, str]]:
        """Who asks what, and what is right."""
        return [(item.user, item.prompt, item.answer) for item in items]

    for run, generation in ((before, 2), (after, 3)):
        asked = run.items(4, ("users",))
        assert wanted(asked) == wanted(world.drawn(4, 0, "holdout", generation))
    first, last = (run.items(4, ("users",)) for run in (before, after))
    assert [item.prompt for item in first] == [item.prompt for item in last]
    changed = {
        one.user for one, other in zip(first, last, strict=True) if one.answer != other.answer
    }
    assert 0 < len(changed) <= 6
    assert wanted(last) == wanted(world.drawn(4, 0, "holdout"))


def test_drift_moves_as_many_users_as_it_says() -> None:
    world = world_of(config(count=24, kinds=4, drift_at=10))
    assert (world.kinds(9) == world.kinds(0)).all()
    assert int((world.kinds(10) != world.kinds(0)).sum()) == 6


def test_noise_turns_some_verdicts_and_a_fickle_user_draws_its_own() -> None:
    world = world_of(config(noise=0.1, fickle=1, questions=12))
    right: dict[str, list[bool]] = defaultdict(list)
    for generation in range(200):
        for item in world.questions(generation):
            right[item.user].append(bool(item.verifier(item.answer)))
    rates = sorted(float(np.mean(verdicts)) for verdicts in right.values())
    assert rates[0] == pytest.approx(0.5, abs=0.15)
    assert rates[1] > 0.8
    assert np.mean(rates[1:]) == pytest.approx(0.9, abs=0.03)


def test_every_user_goes_through_the_regimes_at_its_own_times() -> None:
    course = (0, 1, 0, 2, 1)
    world = world_of(config(count=4, kinds=3, apart=True, regimes=course, regime=20, length=100))
    kinds = np.array([world.kinds(generation) for generation in range(140)])
    for user in range(4):
        lived = kinds[:, user].tolist()
        phases = [
            kind for place, kind in enumerate(lived) if place == 0 or kind != lived[place - 1]
        ]
        names = dict(zip((0, 1, 2), (phases[0], phases[1], phases[3]), strict=True))
        assert phases == [names[kind] for kind in course]
    switches = {tuple(np.flatnonzero(np.diff(kinds[:, user]))) for user in range(4)}
    assert len(switches) == 4
    families = defaultdict(set)
    for generation in range(5):
        for item in world.questions(generation):
            families[item.user].add(item.family)
    assert sorted(len(one) for one in families.values()) == [1, 1, 1, 1]
    assert len(set.union(*families.values())) == 4


def test_a_prompt_may_show_its_user() -> None:
    hidden, shown = world_of(config()), world_of(config(shown=True))
    for one, other in zip(hidden.questions(3), shown.questions(3), strict=True):
        assert other.prompt == f"{one.user} {one.prompt}"
        assert (one.id, one.user) == (other.id, other.user)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regimes": (0, 1), "drift_at": 5}, "no drift_at beside them"),
        ({"kinds": 100}, "expected at most 81 kinds, which 4 groups of families have"),
        ({"regimes": (0, 7)}, "got 3 kinds, regimes"),
    ],
)
def test_changes_that_contradict_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mixture(config(**changes))


def test_controls_for_users_need_users(tmp_path: Path) -> None:
    plan = toy_config(strategy="told")
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"users": None})})
    with pytest.raises(ConfigError, match=r"strategy: 'told' .* set tasks.users"):
        start(plan, tmp_path / "run", host=ToyHost())


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("independent", "strategy: 'independent' asks its own questions"),
        ("ecology", "set strategy.mechanisms.upheaval=false"),
        (
            {**ECOLOGY, "mechanisms": {**FORAGING, "merging": True}},
            "set strategy.mechanisms.merging=false",
        ),
    ],
)
def test_who_asks_questions_of_its_own_does_not_fit(
    strategy: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        start(config(strategy), tmp_path / "run", host=ToyHost())

"""Populations in worlds of habitats, where nobody can be asked what another one was: questions are
dealt out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Ascended, Born, Event, Learned, Retired, Scored
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, LoggedReply
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.methods.exams import Score
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.run.start import resume, start
from symbiont_ecology.tasks.config import HabitatsConfig
from symbiont_ecology.tasks.habitats import Habitats
from symbiont_ecology.tasks.splits import Split
from towns import acceptance, config, lived, world_of
from toy import ToyHost, toy_runtime

ES = {"kind": "es", "population": 8, "noise": 0.3, "step": 2.0}
GENETIC = {
    "kind": "genetic",
    "population": 8,
    "elite": 3,
    "mutation": {"kind": "gaussian", "sigma": 0.5},
    "b_std": 0.3,
}


def plan(strategy: dict[str, Any], length: int = 30, **world: Any) -> RunConfig:
    """Nothing is learned."""
    made = config(strategy, length=length, **{"count": 24, "questions": 24, **world})
    return made.model_copy(update={"learning_rule": "none"})


@pytest.mark.parametrize("strategy", [ES, GENETIC], ids=["es", "genetic"])
@pytest.mark.parametrize("questions", [4, 22, 24])
def test_every_question_goes_to_one_member_and_all_get_as_many(
    strategy: dict[str, Any], questions: int, tmp_path: Path
) -> None:
    made = plan(strategy, 2, questions=questions)
    start(made, tmp_path / "run", host=ToyHost())
    state, world = load_state(tmp_path / "run"), toy_runtime(tmp_path / "run", made)
    context = GenerationContext(
        **vars(world), state=state, draw=Draw(state.seed, state.generation)
    ).strategy_context
    hands, pairs = Counter[Any](), defaultdict[Any, list[int]](list)
    assigned, asked = world.strategy.ask(context), Counter[Any]()
    for one in assigned:
        assert one.samples == 1
        hands[one.organelle_id, one.perturbation] += len(one.items)
        asked.update((item.habitat, item.id) for item in one.items)
    expected = Counter((i.habitat, i.id) for i in world_of(made).questions(state.generation))
    assert asked == expected
    assert len(hands) == min(8, questions)
    assert max(hands.values()) - min(hands.values()) <= 1
    for (_, noise), count in hands.items():
        if noise is not None:
            pairs[noise.seed].append(count)
    assert all(len(pair) == 2 and len(set(pair)) == 1 for pair in pairs.values())


def test_a_verdict_on_a_reply_of_nobody_alive_is_nobodys_mark(tmp_path: Path) -> None:
    made = plan(GENETIC, 2)
    start(made, tmp_path / "run", host=ToyHost())
    state, world = load_state(tmp_path / "run"), toy_runtime(tmp_path / "run", made)
    member = list(state.population)[3]
    authors = (member, "retired", HOST, "", member)
    items = [
        replace(item, logged=LoggedReply("7", is_accepted=True, author=author))
        for item, author in zip(world_of(made).questions(0), authors, strict=False)
    ]
    tasks = replace(world.tasks, habitats=SaidBefore(made.tasks.habitats, tuple(items)))
    draw = Draw(state.seed, state.generation)
    context = GenerationContext(
        **{**vars(world), "tasks": tasks}, state=state, draw=draw
    ).strategy_context
    taken = {item: one.organelle_id for one in world.strategy.ask(context) for item in one.items}
    assert taken.keys() == {items[0], items[3], items[4]}
    assert taken[items[0]] == taken[items[4]] == member
    assert taken[items[3]] in state.population


@dataclass(frozen=True)
class SaidBefore(Habitats):
    """Users whose questions were answered before."""

    config: HabitatsConfig
    items: tuple[Item, ...]

    @property
    def names(self) -> Sequence[str]:
        return [item.habitat for item in self.items]

    def questions(self, generation: int) -> tuple[Item, ...]:
        return self.items

    def drawn(self, per_habitat: int, seed: int, split: Split) -> tuple[Item, ...]:
        return ()


def test_a_member_is_worth_what_its_own_questions_earned(tmp_path: Path) -> None:
    """Everyone has twelve of one family, and habitats often ask the same."""
    made = plan(ES, count=96, questions=96)
    tasks = made.tasks.model_copy(update={"families": ("logic.bool",)})
    _, events = lived(tmp_path / "run", made.model_copy(update={"tasks": tasks}))
    steps = [event for event in events if isinstance(event, Ascended)]
    assert len(steps) == 30
    for step in steps:
        acted = [event for event in events if isinstance(event, Acted) if event.habitat]
        verdicts = [v for e in acted if e.generation == step.generation for v in e.verdicts]
        assert len(step.rewards) == 8
        assert {round(12 * reward, 6) % 1 for reward in step.rewards} == {0.0}
        assert np.mean(step.rewards) == pytest.approx(np.mean(verdicts))


@pytest.mark.parametrize("strategy", [ES, GENETIC], ids=["es", "genetic"])
def test_what_is_accepted_rises_where_all_want_the_same(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    world = {"kinds": 1, "count": 96, "questions": 96}
    _, events = lived(tmp_path / "run", plan({**strategy, "population": 24}, 60, **world))
    first = acceptance([event for event in events if event.generation < 5])
    assert acceptance(events, since=50) > first + 0.15
    assert not [event for event in events if isinstance(event, Learned)]


def history(events: list[Event]) -> dict[str, list[tuple[int, float]]]:
    """The verdicts of everyone, with their generations."""
    given: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in events:
        if isinstance(event, Acted) and event.habitat:
            given[event.id] += [(event.generation, verdict) for verdict in event.verdicts]
    return given


def test_fitness_is_the_mean_since_birth_and_needs_enough_answers(tmp_path: Path) -> None:
    state, events = lived(tmp_path / "run", plan({**GENETIC, "answers": 7}))
    given = history(events)
    scored = [event for event in events if isinstance(event, Scored)]
    assert len(scored) == 30 * 8
    for event in scored:
        so_far = [verdict for when, verdict in given[event.id] if when <= event.generation]
        assert event.score == pytest.approx(np.mean(so_far))
    retired = [event for event in events if isinstance(event, Retired)]
    assert len(retired) == 10 * 5  # three answers a generation: a selection in every third
    assert all(len(given[event.id]) >= 7 for event in retired)
    for name, one in state.population.items():
        assert Score.of(one).answers == len(given[name])
    born = [event.generation for event in events if isinstance(event, Born) and event.parents]
    assert set(born) == set(range(2, 30, 3))


def test_who_learned_is_judged_anew(tmp_path: Path) -> None:
    knobs = {"refine": 10, "answers": 6, "samples": 1, "learning_rate": 0.1}
    made = plan({**GENETIC, **knobs}, 20).model_copy(update={"learning_rule": "policy_gradient"})
    state, events = lived(tmp_path / "run", made)
    learned = [event for event in events if isinstance(event, Learned) and event.lessons]
    assert [event.generation for event in learned] == [9, 19]
    assert Score.of(state.population[learned[-1].id]).answers == 0
    assert state.population[learned[-1].id].score is None


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"kind": "es", "shaping": "questions"}, r"strategy\.shaping: .* expected ranks or z_scor"),
        ({"kind": "es", "looks": 5}, r"strategy\.looks: .* expected 0, got 5"),
    ],
)
def test_who_would_ask_two_the_same_is_refused(strategy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(plan(strategy))


@pytest.mark.parametrize("strategy", [ES, GENETIC], ids=["es", "genetic"])
def test_a_run_that_deals_questions_out_resumes_exactly(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    whole, events = lived(tmp_path / "whole", plan(strategy, 9))
    start(plan(strategy, 9), tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    assert list(read_events(tmp_path / "parts" / "events.jsonl")) == events
    assert load_state(tmp_path / "parts") == whole

"""Phrases as genes: inherited with the weights, read with every question, in the run and after
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import start
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Request,
    in_turns,
    prepend_phrase,
)
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run.act import reading_costs
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config

PHRASES = ("", "Please. ", "Now. ")
GA: dict[str, Any] = {
    "kind": "genetic",
    "questions": 4,
    "mutation": {"kind": "gaussian", "sigma": 0.5},
    "b_std": 0.3,
    "phrases": PHRASES,
}


@dataclass
class ListeningHost(ToyHost):
    """A toy that keeps the prompts that adapters were asked, and those that they learned from. It
    answers as if there were no phrase."""

    asked: list[str] = field(default_factory=list)
    learned_from: list[str] = field(default_factory=list)

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        self.asked += [row.prompt for row in rows if row.slot != HOST_SLOT]
        bare = [replace(row, prompt=without_phrase(row.prompt)) for row in rows]
        return super().rollout(bare, draws, decoding)

    def learn(self, batch: LearningBatch, *rest: Any) -> Any:
        self.learned_from += [lesson.prompt for lesson in batch.lessons]
        bare = [replace(one, prompt=without_phrase(one.prompt)) for one in batch.lessons]
        return super().learn(replace(batch, lessons=tuple(bare)), *rest)


def without_phrase(prompt: str) -> str:
    """What stands behind one of the phrases."""
    return prompt.removeprefix("Please. ").removeprefix("Now. ")


def plan(generations: int = 8, rule: str = "none", **strategy: Any) -> RunConfig:
    """A genetic algorithm with phrases."""
    strategy = {**GA, **strategy}
    return toy_config(generations=generations, strategy=strategy, learning_rule=rule)


def phrases_of(folder: Path) -> dict[str, str]:
    """The phrase of everyone alive."""
    state, store = load_state(folder), BlobStore(folder / "blobs")
    return {
        name: store.weights(one.genome.weights).phrase for name, one in state.population.items()
    }


def test_a_phrase_stands_in_front_of_every_question_of_its_organelle(tmp_path: Path) -> None:
    host = ListeningHost()
    start(plan(1, population=3, elite=2), tmp_path / "run", host=host)
    start(plan(1, population=3, elite=2, phrases=()), tmp_path / "bare", host=(bare := ToyHost()))
    assert sum(host.rolled) == sum(bare.rolled)
    starts = {phrase: sum(one.startswith(phrase) for one in host.asked) for phrase in PHRASES[1:]}
    assert starts == dict.fromkeys(PHRASES[1:], len(host.asked) // 3)


def test_a_phrase_is_read_and_paid_for(tmp_path: Path) -> None:
    start(plan(2, population=3, elite=2), tmp_path / "run", host=ToyHost())
    acted = [one for one in read_events(tmp_path / "run/events.jsonl") if isinstance(one, Acted)]
    exams = {name: [one for one in acted if one.id == name] for name in ("o1", "o2", "o3")}
    assert exams["o1"]
    for plain, said in zip(exams["o1"], exams["o2"], strict=True):
        assert said.items == plain.items
        assert said.tokens_in == plain.tokens_in + len(PHRASES[1]) * len(said.items)
        assert said.flops > plain.flops


def test_the_bare_host_reads_answers_without_the_phrase_and_is_charged_for_no_more() -> None:
    """``engine.act.read_by_host`` puts the question alone to it."""
    host, item = ToyHost(), tasks.build("math.add").sample("short", np.random.default_rng(0))
    (prompt,) = host.encode([item.prompt])
    cost = Cost(len(prompt) + len("Please. "), 2, rows=1)
    rollout = Rollout(item, "o1", (3, 1), np.zeros(2), "37", 1.0, 1.0, cost)
    flops = host.shape.scoring_flops(0, len(prompt), 2)
    assert reading_costs([rollout], host) == [Cost.computed(flops, len(prompt), 2)]


def test_what_is_learned_is_learned_behind_the_phrase_and_the_phrase_stays(tmp_path: Path) -> None:
    host = ListeningHost()
    config = plan(
        6, "policy_gradient", refine=2, samples=4, learning_rate=0.1, phrases=("Please. ",)
    )
    start(config, tmp_path / "run", host=host)
    assert host.learned_from
    assert all(prompt.startswith("Please. ") for prompt in host.learned_from)
    assert set(phrases_of(tmp_path / "run").values()) == {"Please. "}


def test_a_child_has_the_phrase_of_a_parent_unless_it_is_drawn_anew(tmp_path: Path) -> None:
    start(plan(12, rephrase=0.0), tmp_path / "inherited", host=ToyHost())
    assert len(set(phrases_of(tmp_path / "inherited").values())) < len(PHRASES)
    start(plan(12, population=24, rephrase=1.0), tmp_path / "drawn", host=ToyHost())
    assert set(phrases_of(tmp_path / "drawn").values()) == set(PHRASES)


def test_a_phrase_stands_behind_the_turns_in_front_of_a_question() -> None:
    assert prepend_phrase("Briefly: ", in_turns("1+1", "2", "1+2")) == in_turns(
        "1+1", "2", "Briefly: 1+2"
    )
    assert prepend_phrase("", "1+2") == "1+2"


def test_a_phrase_that_makes_turns_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.phrases: expected text without U\+001D"):
        check(plan(phrases=["", "two\x1dturns"]))

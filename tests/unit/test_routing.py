"""Who of a run answers: routings, and the cache of what was answered."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asked import accuracy, chosen, values
from runs import start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.evaluate.evaluator import Evaluator
from symbiont_ecology.evaluate.measure import LoadedRun, difference
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import prompt_routing, routings
from symbiont_ecology.run.build import mixture
from toy import ToyHost, toy_config


@pytest.mark.parametrize("routing", routings.names())
def test_every_routing_answers_in_order_by_somebody_who_can_be_asked(
    routing: str, candidates: LoadedRun, questions: list[Item]
) -> None:
    answers = accuracy(candidates, questions, routing).rollouts
    assert [one.item for one in answers] == questions
    assert {one.organelle_id for one in answers} <= {HOST, *candidates.pool.weights}


def test_learned_routing_reads_the_prompt_alone(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    masked: dict[str, Any] = dict.fromkeys(("family", "depth", "answer", "id", "question"), "?")
    masked |= {"variant": 0, "verifier": len}
    disguised = [replace(question, **masked) for question in questions]
    assert chosen(candidates, disguised, "learned") == chosen(candidates, questions, "learned")


@pytest.mark.parametrize("routing", ["host", "single", "learned", "user"])
def test_a_choice_says_who_would_answer(
    routing: str, candidates: LoadedRun, questions: list[Item]
) -> None:
    choice = routings.build(routing)
    assert choice.choose(candidates.pool, questions) == chosen(candidates, questions, routing)


def test_a_prompt_is_answered_by_a_routing_without_labels_or_by_one_organelle(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    one = next(iter(candidates.pool.weights))
    routing = prompt_routing(one, candidates.pool.weights)
    answers = candidates.evaluate(questions, ToyHost(), routing).rollouts
    assert {answer.organelle_id for answer in answers} == {one}
    for who in ("family", "nobody"):
        with pytest.raises(ConfigError, match="expected"):
            prompt_routing(who, candidates.pool.weights)


# The memory of answers.


def test_what_was_answered_once_is_not_asked_again(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    host = ToyHost()
    examiner = Evaluator(host, candidates.pool.weights)
    organelle_id = [candidates.pool.best()] * len(questions)
    first = examiner.ask(questions, organelle_id)
    asked = sum(host.rolled)
    assert values(examiner.ask(questions[::-1], organelle_id)) == values(first[::-1])
    assert sum(host.rolled) == asked
    for other in (replace(questions[0], prompt="?"), replace(questions[0], reply_limit=1)):
        examiner.ask([other], organelle_id[:1])
    examiner.ask(questions[:1], ["host"])
    assert sum(host.rolled) == asked + 3


def test_routed_portfolios_beat_the_bare_host(candidates: LoadedRun, questions: list[Item]) -> None:
    bare = accuracy(candidates, questions, "host")
    for routing in ("single", "learned"):
        gain = difference(accuracy(candidates, questions, routing), bare)
        assert gain.low > 0.1, (routing, gain)
    assert 0.1 < bare.accuracy().estimate < 0.6


@pytest.mark.parametrize("slots", [1, 2, 32])
def test_answers_come_in_the_order_of_the_questions_whatever_the_slots(
    slots: int, candidates: LoadedRun, questions: list[Item]
) -> None:
    whom = chosen(candidates, questions, "learned")
    found = Evaluator(ToyHost(slots=slots), candidates.pool.weights).ask(questions, whom)
    assert [one.item for one in found] == questions
    assert [one.organelle_id for one in found] == whom
    assert values(found) == values(
        Evaluator(ToyHost(), candidates.pool.weights).ask(questions, whom)
    )
    assert Evaluator(ToyHost(), candidates.pool.weights).ask([], []) == []


def test_a_portfolio_of_a_run_that_goes_on_stops_at_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(toy_config(generations=5), folder, host=ToyHost())
    state, config = checkpoint.load_state(folder), toy_config(generations=5)
    before = AdapterPool.of_run(folder, state, config, mixture(config)).observations
    last = (folder / "events.jsonl").read_text().splitlines()[-1]
    acted = next(
        e for e in read_events(folder / "events.jsonl") if isinstance(e, Acted) and e.id == HOST
    )
    assert json.loads(last)["seq"] == state.next_seq - 1
    row = {"seq": state.next_seq, "kind": "Acted", **vars(acted)}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert AdapterPool.of_run(folder, state, config, mixture(config)).observations == before


def test_who_read_its_exam_is_known_by_what_it_replied(tmp_path: Path) -> None:
    """Variants of a training answer the questions of their exam, and read the answers after it."""
    strategy = {"kind": "hyper", "train_size": 6, "eval_size": 12, "batch": 6, "ranks": [1, 2]}
    config = toy_config(generations=2, strategy=strategy, learning_rule="supervised")
    start(config, tmp_path, host=ToyHost())
    state, tasks = checkpoint.load_state(tmp_path), mixture(config)
    acted = [e for e in read_events(tmp_path / "events.jsonl") if isinstance(e, Acted)]
    learned = {tasks.prompt(item) for event in acted if not event.samples for item in event.items}
    replied: dict[tuple[str, str], set[float]] = defaultdict(set)
    for event in acted:
        for item, verdict in zip(event.items, event.verdicts, strict=False):
            replied[event.id, tasks.prompt(item)].add(verdict)
    seen = AdapterPool.of_run(tmp_path, state, config, tasks).observations
    known: dict[tuple[str, str], set[float]] = defaultdict(set)
    for one in seen:
        if one.prompt not in learned:
            known[one.organelle_id.partition("@")[0], one.prompt].add(one.verdict)
    assert {0.0} in known.values()
    assert known == {pair: replied[pair] for pair in known}

"""Who of a run answers: routings, and the cache of what was answered."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from asked import accuracy, chosen, values
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.evaluate.evaluator import Evaluator
from symbiont_ecology.evaluate.measure import LoadedRun, difference
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import Choice, prompt_routing, routings
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.start import start
from toy import ToyHost, toy_config


@pytest.mark.parametrize("routing", sorted({*routings.names()} - {"map"}))
def test_every_routing_answers_in_order_by_somebody_who_can_be_asked(
    routing: str, candidates: LoadedRun, questions: list[Item]
) -> None:
    answers = accuracy(candidates, questions, routing).rollouts
    assert [one.item for one in answers] == questions
    asked = {one.organelle_id.removesuffix(" × 0.65") for one in answers}
    assert asked <= {HOST, *candidates.pool.weights}


def test_a_routing_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"no routing 'learnd'; did you mean 'learned'\? known: .*host, "
    ):
        routings.build("learnd")


def test_host_and_single_send_everything_to_one(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    assert set(chosen(candidates, questions, "host")) == {HOST}
    assert set(chosen(candidates, questions, "single")) == {candidates.pool.best()}
    assert candidates.pool.best() in candidates.pool.state.population


def test_learned_routing_reads_the_prompt_alone(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    disguised = [
        replace(
            q,
            family="unknown",
            depth="none",
            answer="?",
            id="x",
            question="x",
            variant=0,
            verifier=lambda reply: 0.0,
        )
        for q in questions
    ]
    assert chosen(candidates, disguised, "learned") == chosen(candidates, questions, "learned")


def test_the_best_of_some_is_one_of_them_if_they_can_be_chosen(candidates: LoadedRun) -> None:
    pool = candidates.pool
    others = set(pool.state.population) - {pool.best()}
    assert pool.best(others) in others
    assert pool.best({"nobody"}) == pool.best()


@pytest.mark.parametrize("routing", ["host", "single", "learned", "habitat"])
def test_a_choice_says_who_would_answer(
    routing: str, candidates: LoadedRun, questions: list[Item]
) -> None:
    choice = routings.build(routing)
    assert isinstance(choice, Choice)
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
    examiner = Evaluator(host, candidates.pool.adapter)
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
    for routing in ("single", "cell", "learned"):
        gain = difference(accuracy(candidates, questions, routing), bare)
        assert gain.low > 0.1, (routing, gain)
    assert 0.1 < bare.accuracy().estimate < 0.6


@pytest.mark.parametrize("slots", [1, 2, 32])
def test_answers_come_in_the_order_of_the_questions_whatever_the_slots(
    slots: int, candidates: LoadedRun, questions: list[Item]
) -> None:
    whom = chosen(candidates, questions, "cell")
    found = Evaluator(ToyHost(slots=slots), candidates.pool.adapter).ask(questions, whom)
    assert [one.item for one in found] == questions
    assert [one.organelle_id for one in found] == whom
    assert values(found) == values(
        Evaluator(ToyHost(), candidates.pool.adapter).ask(questions, whom)
    )
    assert Evaluator(ToyHost(), candidates.pool.adapter).ask([], []) == []


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


def test_a_short_life_is_judged_by_its_end_too(tmp_path: Path) -> None:
    """Half a hundred verdicts per cell may be all that there are, most of them of who nobody is any
    more."""
    folder, config = tmp_path / "run", toy_config(generations=20)
    start(config, folder, host=ToyHost())
    seen = AdapterPool.of_run(
        folder, checkpoint.load_state(folder), config, mixture(config)
    ).observations
    weights = sorted(one.weight for one in seen if one.organelle_id != HOST)
    assert weights[-1] == 1
    assert sum(weight < 0.5 for weight in weights) > len(weights) / 4


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


def test_a_family_whose_time_is_over_stays_known(tmp_path: Path) -> None:
    single = {"kind": "single", "questions": 6, "samples": 2, "learning_rate": 0.1}
    config = toy_config(3, 10_000, train_flops=4e7, strategy=single)
    late = config.tasks.model_copy(update={"arrivals": (4e6, 8e6)})
    config = config.model_copy(update={"tasks": late})
    start(config, tmp_path, host=ToyHost())
    state = checkpoint.load_state(tmp_path)
    seen = AdapterPool.of_run(tmp_path, state, config, mixture(config)).observations
    prompts = {one.prompt.partition(":")[0] for one in seen if one.organelle_id != HOST}
    assert prompts == set(config.tasks.families)

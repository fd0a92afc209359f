"""Routings and transfer of studies: oracles, votes, and everybody on everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from asked import FAMILIES, accuracy, answer, chosen, foreign
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item, cell_family, cell_name
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.pool import elite_id
from symbiont_ecology.evaluate.routings import routings
from symbiont_ecology.extensions.study.baselines import transfer_matrix
from symbiont_ecology.run.start import start
from toy import ToyHost, toy_config


def test_cell_routing_asks_the_elite_of_the_true_cell(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    elites = candidates.pool.state.archive.elites
    for question, organelle_id in zip(
        questions, chosen(candidates, questions, "cell"), strict=True
    ):
        assert organelle_id == (
            elite_id(elites[cell_name(question.cell)])
            if cell_name(question.cell) in elites
            else HOST
        )
    assert chosen(candidates, [foreign()], "cell") == [HOST]


def test_family_routing_asks_an_elite_of_the_true_family(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    elites = candidates.pool.state.archive.elites
    for question, organelle_id in zip(
        questions, chosen(candidates, questions, "family"), strict=True
    ):
        assert organelle_id in {
            elite_id(one) for cell, one in elites.items() if cell.startswith(f"{question.family}/")
        }


def test_a_vote_and_a_cascade_pay_for_everyone_they_ask(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    alone = accuracy(candidates, questions, "learned")
    assert accuracy(candidates, questions, "vote").flops > alone.flops
    lone = replace(candidates, pool=replace(candidates.pool, elites=()))
    assert (
        chosen(lone, questions, "vote")
        == chosen(lone, questions, "cascade")
        == [HOST] * len(questions)
    )


def test_in_a_vote_most_decide_and_in_a_tie_the_favourite(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    def voted(*said: str) -> list[str]:
        ballots = iter(said)

        def ask(some: Sequence[Item], whom: Sequence[str]) -> list[Rollout]:
            reply = next(ballots)
            return [
                answer(one, organelle_id, reply, 0.0, Cost(flops=7), 0.0)
                for one, organelle_id in zip(some, whom, strict=True)
            ]

        return [one.text for one in routings.build("vote")(candidates.pool, questions[:3], ask)]

    assert voted("=1", "=2", "=2") == ["=2"] * 3
    assert voted("=1", "=2", "=3") == ["=1"] * 3


def test_a_cascade_asks_on_while_nobody_is_sure_and_keeps_the_surest(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    first, second, third = -0.2, -0.1, -0.3
    asked: list[int] = []

    def ask(some: Sequence[Item], whom: Sequence[str]) -> list[Rollout]:
        asked.append(len(some))
        level = (first, second, third)[len(asked) - 1]
        # Every other question is answered with certainty, at the first attempt.
        return [
            answer(
                one,
                organelle_id,
                "",
                1.0,
                Cost(flops=7),
                0.0 if len(asked) == 1 and index % 2 else level,
            )
            for index, (one, organelle_id) in enumerate(zip(some, whom, strict=True))
        ]

    answers = routings.build("cascade")(candidates.pool, questions[:10], ask)
    assert asked == [10, 5, 5]
    assert [one.cost.flops for one in answers] == [21, 7] * 5
    assert [one.confidence for one in answers] == [second, 0.0] * 5


def test_the_surest_of_everyone_speaks_and_everyone_is_paid(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    portfolio, asked = candidates.pool, set[str]()

    def ask(some: Sequence[Item], whom: Sequence[str]) -> list[Rollout]:
        asked.update(whom)
        return [
            # Who speaks last is surest; and wrong, which must not matter.
            answer(
                one,
                organelle_id,
                "",
                float(organelle_id != max(whom)),
                Cost(flops=7),
                -1.0 + (organelle_id == max(whom)),
            )
            for one, organelle_id in zip(some, whom, strict=True)
        ]

    answers = routings.build("surest")(portfolio, questions[:10], ask)
    assert {organelle_id.partition("@")[0] for organelle_id in portfolio.elites} == {
        organelle_id.partition("@")[0] for organelle_id in asked - {HOST}
    }
    assert len({organelle_id.partition("@")[0] for organelle_id in asked}) == len(
        asked
    )  # each of them once
    assert [one.item for one in answers] == questions[:10]
    assert {(one.organelle_id, one.verdict, one.cost.flops) for one in answers} == {
        (max(asked), 0.0, 7 * len(asked))
    }


def test_who_only_read_reference_answers_is_asked_about_what_it_read(tmp_path: Path) -> None:
    strategy = {"kind": "independent", "questions": 3, "samples": 0, "learning_rate": 0.1}
    config = toy_config(generations=6, strategy=strategy, learning_rule="supervised")
    start(config, tmp_path, host=ToyHost())
    run = LoadedRun.of_run(tmp_path)
    acted = [one for one in read_events(tmp_path / "events.jsonl") if isinstance(one, Acted)]
    readers = {cell_family(one.cell): one.id for one in acted if one.id != HOST}
    questions = run.items(12)
    asked = chosen(run, questions, "family")
    assert asked == [readers[question.family] for question in questions]
    assert len(set(asked)) == len(config.tasks.families)


def test_transfer_tells_the_own_family_from_the_others(candidates: LoadedRun) -> None:
    found = transfer_matrix(candidates, candidates.items(25), ToyHost())
    assert set(found.accuracy) == set(found.host) == set(FAMILIES)
    assert set(found.organelles.values()) <= {HOST, *candidates.pool.elites}
    assert found.gain["own"] is not None
    assert found.gain["others"] is not None
    assert found.gain["own"] > 0.2
    assert found.gain["own"] > found.gain["others"]

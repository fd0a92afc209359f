"""The gate lets nobody in by luck or by patience, and hardly anyone out by noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.statistics import evidence, wilson
from symbiont_ecology.ecology.gate import Challenger, Gate, GateDecision, PairedCounts, Ruling
from symbiont_ecology.ecology.organelle import Genome

COUNT = st.integers(0, 400)
MARGIN = st.floats(-0.9, 0.9)
TALLY = st.builds(PairedCounts, COUNT, COUNT, COUNT)


# Evidence.


@pytest.mark.parametrize("margin", [-0.3, 0.0, 0.2])
@pytest.mark.parametrize("discordance", [0.4, 0.9])
@pytest.mark.parametrize("questions", [1, 7, 20])
def test_evidence_is_a_fair_game_at_the_margin(
    margin: float, discordance: float, questions: int
) -> None:
    """Over all that can happen its mean is 1, whatever the number of questions: exactly, by
    counting."""
    chances = ((discordance + margin) / 2, 1 - discordance, (discordance - margin) / 2)
    mean = 0.0
    for wins in range(questions + 1):
        for losses in range(questions + 1 - wins):
            counts = (wins, questions - wins - losses, losses)
            ways = math.factorial(questions) / math.prod(map(math.factorial, counts))
            chance = ways * math.prod(p**n for p, n in zip(chances, counts, strict=True))
            mean += chance * evidence(*counts, margin)
    assert mean == pytest.approx(1.0)


@given(COUNT, COUNT, COUNT, MARGIN)
def test_evidence_grows_with_every_win_and_shrinks_with_every_loss(
    wins: int, ties: int, losses: int, margin: float
) -> None:
    assert evidence(wins + 1, ties, losses, margin) >= evidence(wins, ties, losses, margin)
    assert evidence(wins, ties, losses + 1, margin) <= evidence(wins, ties, losses, margin)
    low, high = margin / 2 - 0.45, margin / 2 + 0.45
    assert evidence(wins, ties, losses, low) >= evidence(wins, ties, losses, high)


def test_evidence_refuses_what_cannot_be() -> None:
    for wrong in ((-1, 0, 0, 0.0), (1, 1, 1, 1.0), (1, 1, 1, -1.0)):
        with pytest.raises(ValueError, match="counts and a margin"):
            evidence(*wrong)


# The gate, as children meet it.

GATE = Gate()
CHILDREN = 1000
better, kept = cache(GATE.better), cache(GATE.kept)


def admitted(
    rule: Callable[[PairedCounts], GateDecision], effect: float, discordance: float
) -> int:
    """How many of many children get in, with a look after every fourth question."""
    chances = (discordance + effect) / 2, 1 - discordance, (discordance - effect) / 2
    drawn = np.random.default_rng(7).multinomial(4, chances, size=(CHILDREN, GATE.most // 4))
    lives = (
        map(rule, (PairedCounts(*counts) for counts in life))
        for life in drawn.cumsum(axis=1).tolist()
    )
    return sum(next(verdict for verdict in life if verdict != "go on") == "admit" for life in lives)


@pytest.mark.parametrize("discordance", [0.15, 0.3, 0.6])
def test_a_child_gets_in_by_luck_no_more_often_than_the_level_and_by_fifteen_points(
    discordance: float,
) -> None:
    for rule, effect in ((better, 0.0), (kept, -GATE.loss)):
        assert wilson(admitted(rule, effect, discordance), CHILDREN, 0.98).low <= GATE.level
    assert admitted(better, 0.15, discordance) >= 0.8 * CHILDREN


@pytest.mark.parametrize(("discordance", "least"), [(0.0, 1.0), (0.1, 0.97), (0.3, 0.95)])
def test_a_child_that_loses_nothing_at_a_home_is_not_sent_away_by_noise(
    discordance: float, least: float
) -> None:
    assert admitted(kept, 0.0, discordance) >= least * CHILDREN


@given(st.lists(TALLY, min_size=1, max_size=3), st.lists(TALLY, max_size=3))
def test_a_child_is_admitted_when_everything_is_proven_and_rejected_when_anything_is_refuted(
    rivals: list[PairedCounts], homes: list[PairedCounts]
) -> None:
    parts = {*map(GATE.better, rivals), *map(GATE.kept, homes)}
    found = GATE.rule(rivals, homes).verdict
    assert (found == "admit") == (parts == {"admit"})
    assert (found == "reject") == ("reject" in parts)


# Verdicts, from the evidence.

ODD = Gate(level=0.1, gain=0.3, loss=0.2, most=50)


@given(TALLY)
def test_a_verdict_is_to_rule_out_one_margin_and_to_fall_short_is_to_rule_out_the_other(
    tally: PairedCounts,
) -> None:
    wins, ties, losses = tally.wins, tally.ties, tally.losses
    for rule, proven, refuted in ((ODD.better, 0.0, -0.3), (ODD.kept, -0.2, 0.0)):
        is_proven = evidence(wins, ties, losses, proven) >= 10
        is_refuted = evidence(losses, ties, wins, refuted) >= 10 or tally.pairs >= 50
        assert rule(tally) == ("admit" if is_proven else "reject" if is_refuted else "go on")


def exact(of: Callable[[int], float]) -> tuple[int, float]:
    """A count and a level that its evidence just reaches, with nothing lost in rounding."""
    found = ((count, of(count)) for count in range(5, 40))
    return next((count, 1 / one) for count, one in found if 1 / (1 / one) == one)


def test_evidence_that_just_reaches_the_level_is_enough() -> None:
    wins, level = exact(lambda count: evidence(count, 0, 0, 0.0))
    assert Gate(level=level).better(PairedCounts(wins, 0, 0)) == "admit"
    losses, level = exact(lambda count: evidence(count, 0, 0, -GATE.gain))
    assert Gate(level=level).better(PairedCounts(0, 0, losses)) == "reject"


def test_the_last_question_is_the_last() -> None:
    undecided = [PairedCounts(1, pairs - 2, 1) for pairs in (9, 10)]
    gate = Gate(most=10)
    assert [gate.better(tally) for tally in undecided] == ["go on", "reject"]
    assert [gate.kept(tally) for tally in undecided] == ["go on", "reject"]


BETTER, WORSE, OPEN = PairedCounts(60, 10, 0), PairedCounts(0, 10, 60), PairedCounts(1, 2, 1)
SPENT = PairedCounts(100, 200, 100)  # all questions, and nothing is proven at home or away


@pytest.mark.parametrize(
    ("rivals", "homes", "verdict", "reason"),
    [
        ([BETTER], [BETTER], "admit", ""),
        ([BETTER, OPEN], [], "go on", ""),
        ([BETTER], [BETTER, OPEN], "go on", ""),
        ([BETTER, WORSE], [], "reject", "it is not better by what is hoped for"),
        ([BETTER, WORSE], [WORSE], "reject", "it is not better by what is hoped for"),
        ([BETTER, OPEN], [BETTER, WORSE], "reject", "it loses what a parent is good at"),
        ([OPEN, SPENT], [WORSE], "reject", "its questions ran out undecided"),
        ([], [WORSE], "reject", "it loses what a parent is good at"),
        ([], [BETTER], "reject", "there is nothing to be better at"),
    ],
)
def test_a_ruling_says_which_comparison_decided_it(
    rivals: list[PairedCounts], homes: list[PairedCounts], verdict: GateDecision, reason: str
) -> None:
    assert GATE.rule(rivals, homes) == Ruling(verdict, reason)


def test_questions_run_out_at_the_last_one() -> None:
    last = PairedCounts(3, 4, 3)
    assert Gate(most=10).rule([last]) == Ruling("reject", "its questions ran out undecided")


# Challengers.


def challenger(**counts: dict[str, PairedCounts]) -> Challenger:
    cells = dict.fromkeys(("o2", "o1"), ("math.add",))
    return Challenger("o3", Genome("w", 4, {}), "svd", "merging", cells, counts)


def test_a_challenger_is_told_by_the_parent_that_did_best_on_all_questions() -> None:
    assert challenger().against_the_better == PairedCounts()
    weak = {"o1": PairedCounts(9, 0, 1), "o2": PairedCounts(4, 1, 0)}
    strong = {"o1": PairedCounts(9, 1, 0), "o2": PairedCounts(1, 0, 4)}
    assert challenger(o1=weak, o2=strong).against_the_better == PairedCounts(10, 1, 4)
    assert challenger(o1=strong, o2=weak).against_the_better == PairedCounts(10, 1, 4)
    assert challenger(o1=weak).parents == ("o2", "o1")

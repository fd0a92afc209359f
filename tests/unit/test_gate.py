"""The gate lets nobody in by luck or by patience, and hardly anyone out by noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from symbiont_ecology.base.statistics import evidence
from symbiont_ecology.ecology.gate import Gate, GateDecision, PairedCounts

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
CHILDREN = 2000


def admitted(effect: float, discordance: float) -> int:
    """How many of many children get in, with a look after every fourth question."""
    chances = (discordance + effect) / 2, 1 - discordance, (discordance - effect) / 2
    drawn = np.random.default_rng(7).multinomial(4, chances, size=(CHILDREN, GATE.most // 4))
    lives = (
        (GATE.compare(PairedCounts(*counts)) for counts in life)
        for life in drawn.cumsum(axis=1).tolist()
    )
    return sum(next(verdict for verdict in life if verdict != "go on") == "admit" for life in lives)


@pytest.mark.parametrize("discordance", [0.15, 0.3, 0.6])
def test_a_child_that_is_no_better_gets_in_no_more_often_than_the_level(discordance: float) -> None:
    found = binomtest(admitted(0.0, discordance), CHILDREN).proportion_ci(0.98, "wilson")
    assert found.low <= GATE.level


@pytest.mark.parametrize("discordance", [0.15, 0.3, 0.6])
def test_a_child_that_is_better_by_fifteen_points_gets_in(discordance: float) -> None:
    assert admitted(0.15, discordance) >= 0.8 * CHILDREN


@given(TALLY)
def test_one_more_win_never_harms(tally: PairedCounts) -> None:
    order: list[GateDecision] = ["reject", "go on", "admit"]
    if tally.losses:
        won = PairedCounts(tally.wins + 1, tally.ties, tally.losses - 1)
        assert order.index(GATE.compare(won)) >= order.index(GATE.compare(tally))


@given(st.lists(TALLY, min_size=1, max_size=3))
def test_a_child_is_admitted_when_everything_is_proven_and_rejected_when_anything_is_refuted(
    rivals: list[PairedCounts],
) -> None:
    parts, found = set(map(GATE.compare, rivals)), GATE.rule(rivals)
    assert (found == "admit") == (parts == {"admit"})
    assert (found == "reject") == ("reject" in parts)


# Verdicts, from the evidence.

ODD = Gate(level=0.1, gain=0.3, most=50)


@given(TALLY)
def test_a_verdict_is_to_rule_out_one_margin_and_to_fall_short_is_to_rule_out_the_other(
    tally: PairedCounts,
) -> None:
    wins, ties, losses = tally.wins, tally.ties, tally.losses
    is_proven = evidence(wins, ties, losses, 0.0) >= 10
    is_refuted = evidence(losses, ties, wins, -0.3) >= 10 or wins + ties + losses >= 50
    assert ODD.compare(tally) == ("admit" if is_proven else "reject" if is_refuted else "go on")


def exact(of: Callable[[int], float]) -> tuple[int, float]:
    """A count and a level that its evidence just reaches, with nothing lost in rounding."""
    found = ((count, of(count)) for count in range(5, 40))
    return next((count, 1 / one) for count, one in found if 1 / (1 / one) == one)


def test_evidence_that_just_reaches_the_level_is_enough() -> None:
    wins, level = exact(lambda count: evidence(count, 0, 0, 0.0))
    assert Gate(level=level).compare(PairedCounts(wins, 0, 0)) == "admit"
    losses, level = exact(lambda count: evidence(count, 0, 0, -GATE.gain))
    assert Gate(level=level).compare(PairedCounts(0, 0, losses)) == "reject"


def test_the_last_question_is_the_last() -> None:
    undecided = [PairedCounts(1, pairs - 2, 1) for pairs in (9, 10)]
    assert [Gate(most=10).compare(tally) for tally in undecided] == ["go on", "reject"]


def test_pairs_are_counted_question_by_question() -> None:
    counts = PairedCounts.of([1.0, 1.0, 0.5, 0.0], [0.0, 1.0, 1.0, 1.0])
    assert counts == PairedCounts(wins=1, ties=1, losses=2)


def test_a_child_of_whom_little_is_known_goes_on() -> None:
    assert GATE.rule([PairedCounts(wins=2, ties=1)]) == "go on"
    assert GATE.rule([PairedCounts(wins=200), PairedCounts(wins=2)]) == "go on"


def test_pairs_are_of_the_same_questions() -> None:
    with pytest.raises(ValueError, match="shorter"):
        PairedCounts.of([1.0, 0.0], [1.0])

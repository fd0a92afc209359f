"""What a user remembers, and where it goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from symbiont_ecology.ecology.clusters import ClusterStats, MixturePrior, stats_of
from symbiont_ecology.ecology.users import MAX_ANSWERS, RememberedAnswer, User


def answered(family: str, *, accepted: bool, confidence: float = 0.9) -> RememberedAnswer:
    """An answer of organelle o1."""
    return RememberedAnswer(
        family, "short", "1+1", (1,), accepted, organelle_id="o1", confidence=confidence
    )


def test_a_user_that_changed_forgets_what_it_accepted() -> None:
    user = User()
    for _ in range(40):
        user = user.after(answered("math.add", accepted=True))
    assert len(user.answers) == MAX_ANSWERS
    assert user.trust("o1") > 0
    refusals = 0
    while user.accepted:
        user, refusals = user.after(answered("math.add", accepted=False)), refusals + 1
    assert refusals <= 4
    assert user.trust("o1") < 0
    assert user.asked == 40 + refusals
    assert len(user.answers) == refusals


def test_a_change_is_noticed_where_some_families_stay_as_they_were() -> None:
    user, families = User(), ("math.add", "string.sort", "logic.bool")
    for number in range(24):
        user = user.after(answered(families[number % 3], accepted=True))
    for number in range(7):  # the last family alone is refused
        family = families[number % 3]
        is_kept = family != "math.add"
        user = user.after(answered(family, accepted=is_kept, confidence=0.99))
    assert len(user.answers) <= 7
    assert {answer.family for answer in user.accepted} <= {"string.sort", "logic.bool"}


def test_a_change_needs_sure_answers() -> None:
    user = User()
    for accepted in [True] * 12 + [False] * 8:
        user = user.after(answered("math.add", accepted=accepted, confidence=0.2))
    assert len(user.answers) == 20


def test_a_user_with_some_refusals_forgets_nothing() -> None:
    user, draw = User(), np.random.default_rng(0)
    for _ in range(400):
        accepted = bool(draw.random() < 0.85)
        user = user.after(answered("math.add", accepted=accepted))
    assert len(user.answers) == MAX_ANSWERS


@pytest.mark.parametrize("dimensions", [8, 2048])
def test_a_sketch_survives_being_written(dimensions: int) -> None:
    vector = np.random.default_rng(0).standard_normal(dimensions)
    vector /= np.linalg.norm(vector)
    answer = RememberedAnswer("f", "d", "p", (1,), is_accepted=True)
    assert answer.vector is None
    answer = answer.sketched(vector)
    assert answer.vector is not None
    assert float(vector @ answer.vector) == pytest.approx(1, abs=0.01)


def test_where_there_are_coordinates_they_count() -> None:
    answer = answered("talk", accepted=True).sketched(np.eye(256)[0]).located(np.eye(8)[2])
    assert answer.vector == pytest.approx(np.eye(8)[2], abs=0.02)
    assert answer.located(-np.eye(8)[7]).vector == pytest.approx(-np.eye(8)[7], abs=0.02)
    for nowhere in (np.zeros(8), np.full(8, np.nan)):
        assert answer.located(nowhere).coordinates == ""


@pytest.mark.parametrize(("refused", "count"), [(0.3, 2.6), (0.0, 2.0)])
def test_a_refused_answer_counts_as_much_as_it_is_told(refused: float, count: float) -> None:
    one, other = np.eye(8)[:2]
    answers = [sketched(one, "o1")] * 2 + [sketched(other, "o1", accepted=False)] * 2
    taste = stats_of(answers, ["math.add"], refusal_weight=refused)
    assert taste.counts == pytest.approx([count])
    expected = 2 * one - 2 * refused * other
    assert taste.sums[0] == pytest.approx(expected, abs=0.03)
    assert stats_of(answers[2:], ["math.add"], refusal_weight=0.0).is_empty


def test_many_answers_of_one_adapter_say_little_more_than_some() -> None:
    """With most = 4, n answers count as 4 n ÷ (4 + n), in every family apart."""
    diet = ClusterStats(np.array([[6.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), np.array([12.0, 4.0, 0.0]))
    less = diet.at_most(4.0)
    assert less.counts == pytest.approx([3.0, 2.0, 0.0])
    assert less.sums == pytest.approx(np.array([[1.5, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    whole = MixturePrior(18.0, 0.9, 4.0)
    capped = replace(whole, max_count=4.0)
    other = ClusterStats(np.array([[0.0, 5.0], [0.0, 3.0], [0.0, 0.0]]), np.array([6.0, 6.0, 0.0]))
    assert capped.log_odds(diet, other) == pytest.approx(whole.log_odds(less, other.at_most(4.0)))
    assert whole.log_odds(diet, other) < capped.log_odds(diet, other) < 0


def sketched(direction: np.ndarray, server: str, *, accepted: bool = True) -> RememberedAnswer:
    answer = answered("math.add", accepted=accepted)
    return replace(answer, organelle_id=server).sketched(direction)

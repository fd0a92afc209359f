"""Measures of a report: areas, intervals, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from symbiont_ecology.base.types import Item, LoggedReply, judged_elsewhere
from symbiont_ecology.extensions.company.grouping import group_users
from symbiont_ecology.extensions.company.measures import (
    OURS,
    Measured,
    arms_of,
    decided,
    pairs_of,
    share,
)
from symbiont_ecology.extensions.worlds.tastes import TASTES, drawn_log
from symbiont_ecology.tasks.log_rows import LogRow


def items_of(verdicts: dict[str, list[bool]]) -> list[Item]:
    """Return rows of users with these verdicts."""
    plain = Item("", "log", "short", "q", "q", 8, judged_elsewhere)
    return [
        replace(plain, user=user, logged=LoggedReply("a", verdict))
        for user, own in verdicts.items()
        for verdict in own
    ]


def test_pairs_are_those_of_one_user_and_equal_scores_count_half() -> None:
    items = items_of({"ann": [True, False, False], "ben": [True, True], "cy": [False, True]})
    pairs = pairs_of(items, np.array([2.0, 1.0, 2.0, 9.0, 9.0, 5.0, 4.0]))
    assert pairs.tolist() == [[1.5, 2], [0, 0], [0, 1]]
    assert share(pairs).estimate == pytest.approx(0.5)
    assert share(pairs, pairs).estimate == 0


def test_an_area_of_nothing_is_no_number() -> None:
    measured = share(pairs_of(items_of({"ann": [True]}), np.zeros(1)))
    assert measured.n == 0
    assert np.isnan(measured.estimate)
    assert decided(measured, Measured(0.2, 0.1, 0.3, 4))[0] == "collect more"


@pytest.mark.parametrize(
    ("above_bare", "gain", "advice"),
    [
        ((0.1, 0.3), (0.1, 0.2), "yes"),
        ((0.1, 0.3), (-0.1, 0.2), "collect more"),
        ((-0.3, -0.1), (0.1, 0.2), "no"),
        ((0.1, 0.3), (-0.3, -0.1), "no"),
        ((-0.1, 0.3), (0.1, 0.2), "collect more"),
    ],
)
def test_a_decision_needs_both_intervals(
    above_bare: tuple[float, float], gain: tuple[float, float], advice: str
) -> None:
    both = (Measured(sum(ends) / 2, *ends, 9) for ends in (above_bare, gain))
    assert decided(*both)[0] == advice


@pytest.fixture(scope="module")
def rows() -> tuple[list[LogRow], dict[str, str]]:
    """A drawn log of ten users of four tastes, and who has which."""
    log = drawn_log(["short"] * 3 + ["bullets"] * 3 + ["number"] * 3 + ["polite"], (26, 40), seed=3)
    said = [
        LogRow(
            place,
            str(row["user_id"]),
            "",
            str(row["question"]),
            str(row["answer"]),
            row["thumb"] == "up",
        )
        for place, row in enumerate(log.rows)
    ]
    return said, log.tastes


def test_users_of_a_drawn_log_are_grouped_by_taste_and_described(
    rows: tuple[list[LogRow], dict[str, str]],
) -> None:
    said, tastes = rows
    groups = group_users(said, others=("nobody knows",)).groups
    kinds = [{tastes[user] for user in group.users if user in tastes} for group in groups]
    assert sorted(map(len, kinds)) == [1] * len(TASTES.keys() & {*tastes.values()})
    words = {taste: group.in_words() for (taste,), group in zip(kinds, groups, strict=True)}
    assert "less: length" in words["short"]
    assert "a number" in words["number"]
    assert "nobody knows" in groups[0].users
    chances = groups[0].chances_of(["Yes.", "It takes 20 minutes, and a good plan is needed."])
    assert ((chances >= 0) & (chances <= 1)).all()


def test_controls_have_the_same_users_and_random_groups_the_same_sizes(
    rows: tuple[list[LogRow], dict[str, str]],
) -> None:
    said, _ = rows
    arms = arms_of(group_users(said), seed=0)
    assert list(arms) == [OURS, "all", "random", "each"]
    sizes = [sorted(len(group.users) for group in arms[name]) for name in (OURS, "random")]
    assert sizes[0] == sizes[1]
    members = [{frozenset(group.users) for group in arms[name]} for name in (OURS, "random")]
    assert members[0] != members[1]
    assert {len(group.users) for group in arms["each"]} == {1}


def test_an_adapter_learns_what_its_judge_expects_to_please_whoever_got_it(
    rows: tuple[list[LogRow], dict[str, str]],
) -> None:
    said, tastes = rows
    for group in group_users(said).groups:
        taste = TASTES[tastes[group.users[0]]]
        lessons = group.lessons(said)
        assert all(lesson.learner == group.name and lesson.is_accepted for lesson in lessons)
        assert len(lessons) > group.accepted
        assert np.mean([taste.accepts(lesson.reply) for lesson in lessons]) > 0.8

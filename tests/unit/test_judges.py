"""Judges: users are grouped by the verdicts that one judge explains."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.ecology.judges import Evidence, ReplyFeatures, groups_of, together

LIKES = {"brief": lambda text: len(text.split()) < 6, "asks": lambda text: text.endswith("?")}


def rows(users: dict[str, str], each: int, seed: int = 0) -> list[tuple[str, str, bool]]:
    """Return user, reply and verdict of so many rows of each user, who has a taste."""
    generator, words = (
        np.random.default_rng(seed),
        ["so", "it", "is", "that", "we", "go", "to", "the", "old", "town"],
    )
    said = []
    for user, taste in users.items():
        for _ in range(each):
            text = " ".join(generator.permutation(words)[: generator.integers(2, 9)])
            text += "?" if generator.random() < 0.4 else "."
            said.append((user, text, LIKES[taste](text)))
    return said


def evidence_of(said: list[tuple[str, str, bool]]) -> tuple[list[str], Evidence]:
    users = sorted({user for user, _, _ in said})
    replies = [reply for _, reply, _ in said]
    features = ReplyFeatures.of(replies)
    places, verdicts = [users.index(user) for user, _, _ in said], [up for _, _, up in said]
    standardised = features.standardised(replies)
    return users, Evidence(standardised, features.variances, features.log_prior, places, verdicts)


TASTES = {"ann": "brief", "ben": "asks", "cy": "brief", "dora": "asks", "ed": "brief"}


def test_users_who_want_the_same_are_one_group_and_surely() -> None:
    users, evidence = evidence_of(rows(TASTES, 24))
    groups = groups_of(evidence)
    assert [{TASTES[users[user]] for user in group} for group in groups] == [{"brief"}, {"asks"}]
    shared = together(evidence, groups, np.random.default_rng(0))
    same = np.array([[TASTES[one] == TASTES[other] for other in users] for one in users])
    assert shared[same].min() > 0.9
    assert shared[~same].max() < 0.1


def test_of_a_user_who_said_little_nothing_is_sure() -> None:
    said = [*rows(TASTES, 24), *rows({"new": "asks"}, 2, seed=1)]
    users, evidence = evidence_of(said)
    shared = together(evidence, groups_of(evidence), np.random.default_rng(0))
    new = shared[users.index("new")]
    assert all(0.02 < new[users.index(name)] < 0.98 for name in TASTES)


def test_the_judge_of_a_group_knows_what_pleases_it() -> None:
    said = rows(TASTES, 24)
    features = ReplyFeatures.of([reply for _, reply, _ in said])
    users, evidence = evidence_of(said)
    judge = evidence.judge(users.index(name) for name in ("ben", "dora"))
    asked, told = features.standardised(["is it so to go?", "it is so to go."])
    assert judge.scores(asked[None])[0] > judge.scores(told[None])[0] + 1
    largest = features.names[int(np.argmax(np.abs(judge.weights)))]
    assert "question" in largest or "?" in largest


def test_evidence_does_not_depend_on_the_order_of_rows() -> None:
    said = rows(TASTES, 12)
    _, one = evidence_of(said)
    _, other = evidence_of(said[::-1])
    assert one({0, 2}) == pytest.approx(other({0, 2}))
    assert one(()) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=40), st.booleans()), min_size=1))
def test_any_texts_are_grouped(said: list[tuple[str, str, bool]]) -> None:
    users, evidence = evidence_of(said)
    groups = groups_of(evidence)
    assert sorted(user for group in groups for user in group) == list(range(len(users)))
    assert np.isfinite(together(evidence, groups, np.random.default_rng(0))).all()
    assert np.isfinite(evidence.judge(groups[0]).weights).all()
    assert Counter(map(len, groups)).total() == len(groups)

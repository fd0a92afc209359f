"""News of work that takes many seconds."""

from __future__ import annotations

from itertools import count

from symbiont_ecology.run.warm import with_news


def test_work_is_told_every_few_seconds_with_what_is_left() -> None:
    said: list[str] = []
    clock = count(0, 3).__next__  # each step takes three seconds
    assert list(with_news("abcd", "food", said.append, lambda: float(clock()))) == list("abcd")
    assert said == ["food, step 2 of 4, about 6 s left", "food, step 4 of 4, about 0 s left"]


def test_short_work_is_not_told() -> None:
    said: list[str] = []
    assert list(with_news(range(3), "food", said.append)) == [0, 1, 2]
    assert said == []

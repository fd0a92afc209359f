"""Replies of a log, which nobody is asked for again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classroom import school
from symbiont_ecology.base.types import LoggedReply
from symbiont_ecology.ecology import Assignment
from symbiont_ecology.run.act import act
from toy import ToyHost


@dataclass
class Reader(ToyHost):
    """A toy that writes down which replies it reads."""

    read: list[tuple[str, ...]] = field(default_factory=list)

    def score(self, prompts: Any, completions: Any, slots: Sequence[int]) -> list[np.ndarray]:
        """One nat for each token."""
        self.read.append(tuple("".join(map(chr, ids[:-1])) for ids in completions))
        return [np.full(len(ids), -1.0) for ids in completions]


def test_who_gave_a_reply_and_knew_how_sure_it_was_does_not_read_it_again(tmp_path: Path) -> None:
    host = Reader(slots=2)
    turn = replace(school(tmp_path).turn, host=host)
    items = turn.tasks.draw(turn.tasks.cells[0], 3, np.random.default_rng(0))
    replies = [
        LoggedReply("12", True, "o1", log_probability=-0.6),
        LoggedReply("13", False, "o2", log_probability=-0.6),  # another one learns from it
        LoggedReply("14", True, "o1"),
    ]
    logged = tuple(replace(item, logged=one) for item, one in zip(items, replies, strict=True))
    (outcome,) = act([Assignment("o1", logged)], turn)
    assert host.read == [("13", "14")]
    sums = [rollout.log_probabilities.sum() for rollout in outcome.rollouts]
    assert sums == pytest.approx([-0.6, -3.0, -3.0])
    assert [len(rollout.log_probabilities) for rollout in outcome.rollouts] == [3, 3, 3]
    assert outcome.verdicts == (1.0, 0.0, 1.0)
    costs = [rollout.cost for rollout in outcome.rollouts]
    assert all(cost.flops for cost in costs)
    assert [cost.executed > 0 for cost in costs] == [False, True, True]

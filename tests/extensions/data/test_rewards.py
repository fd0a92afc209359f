"""What a reply is worth beside a reference answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import reward_rules


def replied(text: str, answer: str, verdict: float = 0.0) -> Rollout:
    item = Item("q", "family", "all", "q", "q", 16, verifier=lambda reply: False, answer=answer)
    nothing = np.zeros(0)
    return Rollout(item, "o1", (), nothing, text, verdict=verdict, reward=verdict, cost=Cost())


@pytest.mark.parametrize(
    ("rule", "reply", "answer", "worth"),
    [
        ("conciseness", "", "yes", -3.0),
        ("conciseness", "certainly", "yes", -6.0),
        ("shaped", "red fax", "red fox", 0.4 * 6 / 7),
        ("shaped", "", "red fox", 0.0),
    ],
)
def test_a_reply_is_worth_this(rule: object, reply: str, answer: str, worth: float) -> None:
    assert reward_rules.build(rule)(replied(reply, answer)) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("reply", "verdict", "worth"),
    [("8+3", 1.0, 1.1), ("3+8+8", 0.0, 0.1), ("eleven", 0.0, 0.0), ("__import__('os')", 0.0, 0.0)],
)
def test_countdown_pays_for_form_and_for_being_right(
    reply: str, verdict: float, worth: float
) -> None:
    assert reward_rules.build("countdown")(replied(reply, "", verdict)) == pytest.approx(worth)


@pytest.mark.parametrize("name", ["graded", "overlap"])
def test_a_reward_that_is_gone_is_said_so(name: str) -> None:
    with pytest.raises(ConfigError, match=f"reward rule '{name}' is gone"):
        reward_rules.build({"kind": name})


def test_a_log_probability_counts_every_token_alike() -> None:
    read = replace(replied("", "yes"), token_ids=(5, 6), log_probabilities=np.array([-1.0, -3.0]))
    assert reward_rules.build("log_probability")(read) == -2.0

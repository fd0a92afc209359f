"""What a reply is worth beside a reference answer."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from symbiont_ecology.base.errors import ConfigError, MissingExtraError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import reward_rules
from symbiont_ecology.extensions.data import rewards
from symbiont_ecology.tasks import verification
from symbiont_ecology.tasks.grading import graders


def replied(text: str, answer: str, verdict: float = 0.0) -> Rollout:
    item = Item("q", "family", "all", "q", "q", 16, verifier=lambda reply: False, answer=answer)
    nothing = np.zeros(0)
    return Rollout(item, "o1", (), nothing, text, verdict=verdict, reward=verdict, cost=Cost())


@pytest.mark.parametrize(
    ("rule", "reply", "answer", "worth"),
    [
        ({"kind": "graded", "grader": "exact"}, "Paris", "Paris", 1.0),
        ({"kind": "graded", "grader": "exact"}, "It is Paris, or so.", "Paris", 0.0),
        ({"kind": "graded", "grader": "stated"}, "It is Paris.", "Paris", 1.0),
        ({"kind": "graded", "grader": "number"}, "about 1,000", "1000", 1.0),
        ("conciseness", "", "yes", -3.0),
        ("conciseness", "certainly", "yes", -6.0),
        ({"kind": "overlap", "metric": "chrf"}, "the red fox", "the red fox", 1.0),
        ({"kind": "overlap", "metric": "bleu"}, "a fast red fox ran", "a fast red fox ran", 1.0),
        ({"kind": "overlap", "metric": "rouge_l"}, "red fox", "red fox", 1.0),
        ({"kind": "overlap", "metric": "chrf"}, "zzz", "the red fox", 0.0),
        ({"kind": "overlap", "metric": "rouge_l"}, "a dog", "the red fox", 0.0),
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


def test_a_grader_that_hangs_costs_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SECONDS", 0.2)
    name = "hangs here"

    @graders.function(name)
    def hangs(reply: str, answer: str) -> bool:
        time.sleep(30)
        return True

    began = time.monotonic()
    assert reward_rules.build({"kind": "graded", "grader": name})(replied("a", "a")) == 0.0
    assert time.monotonic() - began < 5
    del graders._entries[name]


def test_a_package_that_is_not_there_is_named_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rewards._overlap.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu", None)
    with pytest.raises(
        MissingExtraError, match=r"sacrebleu: pip install 'symbiont-ecology\[rewards"
    ):
        reward_rules.build({"kind": "overlap", "metric": "bleu"})
    rewards._overlap.cache_clear()


def test_a_grader_that_does_not_exist_is_named_before_a_run() -> None:
    with pytest.raises(ConfigError, match="exakt"):
        reward_rules.build({"kind": "graded", "grader": "exakt"})


def test_a_log_probability_counts_every_token_alike() -> None:
    read = replace(replied("", "yes"), token_ids=(5, 6), log_probabilities=np.array([-1.0, -3.0]))
    assert reward_rules.build("log_probability")(read) == -2.0

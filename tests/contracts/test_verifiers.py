"""Whatever a verifier does, it costs one answer and is named; the others are judged."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread

import pytest

from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import Judgement, judge, verification


def item(verifier: Callable[[str], object]) -> Item:
    """A question that this verifier judges."""
    return Item("own/all/0/q", "own", "all", "q", "own: q", 8, verifier)


def raises(_: str) -> object:
    raise ValueError("no such\nreply")


def leaves(_: str) -> object:
    sys.exit(3)


def never_returns(_: str) -> object:
    while True:
        pass


def never_returns_and_catches(_: str) -> object:
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            continue


def matches_for_ever(_: str) -> object:
    return re.fullmatch(r"(a|aa)+", 60 * "a" + "b")


FAULTS: dict[str, tuple[Callable[[str], object], str]] = {
    "raises": (raises, "raised ValueError: no such"),
    "leaves": (leaves, "raised SystemExit: 3"),
    "recurses": (lambda reply: (f := lambda: f())(), "raised RecursionError"),
    "never returns": (never_returns, "took longer than 0.2 s"),
    "never returns and catches": (never_returns_and_catches, "took longer than 0.2 s"),
    "matches for ever": (matches_for_ever, "took longer than 0.2 s"),
    "NaN": (lambda reply: float("nan"), "returned nan, expected True, False or a number in [0, 1]"),
    "-0.1": (lambda reply: -0.1, "returned -0.1, expected"),
    "None": (lambda reply: None, "returned None, expected"),
    "text": (lambda reply: 1000 * "yes", "returned 'yesyes"),
}
every_fault = pytest.mark.parametrize(("verifier", "said"), FAULTS.values(), ids=FAULTS)


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for five seconds here."""
    monkeypatch.setattr(verification, "SECONDS", 0.2)


@every_fault
def test_a_verifier_that_fails_costs_its_answer_alone_and_is_named(
    verifier: Callable[[str], object], said: str
) -> None:
    good, began = item(lambda reply: reply == "yes"), time.monotonic()
    before, bad, right, wrong = judge(
        [(good, "yes"), (item(verifier), "yes"), (good, "yes"), (good, "no")]
    )
    assert (before, right, wrong) == (Judgement(1.0), Judgement(1.0), Judgement(0.0))
    assert bad.verdict == 0.0
    assert bad.fault.startswith(said)
    assert len(bad.fault) < 300
    assert time.monotonic() - began < 2.0


def test_judging_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    judge([(item(verifier), "") for verifier in (raises, never_returns, lambda reply: True)])
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_another_thread_judges_too() -> None:
    verdicts: list[Judgement] = []
    questions = [(item(raises), ""), (item(lambda reply: True), "")]
    thread = Thread(target=lambda: verdicts.extend(judge(questions)))
    thread.start()
    thread.join()
    assert [judgement.verdict for judgement in verdicts] == [0.0, 1.0]
    assert verdicts[0].fault.startswith("raised ValueError")

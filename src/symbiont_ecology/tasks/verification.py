"""The boundary around verifiers, which anybody may write: a fault of theirs costs one answer.

A verifier that raises, takes too long or returns nonsense gives the verdict 0, and the fault is
named in the event log and in evaluations. The run goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from symbiont_ecology.types import Item

SECONDS = 5.0
"""Time that a verifier may take for one reply."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict from 0 (wrong) to 1 (right), and what was wrong with the verifier, if anything."""

    verdict: float
    fault: str = ""


def judge(answers: Iterable[tuple[Item, str]]) -> list[Judgement]:
    """The verdict of each item's verifier on its reply. Whatever verifiers do, this returns."""
    with _alarm_handler() as is_armed:
        return [_judge(item, reply, is_armed) for item, reply in answers]


def _judge(item: Item, reply: str, is_armed: bool) -> Judgement:
    try:
        try:
            if is_armed:
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
            verdict = item.verifier(reply)
        finally:
            if is_armed:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeUpError:
        return Judgement(0.0, f"took longer than {SECONDS:g} s")
    except (Exception, SystemExit) as error:  # a verifier is foreign code, and may fail in any way
        return Judgement(0.0, f"raised {type(error).__name__}: {str(error)[:200]}")
    if isinstance(verdict, bool | int | float) and 0 <= verdict <= 1:
        return Judgement(float(verdict))
    return Judgement(0.0, f"returned {verdict!r:.60}, expected True, False or a number in [0, 1]")


class _TimeUpError(BaseException):
    """Not an ``Exception``, so that a verifier which catches those cannot keep going."""


@contextmanager
def _alarm_handler() -> Iterator[bool]:
    """Whether verifiers can be interrupted, which needs the main thread. An alarm interrupts Python
    code, patterns included."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.signal(signal.SIGALRM, _raise_time_up)
    try:
        yield True
    finally:
        signal.signal(signal.SIGALRM, before)


def _raise_time_up(number: int, frame: FrameType | None) -> None:
    raise _TimeUpError

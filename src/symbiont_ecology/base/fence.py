"""The fence around code that others wrote: a fault of theirs is said in one line, and its time is
bounded.

    with Fence(10.0) as fence:
        worth = fence(reward, rollout)  # or FaultError: "raised ValueError: … (mine.py line 7)"

A fault is whatever the code raises (``sys.exit`` included), a time limit that is over, or what a
caller refuses of the result by a ``FaultError`` of its own. An alarm (SIGALRM) interrupts Python
code, patterns included, in the main thread. It interrupts neither another thread, nor C code that
does not return, nor an endless loop that catches ``BaseException`` in every turn. On Windows there
is no such alarm, and so no time limit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeVar

from symbiont_ecology.base.errors import EcologyError, RunError
from symbiont_ecology.base.registry import is_foreign

Result = TypeVar("Result")

PART_SECONDS = 10.0
"""Time that a reward, a learning rule or an operator may take for one call."""
MAX_FAULT_CHARS = 200
"""Characters of what foreign code says of its fault."""
MAX_LATE = 3
"""Calls of a part in a generation that may take too long, until the others fail at once."""
_AGAIN = 0.05
"""Seconds from one alarm to the next, for code that caught the first."""


class FaultError(Exception):
    """Foreign code did not do its work; the message says what it did instead."""


class TooLateError(FaultError):
    """Foreign code took too long."""


class Fence:
    """Calls foreign code, each call in so many seconds at most. Use it as a context.

    Inside another fence, the time of the outer one goes on.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = PART_SECONDS if seconds is None else seconds
        self.is_armed = False

    def __enter__(self) -> Fence:
        is_main = threading.current_thread() is threading.main_thread()
        self.is_armed = is_main and hasattr(signal, "setitimer")
        if self.is_armed:
            self._began = time.monotonic()
            self._timer = signal.setitimer(signal.ITIMER_REAL, 0)
            self._handler = signal.signal(signal.SIGALRM, _ring)
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_armed:
            signal.signal(signal.SIGALRM, self._handler)
            seconds, interval = self._timer
            if seconds:
                seconds -= time.monotonic() - self._began
                signal.setitimer(signal.ITIMER_REAL, max(seconds, _AGAIN), interval)

    def __call__(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Return the result of the function.

        Raises:
            FaultError: it raises.
            TooLateError: it takes too long.
        """
        try:
            try:
                if self.is_armed:
                    signal.setitimer(signal.ITIMER_REAL, self.seconds, _AGAIN)
                return _inside(function, arguments)
            finally:
                if self.is_armed:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeUpError:
            raise TooLateError(f"took longer than {self.seconds:g} s") from None
        except (FaultError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the text of an error is foreign code as well
            raise FaultError(f"raised {type(error).__name__:.80}") from error


class TimeUpError(BaseException):
    """Not an ``Exception``, so that foreign code which catches those cannot keep going."""


def _inside(function: Callable[..., Result], arguments: tuple[object, ...]) -> Result:
    """Return all that an alarm may interrupt."""
    try:
        return function(*arguments)
    except (FaultError, TimeUpError, KeyboardInterrupt):
        raise
    except BaseException as error:  # foreign code, which may also call sys.exit
        raise FaultError(said_of(error)) from error


def _ring(number: int, frame: FrameType | None) -> None:
    """End what is inside; the fence itself, which may just be putting the alarm off, goes on."""
    if frame is None or frame.f_code not in _OUTSIDE:
        raise TimeUpError


_OUTSIDE = {Fence.__call__.__code__, Fence.__enter__.__code__, Fence.__exit__.__code__}


def said_of(error: BaseException) -> str:
    """Return ``raised ValueError: no such reply (mine.py line 7)``, in one line."""
    text = " ".join(str(error).split())[:MAX_FAULT_CHARS]
    where = foreign_place(error.__traceback__)
    return f"raised {type(error).__name__:.80}{text and f': {text}'}{where and f' ({where})'}"


def foreign_place(trace: TracebackType | None) -> str:
    """Return file and line at which a plug-in was when something failed; empty if none was at
    work."""
    while trace is not None:
        if is_foreign(str(trace.tb_frame.f_globals.get("__name__", ""))):
            return f"{Path(trace.tb_frame.f_code.co_filename).name} line {trace.tb_lineno}"
        trace = trace.tb_next
    return ""


@contextmanager
def blamed(error_class: type[EcologyError]) -> Iterator[None]:
    """Turn errors of plug-ins within the block into one line that names the file. Others are our
    own, and keep their traceback."""
    try:
        yield
    except (EcologyError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        if not foreign_place(error.__traceback__):
            raise
        raise error_class(f"a plug-in {said_of(error)}: mend it") from error


def as_list(part: str, returned: Iterable[Result], kind: type[object]) -> list[Result]:
    """Return the values that a part returned, as a list.

    Raises:
        RunError: it is no list, or something in it is of another kind.
    """
    values = list(returned) if isinstance(returned, Iterable) else [returned]
    if wrong := [value for value in values if not isinstance(value, kind)]:
        raise RunError(
            f"{part} returned {wrong[0]!r:.60}, expected a list of {kind.__name__}s, or an empty "
            "one: mend it"
        )
    return values


@dataclass
class Tally:
    """Number of calls of a part in a generation, of those that failed and of those that took too
    long; and the first fault."""

    calls: int = 0
    failed: int = 0
    late: int = 0
    fault: str = ""


@dataclass
class Faults:
    """The tallies of a generation, by the part that they are about."""

    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def note(self, part: str, fault: str = "") -> None:
        """Count a call of a part, which failed if there is a fault."""
        tally = self.tallies[part]
        tally.calls += 1
        tally.failed += bool(fault)
        tally.fault = tally.fault or fault

    def call(self, part: str, function: Callable[..., Result], *arguments: object) -> Result:
        """Return the result of the function, counted as a call of the part. After some calls that
        took too long, the others are not even tried.

        Raises:
            FaultError: as ``Fence``.
        """
        tally = self.tallies[part]
        try:
            with Fence() as fence:
                if tally.late >= MAX_LATE:
                    raise FaultError(f"took longer than {fence.seconds:g} s before")
                result = fence(function, *arguments)
        except FaultError as error:
            self.note(part, str(error))
            tally.late += isinstance(error, TooLateError)
            raise
        self.note(part)
        return result

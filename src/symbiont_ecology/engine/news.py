"""News of work within a generation that takes many seconds."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

SECONDS_BETWEEN_NEWS = 5.0

_Thing = TypeVar("_Thing")


def with_news(
    things: Sequence[_Thing],
    what: str,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[_Thing]:
    """One thing after another; every few seconds ``tell`` hears how much of ``what`` is done, and
    how many seconds are left."""
    start = last_news = clock()
    for number, thing in enumerate(things, start=1):
        yield thing
        if (now := clock()) - last_news >= SECONDS_BETWEEN_NEWS:
            last_news, left = now, (now - start) / number * (len(things) - number)
            tell(f"{what}, step {number} of {len(things)}, about {left:.0f} s left")

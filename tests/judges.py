"""Scripted people, who judge what a run waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.engine.judgements import GivenJudgement, Judgements
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import WaitingError

Taste = Callable[[str], float]
"""What somebody thinks of a reply, from 0 to 1."""


def likes_short(reply: str) -> float:
    """One for nothing, less for every letter."""
    return 1 / (1 + len(reply))


def judge_all(folder: Path, taste: Taste = likes_short, most: int | None = None) -> int:
    """Judges what waits, or so many of it; returns how many."""
    judgements = Judgements(folder)
    waiting = judgements.waiting()[:most]
    for reply in waiting:
        judgements.add(GivenJudgement(reply.id, taste(reply.reply)))
    return len(waiting)


def live_with_judge(
    config: RunConfig, folder: Path, host: Callable[[], Host], taste: Taste = likes_short
) -> int:
    """Lives a run to its end with somebody who judges at every stop; returns how many there
    were."""
    stops = 0
    while True:
        try:
            if (folder / STATE_FILE).exists():
                resume(folder, host=host())
            else:
                start(config, folder, host=host())
        except WaitingError:
            stops += 1
            assert judge_all(folder, taste)
        else:
            return stops

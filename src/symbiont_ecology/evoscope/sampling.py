"""What a page of a long run leaves out. Whatever is left out is said on the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from symbiont_ecology.history.chronicle import News
from symbiont_ecology.transcripts import Transcript

MOST_FRAMES, MOST_ACTS, MOST_NEWS, MOST_REPLIES = 600, 120_000, 4_000, 3_000
"""Moments that the slider knows, rows of who was asked what, news, replies."""
EACH = 6
"""Right and wrong replies of every organelle, and of every habitat, that come before others."""
LESSER = ("body", "move", "trial")
"""News that go first."""


def chosen_news(news: Sequence[News], most: int = MOST_NEWS) -> list[News]:
    """All news, or as many: lesser ones are thinned out evenly, then all others."""
    chosen = list(news)
    for kinds in [(kind,) for kind in LESSER] + [tuple({item.kind for item in news})]:
        if (over := len(chosen) - most) <= 0:
            break
        places = [place for place, item in enumerate(chosen) if item.kind in kinds]
        left_out = {places[number] for number in _evenly(len(places), min(over, len(places)))}
        chosen = [item for place, item in enumerate(chosen) if place not in left_out]
    return chosen


def chosen_replies(
    transcripts: Sequence[Transcript], most: int = MOST_REPLIES, each: int = EACH
) -> list[Transcript]:
    """The newest right and wrong replies of everyone, then those of every habitat, then the newest
    of all; in the order of the run."""
    chosen: dict[int, None] = {}
    for key in (_by_organelle, _by_habitat):
        groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for place, transcript in enumerate(transcripts):
            groups[key(transcript), transcript.is_right].append(place)
        for places in groups.values():
            chosen.update(dict.fromkeys(places[-each:]))
    newest = range(len(transcripts) - 1, -1, -1)
    chosen.update(dict.fromkeys(newest))
    return [transcripts[place] for place in sorted(list(chosen)[:most])]


def _by_organelle(transcript: Transcript) -> str:
    return transcript.id


def _by_habitat(transcript: Transcript) -> str:
    return transcript.habitat


def _evenly(count: int, parts: int) -> list[int]:
    """So many of the numbers below ``count``, evenly spread."""
    edges = [count * part // max(parts, 1) for part in range(parts + 1)]
    return [low for low, _ in pairwise(edges)]

"""Rows of a continuous batch, and what each of them says by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hosts import PROMPTS
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT, Completion, Decoding, Request
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.streaming import NewToken, StreamedRequest
from symbiont_ecology.model.kernel import HostKernel

LIMITS = (12, 3, 9, 1, 12, 7, 5, 11)
OWNERS = (0, 1, HOST_SLOT, 2, 1, 1, 0, HOST_SLOT)
SAMPLED = Decoding(temperature=0.9, top_p=0.9)


@dataclass
class Written:
    """What came of one row."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    end: str = ""

    def add(self, news: NewToken) -> None:
        self.text += news.text
        self.ids.append(news.token_id)
        self.scores.append(news.log_probability)
        self.end = news.end


def alone(
    kernel: HostKernel, adapters: Sequence[AdapterWeights], decoding: Decoding
) -> list[Completion]:
    """Each prompt by itself, through the kernel."""
    rows = list[Completion]()
    for place, (prompt, owner, limit) in enumerate(zip(PROMPTS, OWNERS, LIMITS, strict=True)):
        if owner != HOST_SLOT:
            kernel.place(0, adapters[owner])
        slot = HOST_SLOT if owner == HOST_SLOT else 0
        draws = [Draw(0)("row", place)] if decoding.temperature else None
        rows.append(kernel.rollout([Request(prompt, slot, limit)], draws, decoding)[0])
    return rows


def requests(
    kernel: HostKernel, adapters: Sequence[AdapterWeights], decoding: Decoding
) -> list[StreamedRequest]:
    encoded = kernel.encode(PROMPTS)
    return [
        StreamedRequest(
            encoded[place],
            None if owner == HOST_SLOT else adapters[owner],
            limit,
            decoding,
            Draw(0)("row", place) if decoding.temperature else None,
        )
        for place, (owner, limit) in enumerate(zip(OWNERS, LIMITS, strict=True))
    ]


def told(batch: ContinuousBatch) -> list[NewToken]:
    """One more token of every row; none is lost."""
    news = [one for one in batch.step() if isinstance(one, NewToken)]
    assert len({one.row for one in news}) == len(news)
    return news


def in_company(
    batch: ContinuousBatch, asked: Sequence[StreamedRequest], moments: Sequence[int]
) -> list[Written]:
    """Every request joins at its moment, in steps."""
    written, places = dict[int, Written](), dict[int, int]()
    for step in range(100):
        joining = [place for place, moment in enumerate(moments) if moment == step]
        ids = batch.join([asked[place] for place in joining])
        assert len(ids) == len(joining)
        places |= dict(zip(ids, joining, strict=True))
        told_once(batch, written)
        if step > max(moments) and not len(batch):
            break
    found = {places[row]: one for row, one in written.items()}
    return [found[place] for place in range(len(asked))]


def told_once(batch: ContinuousBatch, written: dict[int, Written]) -> None:
    """One step, into what has been written."""
    for news in told(batch):
        written.setdefault(news.row, Written()).add(news)


def alike(ours: Written, theirs: Completion, *, is_exact: bool) -> int:
    """Compare two answers up to where they part, which exact ones do not; return the number of
    tokens."""
    pairs = list(zip(ours.ids, theirs.token_ids, strict=is_exact))
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))
    assert not is_exact or (same == len(pairs) and ours.text == theirs.text)
    scores, close = theirs.log_probabilities[:same], 1e-4 if is_exact else 0.2
    np.testing.assert_allclose(ours.scores[:same], scores, atol=close)
    return same

"""Rows of many owners as one line of tokens: no padding, and what prompts begin with alike stands
there once.

Everything in a transformer but attention treats tokens one by one, so tokens of all rows can stand
end to end, owner after owner. Prompts of one owner (a chat template around questions, examples
before them, samples of one question) form a tree of segments: a segment stands on the line once,
and what comes after it attends to the same keys. The radix tree of SGLang (arXiv:2312.07104), built
anew for each batch. Attention sees the line as ``stretches``, or as rectangles (``attention``),
which is what torch wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.base.flops import HostShape

MIN_SHARED, MIN_SHARED_IF_LARGE = 16, 4
"""Tokens that different prompts have in common from which on they are read once: attention in
pieces costs more than fewer save. On SmolLM2, whose tokens cost more, 4 instead of 16 make a batch
of chat prompts 10 % and its lessons 4 % faster."""
NEVER = 1 << 40
"""In place of these, where only equal prompts may be read once."""

STRETCH = np.dtype(
    [
        ("start", np.int64),  # where on the line
        ("count", np.int64),  # how many tokens
        ("parent", np.int64),  # number of the stretch behind which it stands (−1: none)
        ("before", np.int64),  # how many tokens come before it
        ("first", np.int64),  # index of its first query token
        ("to", np.int64),  # output row of that query
    ]
)
"""Tokens that stand on the line end to end, as the ``stretch`` of ``cpu_kernels.c``."""


@dataclass(frozen=True)
class Text:
    """Token ids of one row: the prompt, and the answer as far as it is input."""

    prompt: np.ndarray
    answer: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def ids(self) -> np.ndarray:
        """Both as one array."""
        return np.concatenate([self.prompt, self.answer])


@dataclass(frozen=True)
class Packing:
    """Tokens of some texts, owner after owner. Index tensors are int64 and live on the host's
    device.

    ``texts`` and ``row_owners`` are the rows. Prompts are made of segments, the first ``segments``
    of the ``stretches``; the others are answers, each behind the segment with which its prompt
    ends. ``prompt_of (rows,)`` and ``end_of (rows,)`` are the stretches with which each row's
    prompt and the row end, ``read (rows,)`` are the tokens of its prompt that stand here for it
    first. ``ids`` and ``positions`` are ``(tokens,)``; ``owners`` stand in ascending order with
    ``counts`` tokens each.

    ``ends`` are the places from which something is predicted, the prompts' last tokens and all
    answer tokens, ``end_counts`` of each owner; ``predicts`` picks out of them, row by row, the one
    after the prompt and those of the answer.
    """

    texts: Sequence[Text]
    row_owners: Sequence[int]
    stretches: np.ndarray
    segments: int
    prompt_of: np.ndarray
    end_of: np.ndarray
    read: np.ndarray
    owners: tuple[int, ...]
    counts: tuple[int, ...]
    ids: Tensor
    positions: Tensor
    ends: Tensor
    end_counts: tuple[int, ...]
    predicts: Tensor

    @property
    def is_tree(self) -> bool:
        """True if any prompt is in pieces."""
        return bool((self.stretches["parent"][: self.segments] >= 0).any())

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        rows = self.stretches[self.end_of]
        return int((rows["before"] + rows["count"]).max())

    @cached_property
    def pieces(self) -> np.ndarray:
        """Segments of which the rows' prompts are made, ``(pieces, 4)``: row, where in its prompt,
        where on the line, how many tokens."""
        return pieces_of(self.stretches, self.stretches[self.prompt_of])

    def looking(self, *, is_narrow: bool) -> np.ndarray:
        """Return the stretches, of which all tokens look, or the ends alone."""
        stretches = self.stretches.copy()
        if is_narrow:  # a segment with which no prompt ends is only looked at
            stretches["first"][: self.segments] = stretches["count"][: self.segments]
            stretches["first"][self.prompt_of] -= 1
            places = stretches["start"] + stretches["first"]
            stretches["to"] = np.searchsorted(self.ends.cpu().numpy(), places)
        return stretches


def pieces_of(stretches: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return what some stretches see, in pieces as ``Packing.pieces``."""
    rows = np.arange(len(members))
    pieces = list[np.ndarray]()
    while len(rows):
        parts = rows, members["before"], members["start"], members["count"]
        pieces.append(np.stack(parts, axis=1))
        is_behind = members["parent"] >= 0
        rows, members = rows[is_behind], stretches[members["parent"][is_behind]]
    return np.concatenate(pieces)


def places_seen(stretches: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the places in the line that the last tokens of some stretches see, as
    ``places_of``."""
    return places_of(pieces_of(stretches, members), members["before"] + members["count"])


def places_of(pieces: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the places in the line of rows that are made of ``pieces`` (as ``Packing.pieces``),
    ``(rows, longest)``; the last place of a row is repeated behind it."""
    places = np.zeros((len(lengths), int(lengths.max(initial=0))), dtype=np.int64)
    rows, first, starts, counts = pieces.T
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.repeat(first, counts) + number
    places[np.repeat(rows, counts), columns] = np.repeat(starts, counts) + number
    spots = np.minimum(np.arange(places.shape[1]), np.maximum(lengths[:, None] - 1, 0))
    return np.asarray(np.take_along_axis(places, spots, axis=1))


def pack_texts(
    texts: Sequence[Text], owners: Sequence[int], device: torch.device, *, least: int = MIN_SHARED
) -> Packing:
    """Packs rows; ``owners`` has one entry per row, ascending. At least one row, no empty prompt.

    Prompts share ``least`` tokens or more, or are equal.
    """
    keys = _keys_of(texts, owners)
    cuts = _cuts_of(keys, least)
    line = _Line()
    counts = Counter[int]()
    prompt_of, read = np.zeros((2, len(texts)), dtype=np.int64)
    answers = list[tuple[int, int, int, int]]()
    for row, (key, text) in enumerate(zip(keys, texts, strict=True)):
        before = line.length
        prompt_of[row] = line.walk(key, text.prompt, cuts[key])
        read[row] = line.length - before
        answers.append(line.put(text.answer, int(prompt_of[row]), len(text.prompt)))
        counts[key[0]] += line.length - before
    answer_starts, answer_lengths, *_ = np.array(answers, dtype=np.int64).T
    has_answer = answer_lengths > 0
    end_of = np.where(has_answer, len(line.segments) - 1 + np.cumsum(has_answer), prompt_of)
    columns = np.array([*line.segments, *(one for one in answers if one[1])], dtype=np.int64).T
    stretches = np.zeros(columns.shape[1], dtype=STRETCH)
    for name, column in zip(("start", "count", "parent", "before"), columns, strict=True):
        stretches[name] = column
    stretches["to"] = stretches["start"]
    on_line = stretches[np.argsort(stretches["start"])]
    positions = np.repeat(on_line["before"] - on_line["start"], on_line["count"])
    # Row by row, the place after the prompt and those of the answer.
    firsts = np.cumsum(answer_lengths + 1) - answer_lengths - 1
    predicts = np.repeat(answer_starts - 1 - firsts, answer_lengths + 1)
    predicts += np.arange(len(predicts))
    predicts[firsts] = (stretches["start"] + stretches["count"] - 1)[prompt_of]
    ends = np.unique(predicts)  # in the order of the line, so that owners stay together
    borders = np.searchsorted(ends, np.cumsum([0, *counts.values()]))
    return Packing(
        texts=texts,
        row_owners=owners,
        stretches=stretches,
        segments=len(line.segments),
        prompt_of=prompt_of,
        end_of=end_of,
        read=read,
        owners=tuple(counts),
        counts=tuple(counts.values()),
        ids=torch.from_numpy(np.concatenate(line.parts)).to(device),
        positions=torch.from_numpy(positions + np.arange(line.length)).to(device),
        ends=torch.from_numpy(ends).to(device),
        end_counts=tuple(np.diff(borders).tolist()),
        predicts=torch.from_numpy(np.searchsorted(ends, predicts)).to(device),
    )


def packings(
    texts: Sequence[Text],
    owners: Sequence[int],
    device: torch.device,
    max_tokens: int,
    *,
    least: int = MIN_SHARED,
) -> Iterator[tuple[np.ndarray, Packing]]:
    """Pack rows in pieces as ``chunks``; yield also the numbers of the rows in each."""
    for rows in chunks(texts, owners, max_tokens, least=least):
        some = [texts[row] for row in rows]
        yield rows, pack_texts(some, [owners[row] for row in rows], device, least=least)


def chunks(
    texts: Sequence[Text], owners: Sequence[int], max_tokens: int, *, least: int = MIN_SHARED
) -> Iterator[np.ndarray]:
    """Return row numbers in pieces of about ``max_tokens`` packed tokens at most (or one row),
    sorted by owner and prompt; ``least`` as in ``pack_texts``."""
    keys = _keys_of(texts, owners)
    piece = list[int]()
    size = 0
    last = (-2, b"")
    for row in sorted(range(len(texts)), key=keys.__getitem__):
        tokens = len(texts[row].prompt) + len(texts[row].answer)
        growth = tokens - _shared(keys[row], last, least)
        if piece and size + growth > max_tokens:
            yield np.array(piece)
            piece, size, growth = [], 0, tokens
        piece.append(row)
        size, last = size + growth, keys[row]
    if piece:
        yield np.array(piece)


def any_shared(prompts: Sequence[np.ndarray], owners: Sequence[int], least: int) -> bool:
    """Return True if any prompts of one owner are equal, or begin with ``least`` tokens alike."""
    keys = [(owner, prompt.tobytes()) for owner, prompt in zip(owners, prompts, strict=True)]
    pieces = _cuts_of(keys, least)
    return len(pieces) < len(keys) or any(len(cuts) > 1 for cuts in pieces.values())


def least_shared(shape: HostShape) -> int:
    """Return how many tokens prompts must have in common to share them, on a host of that shape."""
    return MIN_SHARED_IF_LARGE if shape.is_large else MIN_SHARED


def taken(x: Tensor, places: Tensor) -> Tensor:
    """Return ``x[places]`` for ``x (tokens, width)``; an embedding, whose backward pass is the
    fastest on a CPU."""
    return torch.nn.functional.embedding(places, x)


_ID = 8  # bytes of a token id
_Key = tuple[int, bytes]  # an owner and the ids of a prompt


class _Line:
    """A line that grows to ``length`` places.

    ``segments`` are place, tokens, parent and tokens before it of each; ``parts`` are the ids that
    stand on the line.
    """

    def __init__(self) -> None:
        self.segments, self.parts = list[tuple[int, int, int, int]](), list[np.ndarray]()
        self._numbers = dict[_Key, int]()
        self.length = 0

    def walk(self, key: _Key, prompt: np.ndarray, cuts: Sequence[int]) -> int:
        """Return the segment with which a prompt ends, once all that it is made of stand here."""
        parent, before = -1, 0
        for cut in cuts:
            name = key[0], key[1][: cut * _ID]
            if name not in self._numbers:
                self._numbers[name] = len(self.segments)
                self.segments.append(self.put(prompt[before:cut], parent, before))
            parent, before = self._numbers[name], cut
        return parent

    def put(self, ids: np.ndarray, parent: int, before: int) -> tuple[int, int, int, int]:
        """Append tokens; return what ``segments`` say of one."""
        start = self.length
        self.parts.append(ids)
        self.length += len(ids)
        return start, len(ids), parent, before


def _keys_of(texts: Sequence[Text], owners: Sequence[int]) -> list[_Key]:
    return [(owner, text.prompt.tobytes()) for owner, text in zip(owners, texts, strict=True)]


def _shared(one: _Key, other: _Key, least: int) -> int:
    """Return how many tokens two prompts of one owner begin with alike, 0 if fewer than ``least``
    unless they are equal."""
    if one == other:
        return len(one[1]) // _ID
    (owner, left), (other_owner, right) = one, other
    size = min(len(left), len(right)) // _ID
    border = least * _ID
    if owner != other_owner or size < least or left[:border] != right[:border]:
        return 0
    ids, other_ids = (np.frombuffer(key, dtype=np.int64, count=size) for key in (left, right))
    differs = ids != other_ids
    return int(differs.argmax()) if differs.any() else size


def _cuts_of(keys: Sequence[_Key], least: int) -> dict[_Key, list[int]]:
    """Return where the pieces of each prompt end, in tokens: prompts part where those go on apart
    that are alike for ``least`` tokens or more."""
    order = sorted(set(keys))
    alike = [0, *(_shared(one, other, least) for one, other in pairwise(order))]
    cuts = {key: list[int]() for key in order}
    spans = [(0, len(order), 0)]  # of the order, and how many tokens are alike in it
    while spans:
        low, high, depth = spans.pop()
        parts = [place for place in range(low + 1, high) if alike[place] < depth + least]
        for start, stop in pairwise([low, *parts, high]):
            if stop - start > 1:
                cut = min(alike[start + 1 : stop])
                for key in order[start:stop]:
                    cuts[key].append(cut)
                spans.append((start, stop, cut))
    for key, ends in cuts.items():
        length = len(key[1]) // _ID
        if ends[-1:] != [length]:
            ends.append(length)
    return cuts

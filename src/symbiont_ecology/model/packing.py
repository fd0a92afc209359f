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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.base.flops import HostShape

MIN_SHARED, MIN_SHARED_IF_LARGE = 16, 4
"""Tokens that different prompts have in common from which on they are read once: attention in
pieces costs more than fewer save. On SmolLM2, whose tokens cost more, 4 instead of 16 make a batch
of chat prompts 10 % and its lessons 4 % faster."""

STRETCH = np.dtype(
    [
        ("start", np.int64),  # where on the line
        ("count", np.int64),  # how many tokens
        ("parent", np.int64),  # number of the stretch behind which it stands (−1: none)
        ("before", np.int64),  # how many tokens come before it
        ("first", np.int64),  # which of its tokens is the first to look
        ("to", np.int64),  # where in the output belongs what that one sees
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

    ``texts`` and ``row_owners`` are the rows in the caller's order. Prompts are made of segments,
    at ``starts`` with ``lengths``: each stands behind its ``parents``' (−1: nothing) last token,
    which is token number ``before`` of the prompt. ``prompt_of (rows,)`` is the segment with which
    each row's prompt ends, ``read (rows,)`` are the tokens of its prompt that stand here for it
    first; ``answer_starts`` and ``answer_lengths`` are its answer. ``ids`` and ``positions`` are
    ``(tokens,)``; ``owners`` stand in ascending order with ``counts`` tokens each.

    ``ends`` are the places from which something is predicted, the prompts' last tokens and all
    answer tokens, ``end_counts`` of each owner; ``predicts`` picks out of them, row by row, the one
    after the prompt and those of the answer.
    """

    texts: Sequence[Text]
    row_owners: Sequence[int]
    starts: np.ndarray
    lengths: np.ndarray
    parents: np.ndarray
    before: np.ndarray
    prompt_of: np.ndarray
    read: np.ndarray
    answer_starts: np.ndarray
    answer_lengths: np.ndarray
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
        return bool((self.parents >= 0).any())

    @property
    def prompt_lengths(self) -> np.ndarray:
        """Tokens of each row's prompt."""
        return np.asarray((self.before + self.lengths)[self.prompt_of])

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int((self.prompt_lengths + self.answer_lengths).max())

    @property
    def last_tokens(self) -> Tensor:
        """Place of each row's last token, ``(rows,)``."""
        last = torch.from_numpy(np.cumsum(self.answer_lengths + 1) - 1)
        return self.ends[self.predicts[last.to(self.predicts.device)]]

    @cached_property
    def pieces(self) -> np.ndarray:
        """Segments of which the rows' prompts are made, ``(pieces, 4)``: row, where in its prompt,
        where on the line, how many tokens."""
        stretches = self.stretches()
        return pieces_of(stretches, stretches[self.prompt_of])

    def stretches(self, *, is_ends: bool = False) -> np.ndarray:
        """Return segments and answers as ``STRETCH``, ``(stretches,)``; all tokens look, or
        ends."""
        rows = np.flatnonzero(self.answer_lengths)
        if is_ends:  # a segment with which no prompt ends is only looked at
            offsets = self.lengths.copy()
            offsets[self.prompt_of] = self.lengths[self.prompt_of] - 1
        else:
            offsets = np.zeros_like(self.lengths)
        columns = {
            "start": (self.starts, self.answer_starts[rows]),
            "count": (self.lengths, self.answer_lengths[rows]),
            "parent": (self.parents, self.prompt_of[rows]),
            "before": (self.before, self.prompt_lengths[rows]),
            "first": (offsets, np.zeros_like(rows)),
        }
        stretches = np.empty(len(offsets) + len(rows), dtype=STRETCH)
        for name, parts in columns.items():
            stretches[name] = np.concatenate(parts)
        places = stretches["start"] + stretches["first"]
        stretches["to"] = np.searchsorted(self.ends.numpy(), places) if is_ends else places
        return stretches

    def places_of_prompts(self) -> np.ndarray:
        """Return the places of each row's prompt in the line: ``(rows, longest prompt)``, the last
        place repeated."""
        return places_of(self.pieces, self.prompt_lengths)

    def places_of_rows(self) -> np.ndarray:
        """Return the places of each row's tokens in the line: ``(rows, longest)``, the last place
        repeated."""
        row = np.flatnonzero(self.answer_lengths)
        answers = row, self.prompt_lengths[row], self.answer_starts[row], self.answer_lengths[row]
        pieces = np.concatenate([self.pieces, np.stack(answers, axis=1)])
        return places_of(pieces, self.prompt_lengths + self.answer_lengths)


def pieces_of(stretches: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return what some stretches see, in pieces as ``Packing.pieces``."""
    rows, pieces = np.arange(len(members)), list[np.ndarray]()
    while len(rows):
        parts = rows, members["before"], members["start"], members["count"]
        pieces.append(np.stack(parts, axis=1))
        is_behind = members["parent"] >= 0
        rows, members = rows[is_behind], stretches[members["parent"][is_behind]]
    return np.concatenate(pieces)


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
    texts: Sequence[Text],
    owners: Sequence[int],
    device: torch.device,
    *,
    least: int | None = MIN_SHARED,
) -> Packing:
    """Packs rows; ``owners`` has one entry per row, in any order. At least one row, no empty
    prompt.

    Prompts share ``least`` tokens or more; None: only equal prompts share.
    """
    keys = [(owner, text.prompt.tobytes()) for owner, text in zip(owners, texts, strict=True)]
    cuts = {} if least is None else _cuts_of(keys, least)
    line, counts = _Segments(), Counter[int]()
    prompt_of, read, answer_starts = np.zeros((3, len(texts)), dtype=np.int64)
    # Owner after owner, each segment where the first row stands that needs it.
    for row in np.argsort(np.asarray(owners), kind="stable").tolist():
        text, before = texts[row], line.length
        prompt_of[row] = line.walk(keys[row], text.prompt, cuts.get(keys[row]))
        answer_starts[row], read[row] = line.length, line.length - before
        line.append(text.answer, len(text.prompt))
        counts[owners[row]] += line.length - before
    answer_lengths = np.array([len(text.answer) for text in texts], dtype=np.int64)
    starts, lengths, parents, befores = np.array(line.segments, dtype=np.int64).T.copy()
    # Row by row, the place after the prompt and those of the answer.
    firsts = np.cumsum(answer_lengths + 1) - answer_lengths - 1
    predicts = np.repeat(answer_starts - 1 - firsts, answer_lengths + 1)
    predicts += np.arange(len(predicts))
    predicts[firsts] = (starts + lengths - 1)[prompt_of]
    ends = np.unique(predicts)  # in the order of the line, so that owners stay together
    borders = np.searchsorted(ends, np.cumsum([0, *counts.values()]))
    positions = np.concatenate([position + np.arange(len(ids)) for ids, position in line.parts])
    return Packing(
        texts=texts,
        row_owners=owners,
        starts=starts,
        lengths=lengths,
        parents=parents,
        before=befores,
        prompt_of=prompt_of,
        read=read,
        answer_starts=answer_starts,
        answer_lengths=answer_lengths,
        owners=tuple(counts),
        counts=tuple(counts.values()),
        ids=torch.from_numpy(np.concatenate([ids for ids, _ in line.parts])).to(device),
        positions=torch.from_numpy(positions).to(device),
        ends=torch.from_numpy(ends).to(device),
        end_counts=tuple(np.diff(borders).tolist()),
        predicts=torch.from_numpy(np.searchsorted(ends, predicts)).to(device),
    )


def chunks(
    texts: Sequence[Text], owners: Sequence[int], max_tokens: int, *, least: int | None = MIN_SHARED
) -> Iterator[np.ndarray]:
    """Return row numbers in pieces of about ``max_tokens`` packed tokens at most (or one row),
    alike rows side by side; ``least`` as in ``pack_texts``."""
    order = sorted(range(len(texts)), key=lambda row: (owners[row], texts[row].prompt.tobytes()))
    piece: list[int] = []
    size, last = 0, (-2, b"")
    for row in order:
        key = (owners[row], texts[row].prompt.tobytes())
        prompt, answer = len(texts[row].prompt), len(texts[row].answer)
        growth = prompt + answer
        if key == last:
            growth = answer
        elif least is not None and key[0] == last[0]:
            growth = min(growth, prompt + answer - shared(key[1], last[1], least))
        if piece and size + growth > max_tokens:
            yield np.array(piece)
            piece, size, growth = [], 0, prompt + answer
        piece.append(row)
        size, last = size + growth, key
    if piece:
        yield np.array(piece)


def least_shared(shape: HostShape) -> int:
    """Return how many tokens prompts must have in common to share them, on a host of that shape."""
    return MIN_SHARED_IF_LARGE if shape.is_large else MIN_SHARED


def shared(one: bytes, other: bytes, least: int) -> int:
    """Return how many tokens two prompts (their ids' bytes) begin with alike, 0 if fewer than
    ``least``."""
    if one[: least * _ID] != other[: least * _ID] or min(len(one), len(other)) < least * _ID:
        return 0
    size = min(len(one), len(other)) // _ID
    left, right = (np.frombuffer(key, dtype=np.int64, count=size) for key in (one, other))
    differs = left != right
    return int(differs.argmax()) if differs.any() else size


def taken(x: Tensor, places: Tensor) -> Tensor:
    """Return ``x[places]`` for ``x (tokens, width)``; an embedding, whose backward pass is the
    fastest on a CPU."""
    return torch.nn.functional.embedding(places, x)


_ID = 8  # bytes of a token id


class _Segments:
    """A line that grows to ``length`` places.

    ``segments`` are place, tokens, parent and tokens before it of each; ``parts`` are the ids that
    stand on the line, and the position of the first of each.
    """

    def __init__(self) -> None:
        self.segments, self.parts = list[tuple[int, int, int, int]](), list[tuple[Any, int]]()
        self._numbers, self.length = dict[tuple[int, bytes], int](), 0

    def walk(self, key: tuple[int, bytes], prompt: np.ndarray, cuts: Sequence[int] | None) -> int:
        """Return the segment with which a prompt ends, once all that it is made of stand here."""
        parent, before = -1, 0
        for cut in cuts or (len(prompt),):
            name = key[0], key[1][: cut * _ID]
            if name not in self._numbers:
                self._numbers[name] = len(self.segments)
                self.segments.append((self.length, cut - before, parent, before))
                self.append(prompt[before:cut], before)
            parent, before = self._numbers[name], cut
        return parent

    def append(self, ids: np.ndarray, position: int) -> None:
        """Append tokens."""
        self.parts.append((ids, position))
        self.length += len(ids)


def _cuts_of(keys: Sequence[tuple[int, bytes]], least: int) -> dict[tuple[int, bytes], list[int]]:
    """Return where prompts in pieces end and their pieces do, in tokens; whole prompts are left
    out."""
    order = sorted(set(keys))
    alike = [0]
    for first, second in pairwise(order):
        alike.append(shared(first[1], second[1], least) if first[0] == second[0] else 0)
    cuts = dict[tuple[int, bytes], list[int]]()
    if any(alike):
        _branch(order, alike, (0, len(order)), 0, least, cuts)
    for key, ends in cuts.items():
        if ends[-1:] != [len(key[1]) // _ID]:
            ends.append(len(key[1]) // _ID)
    return cuts


def _branch(
    order: Sequence[tuple[int, bytes]],
    alike: Sequence[int],
    span: tuple[int, int],
    depth: int,
    least: int,
    cuts: dict[tuple[int, bytes], list[int]],
) -> None:
    """Cuts prompts ``span`` of a sorted list, which are alike up to ``depth``, where those part
    that go on together for ``least`` tokens or more; ``alike`` says how many tokens each one shares
    with the one before it."""
    low, high = span
    starts = [low, *(place for place in range(low + 1, high) if alike[place] < depth + least), high]
    for start, stop in pairwise(starts):
        if stop - start > 1:
            cut = min(alike[start + 1 : stop])
            for key in order[start:stop]:
                ends = cuts.setdefault(key, [])
                if cut - (ends[-1] if ends else 0) >= least:
                    ends.append(cut)
            _branch(order, alike, (start, stop), cut, least, cuts)

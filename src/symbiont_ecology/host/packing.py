"""Rows of many owners as one line of tokens: no padding, and a prompt that rows share stands there
once.

Everything in a transformer but attention treats tokens one by one, so tokens of all rows can stand
end to end, owner after owner. Rows of one owner with the same prompt (samples of one question,
lessons drawn from them) read it once: their answers attend to the same keys. Attention sees the
line as ``stretches``, or as rectangles (``rectangles``), which is what torch wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


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

    ``texts`` and ``row_owners`` are the rows in the caller's order. The line has prompts at
    ``starts`` with ``lengths``; ``prompt_of (rows,)`` is each row's, ``answer_starts`` and
    ``answer_lengths`` are its answer. ``ids`` and ``positions`` are ``(tokens,)``; ``owners`` stand
    in ascending order with ``counts`` tokens each. ``ends`` are the places from which something is
    predicted, the prompts' last tokens and all answer tokens, ``end_counts`` of each owner;
    ``predicts`` picks out of them, row by row, the one after the prompt and those of the answer.
    """

    texts: Sequence[Text]
    row_owners: Sequence[int]
    starts: np.ndarray
    lengths: np.ndarray
    prompt_of: np.ndarray
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
    def prompt_starts(self) -> np.ndarray:
        """Where each row's prompt starts."""
        return np.asarray(self.starts[self.prompt_of])

    @property
    def prompt_lengths(self) -> np.ndarray:
        """How long each row's prompt is."""
        return np.asarray(self.lengths[self.prompt_of])

    @property
    def longest(self) -> int:
        """No row has more tokens."""
        return int((self.prompt_lengths + self.answer_lengths).max())

    def stretches(self, *, is_ends: bool = False) -> np.ndarray:
        """Prompts and answers as ``passes.look`` takes them, ``(stretches, 6)``; all tokens look,
        or ends."""
        has = np.flatnonzero(self.answer_lengths)
        nothing = np.zeros_like(self.starts)
        prompts = self.starts, self.lengths, nothing, nothing
        past = self.prompt_starts[has], self.prompt_lengths[has]
        answers = self.answer_starts[has], self.answer_lengths[has], *past
        start, count, *rest = (np.concatenate(pair) for pair in zip(prompts, answers, strict=True))
        first = np.concatenate([self.lengths - 1 if is_ends else nothing, np.zeros_like(has)])
        to = start + first
        if is_ends:
            to = np.searchsorted(self.ends.numpy(), to)
        return np.ascontiguousarray(np.stack([start, count, *rest, first, to], axis=1))

    def places_of_rows(self) -> np.ndarray:
        """Where each row's tokens stand in the line: ``(rows, longest)``, the last place
        repeated."""
        read, written = self.prompt_lengths[:, None], self.answer_lengths[:, None]
        spots = np.minimum(np.arange(self.longest), read + written - 1)
        prompts, answers = (
            self.prompt_starts[:, None] + spots,
            self.answer_starts[:, None] + spots - read,
        )
        return np.where(spots < read, prompts, answers)  # type: ignore[no-any-return]


def pack_texts(texts: Sequence[Text], owners: Sequence[int], device: torch.device) -> Packing:
    """Packs rows; ``owners`` has one entry per row, in any order. At least one row, no empty
    prompt."""
    prompt_of, answer_starts = np.zeros((2, len(texts)), dtype=np.int64)
    parts, starts, length = list[tuple[np.ndarray, int]](), dict[tuple[int, bytes], int](), 0
    counts, numbers = Counter[int](), dict[tuple[int, bytes], int]()
    # Owner after owner, each prompt where its first row stands.
    for row in np.argsort(np.asarray(owners), kind="stable").tolist():
        text, owner, before = texts[row], owners[row], length
        key = owner, text.prompt.tobytes()
        if key not in starts:
            starts[key], numbers[key] = length, len(numbers)
            parts.append((text.prompt, 0))
            length += len(text.prompt)
        prompt_of[row], answer_starts[row] = numbers[key], length
        parts.append((text.answer, len(text.prompt)))
        length += len(text.answer)
        counts[owner] += length - before
    answer_lengths = np.array([len(text.answer) for text in texts], dtype=np.int64)
    prompt_starts = np.array(list(starts.values()), dtype=np.int64)
    lengths = np.array([len(ids) for ids, position in parts if not position], dtype=np.int64)
    # Row by row, the place after the prompt and those of the answer.
    firsts = np.cumsum(answer_lengths + 1) - answer_lengths - 1
    predicts = np.repeat(answer_starts - 1 - firsts, answer_lengths + 1)
    predicts += np.arange(len(predicts))
    predicts[firsts] = (prompt_starts + lengths - 1)[prompt_of]
    ends = np.unique(predicts)  # in the order of the line, so that owners stay together
    borders = np.searchsorted(ends, np.cumsum([0, *counts.values()]))
    positions = np.concatenate([position + np.arange(len(ids)) for ids, position in parts])
    return Packing(
        texts=texts,
        row_owners=owners,
        starts=prompt_starts,
        lengths=lengths,
        prompt_of=prompt_of,
        answer_starts=answer_starts,
        answer_lengths=answer_lengths,
        owners=tuple(counts),
        counts=tuple(counts.values()),
        ids=torch.from_numpy(np.concatenate([ids for ids, _ in parts])).to(device),
        positions=torch.from_numpy(positions).to(device),
        ends=torch.from_numpy(ends).to(device),
        end_counts=tuple(np.diff(borders).tolist()),
        predicts=torch.from_numpy(np.searchsorted(ends, predicts)).to(device),
    )


def chunks(texts: Sequence[Text], owners: Sequence[int], max_tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in pieces of at most ``max_tokens`` packed tokens (or one row), alike rows side
    by side."""
    order = sorted(range(len(texts)), key=lambda row: (owners[row], texts[row].prompt.tobytes()))
    piece: list[int] = []
    size, last = 0, (-2, b"")
    for row in order:
        key = (owners[row], texts[row].prompt.tobytes())
        prompt, answer = len(texts[row].prompt), len(texts[row].answer)
        more = answer if key == last else prompt + answer
        if piece and size + more > max_tokens:
            yield np.array(piece)
            piece, size, more = [], 0, prompt + answer
        piece.append(row)
        size, last = size + more, key
    if piece:
        yield np.array(piece)


def taken(x: Tensor, places: Tensor) -> Tensor:
    """``x[places]`` for ``x (tokens, width)``; an embedding, whose backward pass is the fastest on
    a CPU."""
    return torch.nn.functional.embedding(places, x)

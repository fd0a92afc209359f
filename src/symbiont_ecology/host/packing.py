"""Rows of many owners as one line of tokens: no padding, and a prompt that rows share stands there once.

Everything in a transformer but attention treats tokens one by one, so tokens of all rows can stand end to
end, owner after owner. Rows of one owner with the same prompt (samples of one question, lessons drawn from
them) read it once: their answers attend to the same keys. Attention alone wants rectangles: prompts of about
one length, with their answers, form a group, which knows where each place of its rectangles stands in the
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

WORTH_PARTING, WORTH_A_CALL = 0.75, 8192
"""Prompts this much shorter than the longest attend apart if that saves so many pairs of tokens."""


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
class Group:
    """Prompts of about one length and the rows that begin with them, as rectangles of places in the line.

    ``prompts (prompts, longest)`` and ``answers (rows, longest)`` repeat the last place of a short one behind
    it; ``rows`` says which of the packing's texts these are, ``prompt_of (rows,)`` is each one's prompt in
    this group.
    """

    rows: Tensor | slice
    prompts: Tensor
    lengths: Tensor  # of the prompts
    prompt_of: Tensor
    answers: Tensor
    is_plain: bool  # whether row i begins with prompt i

    @property
    def has_answers(self) -> bool:
        """Whether any row has an answer."""
        return self.answers.shape[1] > 0

    @property
    def longest(self) -> int:
        """No row has more tokens."""
        return int(self.prompts.shape[1] + self.answers.shape[1])

    def by_row(self, x: Tensor) -> Tensor:
        """Each row's entry of something that there is per prompt, ``(prompts, …)`` to ``(rows, …)``."""
        return x if self.is_plain else x[self.prompt_of]

    def answer_mask(self, dtype: torch.dtype) -> Tensor:
        """What answers may see: ``(rows, 1, longest answer, longest prompt + longest answer)``, additive."""
        rows, time = self.answers.shape
        spots = torch.arange(self.prompts.shape[1], device=self.lengths.device)
        sees_prompt = spots < self.by_row(self.lengths)[:, None]
        sees_answer = torch.ones(time, time, dtype=torch.bool, device=self.lengths.device).tril()
        sees = torch.cat(
            [sees_prompt[:, None].expand(rows, time, -1), sees_answer.expand(rows, time, time)], dim=-1
        )
        return _additive(sees, dtype)[:, None]

    def end_mask(self, dtype: torch.dtype) -> Tensor:
        """What the prompts' last tokens may see of them: ``(prompts, 1, 1, longest prompt)``, additive."""
        spots = torch.arange(self.prompts.shape[1], device=self.lengths.device)
        return _additive(spots < self.lengths[:, None], dtype)[:, None, None]


@dataclass(frozen=True)
class Packing:
    """Tokens of some texts, owner after owner. Index tensors are int64 and live on the host's device.

    ``texts`` and ``row_owners`` are the rows in the caller's order; the prompt and the answer of each start
    at ``prompt_starts`` and ``answer_starts`` in the line. ``ids`` and ``positions`` are ``(tokens,)``;
    ``owners`` stand in ascending order with ``counts`` tokens each. ``ends`` are the places from which
    something is predicted, the prompts' last tokens and all answer tokens, ``end_counts`` of each owner;
    ``predicts`` picks out of them, row by row, the one after the prompt and those of the answer.
    """

    texts: Sequence[Text]
    row_owners: Sequence[int]
    prompt_starts: np.ndarray
    answer_starts: np.ndarray
    owners: tuple[int, ...]
    counts: tuple[int, ...]
    ids: Tensor
    positions: Tensor
    groups: tuple[Group, ...]
    ends: Tensor
    end_counts: tuple[int, ...]
    predicts: Tensor
    _back: Tensor
    _ends_back: Tensor

    @property
    def longest(self) -> int:
        """No row has more tokens."""
        return max(group.longest for group in self.groups)

    def packed(self, rectangles: Sequence[Tensor]) -> Tensor:
        """The line ``(tokens, width)`` from the groups' prompts and answers, ``(…, longest, width)``."""
        return taken(_stacked(rectangles), self._back)

    def packed_ends(self, rectangles: Sequence[Tensor]) -> Tensor:
        """The line at ``ends`` alone; here a group's prompts are ``(prompts, 1, width)``."""
        return taken(_stacked(rectangles), self._ends_back)

    def places_of_rows(self) -> np.ndarray:
        """Where each row's tokens stand in the line: ``(rows, longest)``, the last place repeated."""
        lengths = np.array([(len(text.prompt), len(text.answer)) for text in self.texts])
        spots = np.minimum(np.arange(lengths.sum(1).max()), lengths.sum(1, keepdims=True) - 1)
        answered = spots - lengths[:, :1]
        return np.where(  # type: ignore[no-any-return]
            answered < 0, self.prompt_starts[:, None] + spots, self.answer_starts[:, None] + answered
        )


@dataclass
class _Line:
    """Tokens as they come to stand, prompts numbered in their order."""

    ids: list[np.ndarray]
    positions: list[np.ndarray]
    counts: dict[int, int]
    prompt_of: np.ndarray
    answer_starts: np.ndarray
    prompt_starts: list[int] = field(default_factory=list)
    prompt_lengths: list[int] = field(default_factory=list)
    length: int = 0

    @classmethod
    def of(cls, texts: Sequence[Text], owners: Sequence[int]) -> _Line:
        """Owner after owner, each prompt where its first row stands."""
        line = cls([], [], {}, np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.int64))
        found: dict[tuple[int, bytes], int] = {}
        for row in np.argsort(np.asarray(owners), kind="stable").tolist():
            text, owner, before = texts[row], owners[row], line.length
            key = (owner, text.prompt.tobytes())
            if key not in found:
                found[key] = len(line.prompt_starts)
                line.prompt_starts.append(line.length)
                line.prompt_lengths.append(len(text.prompt))
                line.append(text.prompt, 0)
            line.prompt_of[row], line.answer_starts[row] = found[key], line.length
            line.append(text.answer, len(text.prompt))
            line.counts[owner] = line.counts.get(owner, 0) + line.length - before
        return line

    def append(self, ids: np.ndarray, position: int) -> None:
        """Some tokens, the first of which has this position in its row."""
        self.ids.append(ids)
        self.positions.append(position + np.arange(len(ids)))
        self.length += len(ids)


def pack(texts: Sequence[Text], owners: Sequence[int], device: torch.device) -> Packing:
    """Packs rows; ``owners`` has one entry per row, in any order. At least one row, no empty prompt."""
    line = _Line.of(texts, owners)
    starts, lengths = np.array(line.prompt_starts), np.array(line.prompt_lengths)
    answer_lengths = np.array([len(text.answer) for text in texts], dtype=np.int64)

    def tensor(values: np.ndarray) -> Tensor:
        """On the host's device."""
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

    # Where each place of the line stands among the groups' rectangles, and where among their ends.
    back, end_back = np.zeros((2, line.length), dtype=np.int64)
    groups, size, end_size = [], 0, 0
    for members in _alike(lengths):
        number = np.full(len(lengths), -1)
        number[members] = np.arange(len(members))
        rows = np.flatnonzero(number[line.prompt_of] >= 0)
        prompts, is_prompt = _rectangle(starts[members], lengths[members])
        answer_starts = np.minimum(line.answer_starts[rows], line.length - 1)
        answers, is_answer = _rectangle(answer_starts, answer_lengths[rows])
        back[prompts[is_prompt]] = size + np.flatnonzero(is_prompt)
        back[answers[is_answer]] = size + prompts.size + np.flatnonzero(is_answer)
        end_back[starts[members] + lengths[members] - 1] = end_size + np.arange(len(members))
        end_back[answers[is_answer]] = end_size + len(members) + np.flatnonzero(is_answer)
        size, end_size = size + prompts.size + answers.size, end_size + len(members) + answers.size
        prompt_of = number[line.prompt_of[rows]]
        is_plain = len(rows) == len(members) and bool((prompt_of == np.arange(len(rows))).all())
        groups.append(
            Group(
                slice(None) if len(rows) == len(texts) else tensor(rows),
                tensor(prompts),
                tensor(lengths[members]),
                tensor(prompt_of),
                tensor(answers),
                is_plain,
            )
        )
    # Ends in the order of the line, so that owners stay together.
    is_end = np.zeros(line.length, dtype=bool)
    is_end[starts + lengths - 1] = True
    for start, count in zip(line.answer_starts, answer_lengths, strict=True):
        is_end[start : start + count] = True
    rank, ends = np.cumsum(is_end) - 1, np.flatnonzero(is_end)
    predicts = [
        rank[np.concatenate([[last], start + np.arange(count)])]
        for last, start, count in zip(
            (starts + lengths - 1)[line.prompt_of], line.answer_starts, answer_lengths, strict=True
        )
    ]
    borders = np.searchsorted(ends, np.cumsum([0, *line.counts.values()]))
    return Packing(
        texts,
        owners,
        starts[line.prompt_of],
        line.answer_starts,
        tuple(line.counts),
        tuple(line.counts.values()),
        tensor(np.concatenate(line.ids)),
        tensor(np.concatenate(line.positions)),
        tuple(groups),
        tensor(ends),
        tuple(np.diff(borders).tolist()),
        tensor(np.concatenate(predicts)),
        tensor(back),
        tensor(end_back[ends]),
    )


def chunks(texts: Sequence[Text], owners: Sequence[int], max_tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in pieces of at most ``max_tokens`` packed tokens (or one row), alike rows side by side."""
    order = sorted(range(len(texts)), key=lambda row: (owners[row], texts[row].prompt.tobytes()))
    piece: list[int] = []
    size, last = 0, (-2, b"")
    for row in order:
        key = (owners[row], texts[row].prompt.tobytes())
        prompt, answer = len(texts[row].prompt), len(texts[row].answer)
        more = answer + (prompt if key != last else 0)
        if piece and size + more > max_tokens:
            yield np.array(piece)
            piece, size, more = [], 0, prompt + answer
        piece.append(row)
        size, last = size + more, key
    if piece:
        yield np.array(piece)


def taken(x: Tensor, places: Tensor) -> Tensor:
    """``x[places]`` for ``x (tokens, width)``; an embedding, whose backward pass is the fastest on a CPU."""
    return torch.nn.functional.embedding(places, x)


def _stacked(rectangles: Sequence[Tensor]) -> Tensor:
    if len(rectangles) == 1:
        return rectangles[0].flatten(0, 1)
    return torch.cat([one.flatten(0, 1) for one in rectangles])


def _alike(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Rows in groups of about one length, so that attention, whose work is its square, pads little."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        longest = lengths[order[0]]
        is_short = lengths[order] <= WORTH_PARTING * longest
        saved = (longest**2 - lengths[order] ** 2)[is_short].sum()
        stop = int(is_short.argmax()) if saved >= WORTH_A_CALL else len(order)
        yield np.sort(order[:stop])
        order = order[stop:]


def _rectangle(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places ``start, start + 1, …`` row by row, the last one repeated, and which of them are real."""
    spots = np.arange(int(lengths.max(initial=0)))
    is_real = spots < lengths[:, None]
    return starts[:, None] + np.minimum(spots, np.maximum(lengths[:, None] - 1, 0)), is_real


def _additive(sees: Tensor, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(sees.shape, device=sees.device, dtype=dtype)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)

"""Rows of many owners as one line of tokens: no padding, and a prompt that rows share stands there once.

Everything in a transformer but attention treats tokens one by one, so tokens of all rows can stand end to
end, owner after owner. Rows of one owner with the same prompt (samples of one question, lessons drawn from
them) read it once: their answers attend to the same keys. Attention alone wants rectangles; ``prompts`` and
``answers`` say where each of their places stands in the line.
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
class Packing:
    """Tokens of some texts, owner after owner. Index tensors are int64 and live on the host's device.

    ``texts`` and ``row_owners`` are the rows in the caller's order. ``ids`` and ``positions`` are
    ``(tokens,)``; ``owners`` are ascending and have ``counts`` tokens each. ``prompts (prompts, longest)``
    and ``answers (rows, longest)`` hold places in the line (behind a short one its own last place again);
    ``prompt_of (rows,)`` is each row's prompt, ``groups`` are prompts of about one length and that length.
    ``ends`` are the places from which something is predicted, the prompts' last tokens and all answer
    tokens, ``end_counts`` of each owner; ``predicts`` picks out of them, row by row, the one after the
    prompt and those of the answer.
    """

    texts: Sequence[Text]
    row_owners: Sequence[int]
    owners: tuple[int, ...]
    counts: tuple[int, ...]
    ids: Tensor
    positions: Tensor
    prompts: Tensor
    prompt_lengths: Tensor
    prompt_of: Tensor
    groups: tuple[tuple[Tensor, int], ...]
    answers: Tensor
    ends: Tensor
    end_counts: tuple[int, ...]
    predicts: Tensor
    _back: Tensor
    _ends_back: Tensor
    _is_plain: bool

    @property
    def longest(self) -> int:
        """No row has more tokens."""
        return int(self.prompts.shape[1] + self.answers.shape[1])

    def unpacked(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rectangles ``(prompts, longest, …)`` and ``(rows, longest, …)`` of ``x (tokens, …)``."""
        has_answers = self.answers.shape[1] > 0
        return _taken(x, self.prompts), _taken(x, self.answers) if has_answers else None

    def packed(self, prompts: Tensor, answers: Tensor | None) -> Tensor:
        """The line ``(tokens, width)`` from rectangles as ``unpacked`` gives them."""
        return torch.nn.functional.embedding(self._back, _stacked(prompts, answers))

    def packed_ends(self, prompts: Tensor, answers: Tensor | None) -> Tensor:
        """The line at ``ends`` alone, from ``(prompts, 1, width)`` and ``(rows, longest, width)``."""
        return torch.nn.functional.embedding(self._ends_back, _stacked(prompts, answers))

    def places_of_rows(self) -> Tensor:
        """Where each row's tokens stand in the line: ``(rows, longest)``, prompt and answer without a gap."""
        lengths = self.prompt_lengths[self.prompt_of, None]
        spots = torch.arange(self.longest, device=self.ids.device).expand(len(self.prompt_of), -1)
        prompts = self.prompts[self.prompt_of].gather(1, spots.clamp(max=self.prompts.shape[1] - 1))
        if not self.answers.shape[1]:
            return prompts
        answers = self.answers.gather(1, (spots - lengths).clamp(0, self.answers.shape[1] - 1))
        return torch.where(spots < lengths, prompts, answers)

    def by_row(self, x: Tensor) -> Tensor:
        """Each row's entry of something that there is per prompt, ``(prompts, …)`` to ``(rows, …)``."""
        return x if self._is_plain else x[self.prompt_of]

    def answer_mask(self, dtype: torch.dtype) -> Tensor:
        """What answers may see: ``(rows, 1, longest answer, longest prompt + longest answer)``, additive."""
        rows, time = self.answers.shape
        spots = torch.arange(self.prompts.shape[1], device=self.ids.device)
        sees_prompt = spots < self.by_row(self.prompt_lengths)[:, None]
        sees_answer = torch.ones(time, time, dtype=torch.bool, device=self.ids.device).tril()
        sees = torch.cat(
            [sees_prompt[:, None].expand(rows, time, -1), sees_answer.expand(rows, time, time)], dim=-1
        )
        return _additive(sees, dtype)[:, None]

    def end_mask(self, dtype: torch.dtype) -> Tensor:
        """What the prompts' last tokens may see of them: ``(prompts, 1, 1, longest prompt)``, additive."""
        spots = torch.arange(self.prompts.shape[1], device=self.ids.device)
        return _additive(spots < self.prompt_lengths[:, None], dtype)[:, None, None]


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
    prompts, is_prompt = _rectangle(starts, lengths)
    answers, is_answer = _rectangle(np.minimum(line.answer_starts, line.length - 1), answer_lengths)
    back = np.zeros(line.length, dtype=np.int64)
    back[prompts[is_prompt]] = np.flatnonzero(is_prompt)
    back[answers[is_answer]] = is_prompt.size + np.flatnonzero(is_answer)
    # Ends in the order of the line, so that owners stay together.
    ends = np.concatenate([starts + lengths - 1, answers[is_answer]])
    ends_back = np.concatenate([np.arange(len(lengths)), len(lengths) + np.flatnonzero(is_answer)])
    order = np.argsort(ends)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    before_row = len(lengths) + np.cumsum(answer_lengths) - answer_lengths
    predicts = [
        rank[np.concatenate([[prompt], start + np.arange(count)])]
        for prompt, start, count in zip(line.prompt_of, before_row, answer_lengths, strict=True)
    ]
    borders = np.searchsorted(ends[order], np.cumsum([0, *line.counts.values()]))

    def tensor(values: np.ndarray) -> Tensor:
        """On the host's device."""
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)

    return Packing(
        texts,
        owners,
        tuple(line.counts),
        tuple(line.counts.values()),
        tensor(np.concatenate(line.ids)),
        tensor(np.concatenate(line.positions)),
        tensor(prompts),
        tensor(lengths),
        tensor(line.prompt_of),
        tuple((tensor(members), int(lengths[members].max())) for members in _alike(lengths)),
        tensor(answers),
        tensor(ends[order]),
        tuple(np.diff(borders).tolist()),
        tensor(np.concatenate(predicts)),
        tensor(back),
        tensor(ends_back[order]),
        len(lengths) == len(texts) and bool((line.prompt_of == np.arange(len(texts))).all()),
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


def _alike(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Rows in groups of about one length, so that attention, whose work is its square, pads little."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        longest = lengths[order[0]]
        is_short = lengths[order] <= WORTH_PARTING * longest
        saved = (longest**2 - lengths[order] ** 2)[is_short].sum()
        stop = int(is_short.argmax()) if saved >= WORTH_A_CALL else len(order)
        yield order[:stop]
        order = order[stop:]


def _rectangle(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places ``start, start + 1, …`` row by row, the last one repeated, and which of them are real."""
    spots = np.arange(int(lengths.max(initial=0)))
    is_real = spots < lengths[:, None]
    return starts[:, None] + np.minimum(spots, np.maximum(lengths[:, None] - 1, 0)), is_real


def _stacked(prompts: Tensor, answers: Tensor | None) -> Tensor:
    flat = prompts.flatten(0, 1)
    return flat if answers is None else torch.cat([flat, answers.flatten(0, 1)])


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """``x[places]`` for ``x (tokens, width)``; an embedding, whose backward pass is the fastest on a CPU."""
    return torch.nn.functional.embedding(places, x)


def _additive(sees: Tensor, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(sees.shape, device=sees.device, dtype=dtype)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)

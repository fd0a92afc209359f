"""Prompts and answers of a packed line as the rectangles that torch's attention takes.

Prompts of about one length, with their answers, form a group, so that nothing is as wide as the
longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.model.packing import Packing, taken

WORTH_PARTING, WORTH_A_CALL = 0.75, 8192
"""Prompts this much shorter than the longest attend apart if that saves so many pairs of tokens."""


@dataclass(frozen=True)
class Group:
    """Prompts of about one length and the rows that begin with them, as rectangles of places in the
    line.

    ``prompts (prompts, longest)`` and ``answers (rows, longest)`` repeat the last place of a short
    one behind it; ``rows`` says which of the packing's texts these are, ``prompt_of (rows,)`` is
    each one's prompt in this group.
    """

    is_plain: bool  # whether row i begins with prompt i
    rows: Tensor | slice
    prompts: Tensor
    lengths: Tensor  # of the prompts
    prompt_of: Tensor
    answers: Tensor

    @property
    def has_answers(self) -> bool:
        """Whether any row has an answer."""
        return self.answers.shape[1] > 0

    @property
    def longest(self) -> int:
        """No row has more tokens."""
        return int(self.prompts.shape[1] + self.answers.shape[1])

    def by_row(self, x: Tensor) -> Tensor:
        """Each row's entry of something that there is per prompt, ``(prompts, …)`` to
        ``(rows, …)``."""
        return x if self.is_plain else x[self.prompt_of]

    def answer_mask(self, dtype: torch.dtype) -> Tensor:
        """What answers may see: ``(rows, 1, longest answer, longest prompt + longest answer)``,
        additive."""
        rows, time = self.answers.shape
        spots = torch.arange(self.prompts.shape[1], device=self.lengths.device)
        sees_prompt = spots < self.by_row(self.lengths)[:, None]
        sees_answer = torch.ones(time, time, dtype=torch.bool, device=self.lengths.device).tril()
        sees = torch.cat(
            [sees_prompt[:, None].expand(rows, time, -1), sees_answer.expand(rows, time, time)],
            dim=-1,
        )
        return _additive(sees, dtype)[:, None]

    def end_mask(self, dtype: torch.dtype) -> Tensor:
        """What the prompts' last tokens may see of them: ``(prompts, 1, 1, longest prompt)``,
        additive."""
        spots = torch.arange(self.prompts.shape[1], device=self.lengths.device)
        return _additive(spots < self.lengths[:, None], dtype)[:, None, None]


@dataclass(frozen=True)
class Rectangles:
    """All groups of a packing, and the way back into the line."""

    groups: tuple[Group, ...]
    _back: Tensor
    _ends_back: Tensor

    @classmethod
    def of(cls, packing: Packing) -> Rectangles:
        """Groups in the order of falling lengths."""
        device, tokens = packing.ids.device, len(packing.ids)
        # Where each place of the line stands among the groups' rectangles, and where among their
        # ends.
        back, end_back = np.zeros((2, tokens), dtype=np.int64)
        groups, size, end_size = [], 0, 0
        for members in alike(packing.lengths):
            number = np.full(len(packing.lengths), -1)
            number[members] = np.arange(len(members))
            rows = np.flatnonzero(number[packing.prompt_of] >= 0)
            starts, lengths = packing.starts[members], packing.lengths[members]
            prompts, is_prompt = _rectangle(starts, lengths)
            answer_starts = np.minimum(packing.answer_starts[rows], tokens - 1)
            answers, is_answer = _rectangle(answer_starts, packing.answer_lengths[rows])
            back[prompts[is_prompt]] = size + np.flatnonzero(is_prompt)
            back[answers[is_answer]] = size + prompts.size + np.flatnonzero(is_answer)
            end_back[starts + lengths - 1] = end_size + np.arange(len(members))
            end_back[answers[is_answer]] = end_size + len(members) + np.flatnonzero(is_answer)
            size += prompts.size + answers.size
            end_size += len(members) + answers.size
            prompt_of = number[packing.prompt_of[rows]]
            is_plain = np.array_equal(prompt_of, np.arange(len(members)))
            indices, *tensors = (
                torch.from_numpy(places).to(device)
                for places in (rows, prompts, lengths, prompt_of, answers)
            )
            has_all = len(rows) == len(packing.texts)
            groups.append(Group(is_plain, slice(None) if has_all else indices, *tensors))
        back_at, end_back_at = (torch.from_numpy(places).to(device) for places in (back, end_back))
        return cls(tuple(groups), back_at, end_back_at[packing.ends])

    def packed(self, rectangles: Sequence[Tensor]) -> Tensor:
        """The line ``(tokens, width)`` from the groups' prompts and answers,
        ``(…, longest, width)``."""
        return taken(_stacked(rectangles), self._back)

    def packed_ends(self, rectangles: Sequence[Tensor]) -> Tensor:
        """The line at its ends alone; here a group's prompts are ``(prompts, 1, width)``."""
        return taken(_stacked(rectangles), self._ends_back)


def alike(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Numbers of rows in groups of about one length, so that attention, whose work is its square,
    pads little."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        longest = lengths[order[0]]
        is_short = lengths[order] <= WORTH_PARTING * longest
        saving = (longest**2 - lengths[order] ** 2)[is_short].sum()
        stop = int(is_short.argmax()) if saving >= WORTH_A_CALL else len(order)
        yield np.sort(order[:stop])
        order = order[stop:]


def _rectangle(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places ``start, start + 1, …`` row by row, the last one repeated, and which of them are
    real."""
    spots = np.arange(int(lengths.max(initial=0)))
    is_real = spots < lengths[:, None]
    return starts[:, None] + np.minimum(spots, np.maximum(lengths[:, None] - 1, 0)), is_real


def _stacked(rectangles: Sequence[Tensor]) -> Tensor:
    if len(rectangles) == 1:
        return rectangles[0].flatten(0, 1)
    return torch.cat([part.flatten(0, 1) for part in rectangles])


def _additive(sees: Tensor, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(sees.shape, device=sees.device, dtype=dtype)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)

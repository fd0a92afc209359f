"""Torch's attention on a line whose prompts are in pieces: a piece looks at all that is before it.

A stretch's queries and all that they may see form a row of a rectangle, stretches of about one
length a rectangle. Keys that many rows see are copied for each, so when learning nothing of it is
kept: the backward pass makes it again, which costs next to nothing beside the host's products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.model.backend.attention import (
    AttentionSpec,
    PackedAttention,
    apply_rotary,
    attention,
)
from symbiont_ecology.model.backend.rectangles import alike
from symbiont_ecology.model.packing import Packing, places_of, taken


@dataclass(frozen=True)
class _Rectangle:
    """Stretches of about one length: places on the line of those that look ``(stretches, most)``
    and of those that are seen ``(stretches, longest)``, the last one repeated; ``first (stretches,
    1)`` is the position of the first that looks, ``is_plain`` says that everyone looks and sees all
    before it."""

    looking: Tensor
    seen: Tensor
    first: Tensor
    is_plain: bool

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """What may be seen, ``(stretches, 1, most, longest)``, additive; None is causal."""
        longest = self.seen.shape[1]
        if self.is_plain and (window is None or longest <= window):
            return None
        spots = torch.arange(longest, device=self.seen.device)
        positions = self.first + torch.arange(self.looking.shape[1], device=self.seen.device)
        ages = positions[:, :, None] - spots
        is_hidden = ages < 0 if window is None else (ages < 0) | (ages >= window)
        mask = torch.zeros(ages.shape, device=ages.device, dtype=dtype)
        return mask.masked_fill_(is_hidden, torch.finfo(dtype).min)[:, None]


@dataclass(frozen=True)
class BranchAttention(PackedAttention):
    """By torch's own attention, in rectangles of stretches."""

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """As ``PackedAttention``."""
        spec = self.specs[layer]
        border = heads.shape[1] - spec.kv_heads
        rotated = apply_rotary(heads[:, :border], spec, self.packing.positions)
        rotated, values = self.behind_kept(layer, rotated, heads[:, border:])
        if self.states is not None:
            keys = rotated[:, border - spec.kv_heads :]
            for target, source in zip(self.states[layer], (keys, values), strict=True):
                target[:, :, : self._prompts.shape[1]] = source[self._prompts].transpose(1, 2)
        is_narrow = self.is_narrow(layer)
        look = partial(self._look, spec, is_narrow)
        if torch.is_grad_enabled():
            out: Tensor = _Recomputed.apply(look, rotated, values)  # type: ignore[no-untyped-call]
            return out
        return look(rotated, values)

    def _look(
        self, spec: AttentionSpec, is_narrow: bool, rotated: Tensor, values: Tensor
    ) -> Tensor:
        rectangles, order = self._narrow if is_narrow else self._wide
        size, kv_heads = rotated.shape[2], spec.kv_heads
        queries, keys = rotated.tensor_split((rotated.shape[1] - kv_heads,), dim=1)
        parts = [part.flatten(1) for part in (queries, keys, values)]
        outputs = []
        for rectangle in rectangles:
            places = rectangle.looking, rectangle.seen, rectangle.seen
            q, k, v = (
                taken(part, place).view(*place.shape, -1, size).transpose(1, 2)
                for part, place in zip(parts, places, strict=True)
            )
            mask = rectangle.mask(spec.window, q.dtype)
            outputs.append(attention(q, k, v, mask, spec.scale).flatten(0, 1))
        return taken(torch.cat(outputs), order)

    @cached_property
    def _prompts(self) -> Tensor:
        return torch.from_numpy(self.packing.places_of_prompts()).to(self.packing.ids.device)

    @cached_property
    def _wide(self) -> tuple[list[_Rectangle], Tensor]:
        return _rectangles(self.packing, is_narrow=False)

    @cached_property
    def _narrow(self) -> tuple[list[_Rectangle], Tensor]:
        return _rectangles(self.packing, is_narrow=True)


class _Recomputed(torch.autograd.Function):
    """A function of two tensors that keeps nothing but them, and is computed again going back.

    ``torch.utils.checkpoint`` does it for everything that there is, random numbers and casts
    included. Its first call imports a compiler, for more than a second.
    """

    @staticmethod
    def forward(
        ctx: Any, function: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor
    ) -> Tensor:
        """What the function makes of them."""
        ctx.save_for_backward(one, other)
        ctx.function = function
        return function(one, other)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        """Gradients of both."""
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            first, second = torch.autograd.grad(ctx.function(*inputs), inputs, gradient)
        return None, first, second


def _rectangles(packing: Packing, *, is_narrow: bool) -> tuple[list[_Rectangle], Tensor]:
    """All stretches that look, and where among their rectangles each looking token of the line
    is."""
    stretches, device = packing.stretches(is_ends=is_narrow), packing.ids.device
    lengths = stretches["count"] - stretches["first"]  # of what looks
    back, rectangles, size = np.zeros(int(lengths.sum()), dtype=np.int64), [], 0
    for members in _groups(stretches):
        group, length, numbers = stretches[members], lengths[members], np.arange(len(members))
        firsts = group["start"] + group["first"]
        own = np.stack([numbers, np.zeros_like(numbers), firsts, length], axis=1)
        looking = places_of(own, length)
        columns = np.arange(looking.shape[1])
        is_real = columns < length[:, None]
        back[(group["to"][:, None] + columns)[is_real]] = size + np.flatnonzero(is_real)
        size += looking.size
        seen = places_of(_paths(stretches, group), group["before"] + group["count"])
        positions = (group["before"] + group["first"])[:, None]
        is_plain = not positions.any() and looking.shape[1] == seen.shape[1]
        query_places, key_places, first_positions = (
            torch.from_numpy(part).to(device) for part in (looking, seen, positions)
        )
        rectangles.append(_Rectangle(query_places, key_places, first_positions, is_plain))
    return rectangles, torch.from_numpy(back).to(device)


def _groups(stretches: np.ndarray) -> Iterator[np.ndarray]:
    """Numbers of those that look: the beginnings of prompts and what stands behind others apart,
    either in groups of about one length."""
    lengths, is_root = stretches["count"] - stretches["first"], stretches["parent"] < 0
    for kind in (is_root, ~is_root):
        numbers = np.flatnonzero(kind & (lengths > 0))
        for members in alike(lengths[numbers]):
            yield numbers[members]


def _paths(stretches: np.ndarray, members: np.ndarray) -> np.ndarray:
    """What some stretches see, in pieces as ``Packing.pieces``."""
    rows, pieces = np.arange(len(members)), list[np.ndarray]()
    while len(rows):
        parts = rows, members["before"], members["start"], members["count"]
        pieces.append(np.stack(parts, axis=1))
        is_behind = members["parent"] >= 0
        rows, members = rows[is_behind], stretches[members["parent"][is_behind]]
    return np.concatenate(pieces)

"""Attention on a packed line: its norm, its rotary embedding, and how torch computes it.

Tokens that look, and all that they may see, form a row of a rectangle, which is what torch wants.
Rows of about one length form one rectangle, so that nothing is as wide as the longest. In a line
whose prompts are in pieces, a piece looks at all that is before it. Keys that many rows see are
then copied for each, so when learning nothing of it is kept: the backward pass makes it again,
which costs next to nothing beside the host's products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from symbiont_ecology.model.packing import Packing, places_of, places_seen, taken

SHORT, WORTH_A_CALL = 0.75, 8192
"""Prompts so much shorter than the longest attend apart if that saves so many pairs of tokens."""
NEVER_SEEN = 1 << 40
"""Position of a place that fills a gap."""


class RMSNorm:
    """Root mean square norm over the last dimension (arXiv:1910.07467), in few operations on a CPU.

    It multiplies by ``offset`` + weight. It computes in the precision of its weight and returns
    that of its input.
    """

    def __init__(self, weight: Tensor, eps: float, offset: float = 0.0) -> None:
        if offset:  # in single precision: half precision would round 1 + weight
            weight = weight.float() + offset
        self.weight, self.eps = weight, eps
        self._scaled = weight * weight.shape[-1] ** 0.5
        self._floor = weight.new_tensor((weight.shape[-1] * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x (…, width)``, or ``(…, heads, width)`` with a weight for every head."""
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            normed = F.rms_norm(x.to(self.weight.dtype), x.shape[-1:], None, self.eps)
            return (normed * self.weight).to(x.dtype)
        # x / sqrt(|x|² / n + eps), with the square root of n in the weight.
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)
        return torch.div(x, size).mul_(self._scaled)


@dataclass(frozen=True)
class AttentionSpec:
    """Parts of the attention of one layer.

    ``norm`` is of queries and keys, if they are normed (Qwen3), ``window`` how many tokens are seen
    (None: all). ``table (2, positions, head_dim)`` are cosines and sines of positions, the first
    half of the latter negated. Scores are multiplied by ``scale``.
    """

    norm: RMSNorm | None
    window: int | None
    table: Tensor
    scale: float
    kv_heads: int


@dataclass(frozen=True)
class PackedAttention(ABC):
    """Attention on a packed line. Keys and values of the prompts go into ``states``, those of a
    cache, if they are given. In the last layer the ends alone look."""

    packing: Packing
    specs: Sequence[AttentionSpec]
    states: Tensor | None

    def is_narrow(self, layer: int) -> bool:
        """Return True if the ends alone look in this layer."""
        return layer == len(self.specs) - 1

    @abstractmethod
    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """Return what tokens see in a layer, ``(tokens or ends, all query heads · head_dim)``;
        ``heads`` as in ``Cache``."""


def apply_rotary(x: Tensor, spec: AttentionSpec, positions: Tensor) -> Tensor:
    """Heads ``(tokens, heads, head_dim)`` normed (Qwen3) and rotated by their positions
    ``(tokens,)`` (arXiv:2104.09864)."""
    cosines, sines = spec.table.index_select(1, positions)[:, :, None]
    if spec.norm is not None:
        x = spec.norm(x)
    half = x.shape[-1] // 2
    return torch.addcmul(x * cosines, torch.cat((x[..., half:], x[..., :half]), -1), sines)


@dataclass(frozen=True)
class Rectangle:
    """Rows of tokens: places on the line of those that look, ``(rows, most)``, and of those that
    are seen, ``(rows, longest)``, and the positions of both. What short rows lack is filled up.

    ``is_plain``: everyone looks and sees all before it.
    """

    is_plain: bool
    looking: Tensor
    seen: Tensor
    positions: Tensor
    seen_positions: Tensor

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """Return what may be seen, ``(rows, 1, most, longest)``, additive; None is causal.

        A token sees itself and the ``window - 1`` tokens before it (Longformer, arXiv:2004.05150).
        Plain causal attention is faster.
        """
        if self.is_plain and (window is None or self.seen.shape[1] <= window):
            return None
        ages = self.positions[:, :, None] - self.seen_positions[:, None]
        is_hidden = ages < 0 if window is None else (ages < 0) | (ages >= window)
        mask = torch.zeros(ages.shape, device=ages.device, dtype=dtype)
        return mask.masked_fill_(is_hidden, torch.finfo(dtype).min)[:, None]


@dataclass(frozen=True)
class RectangleAttention(PackedAttention):
    """Torch's own attention, in rectangles, whose masks are kept by narrowness and window."""

    _masks: dict[object, list[Tensor | None]] = field(default_factory=dict)

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        spec = self.specs[layer]
        border = heads.shape[1] - spec.kv_heads
        rotated = apply_rotary(heads[:, :border], spec, self.packing.positions)
        values = heads[:, border:]
        if self.states is not None:
            keys = rotated[:, border - spec.kv_heads :]
            for target, source in zip(self.states[layer], (keys, values), strict=True):
                target[:, :, : self._prompts.shape[1]] = source[self._prompts].transpose(1, 2)
        look = partial(self._look, spec, self.is_narrow(layer))
        if torch.is_grad_enabled() and self.packing.is_tree:
            out: Tensor = checkpoint(look, rotated, values, use_reentrant=False)
            return out
        return look(rotated, values)

    def _look(
        self, spec: AttentionSpec, is_narrow: bool, rotated: Tensor, values: Tensor
    ) -> Tensor:
        rectangles, order = self._rectangles[is_narrow]
        key = is_narrow, spec.window
        if key not in self._masks:
            self._masks[key] = [one.mask(spec.window, rotated.dtype) for one in rectangles]
        size = rotated.shape[2]
        kv_heads = spec.kv_heads
        queries, keys = rotated.tensor_split((rotated.shape[1] - kv_heads,), dim=1)
        parts = [part.flatten(1) for part in (queries, keys, values)]
        outputs = []
        for rectangle, mask in zip(rectangles, self._masks[key], strict=True):
            places = rectangle.looking, rectangle.seen, rectangle.seen
            q, k, v = (
                taken(part, place).view(*place.shape, -1, size).transpose(1, 2)
                for part, place in zip(parts, places, strict=True)
            )
            output = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=spec.scale, enable_gqa=True
            )
            outputs.append(output.transpose(1, 2).flatten(2).flatten(0, 1))
        return taken(torch.cat(outputs), order)

    @cached_property
    def _prompts(self) -> Tensor:
        stretches = self.packing.stretches
        prompts = places_seen(stretches, stretches[self.packing.prompt_of])
        return torch.from_numpy(prompts).to(self.packing.ids.device)

    @cached_property
    def _rectangles(self) -> list[tuple[list[Rectangle], Tensor]]:
        return [_rectangles(self.packing, is_narrow=is_narrow) for is_narrow in (False, True)]


def _rectangles(packing: Packing, *, is_narrow: bool) -> tuple[list[Rectangle], Tensor]:
    """Return rectangles of all that look, and where in them each looking token of the line is."""
    stretches = packing.looking(is_narrow=is_narrow)
    device = packing.ids.device
    lengths = stretches["count"] - stretches["first"]  # of what looks
    back = np.zeros(int(lengths.sum()), dtype=np.int64)
    rectangles = list[Rectangle]()
    size = 0
    groups = _branches if packing.is_tree else _whole_prompts
    for members, seen, seen_positions in groups(packing, stretches):
        group = stretches[members]
        length = lengths[members]
        looking = _places(group["start"] + group["first"], length)
        columns = np.arange(looking.shape[1])
        is_real = columns < length[:, None]
        back[(group["to"][:, None] + columns)[is_real]] = size + np.flatnonzero(is_real)
        size += looking.size
        positions = (group["before"] + group["first"])[:, None] + columns
        is_plain = not positions[:, 0].any() and looking.shape[1] == seen.shape[1]
        arrays = looking, seen, positions, seen_positions
        rectangles.append(
            Rectangle(is_plain, *(torch.from_numpy(array).to(device) for array in arrays))
        )
    return rectangles, torch.from_numpy(back).to(device)


def _whole_prompts(packing: Packing, stretches: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield prompts of about one length, then the answers to them, as ``_branches`` does."""
    for prompts in alike(stretches["count"][: packing.segments]):
        seen = places_seen(stretches, stretches[prompts])
        spots = np.arange(seen.shape[1])[None]
        yield prompts, seen, spots
        answers = np.flatnonzero(np.isin(stretches["parent"], prompts))
        if len(answers):
            group = stretches[answers]
            own = _places(group["start"], group["count"])
            before = group["before"][:, None]
            seen = seen[np.searchsorted(prompts, group["parent"])]
            spots = np.where(spots < before, spots, NEVER_SEEN)
            positions = np.concatenate([spots, before + np.arange(own.shape[1])], axis=1)
            yield answers, np.concatenate([seen, own], axis=1), positions


def _branches(packing: Packing, stretches: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the beginnings of prompts, then what stands behind others, of about one length each:
    numbers of stretches, the places that each of them sees, and the positions of these."""
    lengths = stretches["count"] - stretches["first"]
    is_root = stretches["parent"] < 0
    for kind in (is_root, ~is_root):
        numbers = np.flatnonzero(kind & (lengths > 0))
        for chosen in alike(lengths[numbers]):
            members = numbers[chosen]
            group = stretches[members]
            seen = places_seen(stretches, group)
            yield members, seen, np.arange(seen.shape[1])[None]


def alike(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield numbers of rows of about one length: attention, whose work is its square, pads little.

    The longest come first; numbers ascend.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        longest = lengths[order[0]]
        is_short = lengths[order] <= SHORT * longest
        saving = (longest**2 - lengths[order] ** 2)[is_short].sum()
        stop = int(is_short.argmax()) if saving >= WORTH_A_CALL else len(order)
        yield np.sort(order[:stop])
        order = order[stop:]


def _places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return places ``start, start + 1, …`` row by row, the last one repeated."""
    numbers = np.arange(len(starts))
    return places_of(np.stack([numbers, np.zeros_like(numbers), starts, counts], axis=1), counts)

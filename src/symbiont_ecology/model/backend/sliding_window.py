"""Sliding windows as additive masks: a token sees itself and the ``window - 1`` tokens before it.

Distances are those of positions in a row, not of places in a cache that has a gap behind short
prompts. Where nothing stands beyond the window there is no mask: plain causal attention is faster.
Longformer: arXiv:2004.05150; in decoders: arXiv:2310.06825 (Mistral).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from symbiont_ecology.model.backend.rectangles import Group


@dataclass(frozen=True)
class Masks:
    """What the tokens of one group may see; ``prompts`` is None where a prompt's tokens see all
    before them.

    ``prompts`` is ``(longest prompt, longest prompt)``, ``ends (prompts, 1, 1, longest prompt)``
    and ``answers (rows, 1, longest answer, longest prompt + longest answer)``.
    """

    prompts: Tensor | None
    ends: Tensor
    answers: Tensor


def masks_of(group: Group, dtype: torch.dtype, window: int | None) -> Masks:
    """The masks of a group; ``window`` None sees everything."""
    ends, answers = group.end_mask(dtype), group.answer_mask(dtype)
    if window is None or group.longest <= window:
        return Masks(None, ends, answers)
    spots, steps = (
        torch.arange(rectangle.shape[1], device=ends.device)
        for rectangle in (group.prompts, group.answers)
    )
    prompts = None
    if len(spots) > window:
        ages = spots[:, None] - spots
        prompts = _hidden(
            torch.zeros(ages.shape, dtype=dtype, device=ends.device), (ages < 0) | (ages >= window)
        )
    last = group.lengths[:, None] - 1
    ends = _hidden(ends, (last - spots >= window)[:, None, None])
    answer_positions = group.by_row(group.lengths)[:, None] + steps
    positions = torch.cat([spots.expand(len(answer_positions), -1), answer_positions], dim=1)
    ages = answer_positions[:, :, None] - positions[:, None]
    return Masks(prompts, ends, _hidden(answers, (ages >= window)[:, None]))


def windowed(mask: Tensor, window: int | None, lengths: Tensor, longest: int) -> Tensor:
    """Also hides from each row's newest token what is beyond its window.

    ``mask (rows · kv_heads, 1, places)`` covers a cache of prompts of these ``lengths (rows,)`` in
    ``longest`` places and the tokens written since.
    """
    places = mask.shape[-1]
    if window is None or places <= window:
        return mask
    spots = torch.arange(places, device=mask.device)
    new_positions = lengths[:, None] + spots - longest
    positions = torch.where(spots < longest, spots, new_positions)
    is_far = new_positions[:, -1:] - positions >= window
    return _hidden(mask, is_far.repeat_interleave(len(mask) // len(lengths), dim=0)[:, None])


def _hidden(mask: Tensor, is_hidden: Tensor) -> Tensor:
    return mask.masked_fill(is_hidden, torch.finfo(mask.dtype).min)

"""What the kernel asks of a frozen language model, however that model is computed.

Two implementations: ``llama`` (own fused forward for Llama-like hosts) and ``wrapped`` (any causal
language model of transformers, through its own forward). Both give the same tokens and log-probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, Site
from symbiont_ecology.host.shape import HostShape


class Session(Protocol):
    """A batch of half-written rows with its key-value cache."""

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token per row ``(rows,)``; returns the next logits ``(rows, vocab)``."""
        ...

    def keep(self, rows: Tensor, adapters: Adapters) -> None:
        """Goes on with these rows only, in this order, under these adapters."""
        ...


class Decoder(Protocol):
    """A frozen causal language model whose linear modules take stacked adapters.

    Rows of every call come tile by tile, as ``adapters`` lists the tiles, all of one height.
    """

    @property
    def shape(self) -> HostShape:
        """The host's sizes."""
        ...

    @property
    def sites(self) -> tuple[Site, ...]:
        """All linear modules of the decoder layers, grouped by shared input, in host order."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the base weights are."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """What the base weights are held in, and activations computed in."""
        ...

    @property
    def fan_in_fan_out(self) -> bool:
        """Whether linear weights are stored as ``(d_in, d_out)``, as in GPT-2."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Every base weight by its Hugging Face name, tied weights once."""
        ...

    def start(self, rows: Sequence[np.ndarray], adapters: Adapters, room: int) -> tuple[Tensor, Session]:
        """Reads the prompts (token ids, one array per row) with ``room`` tokens to come; first logits."""
        ...

    def logits_at(self, ids: Tensor, wanted: Tensor, is_real: Tensor, adapters: Adapters) -> Tensor:
        """Logits ``(real, vocab)`` of right-padded ``ids (rows, time)`` at some positions of each row.

        ``wanted`` and ``is_real`` are ``(rows, few)``: positions, and which of them are more than padding.
        """
        ...

    def hidden(self, ids: Tensor, adapters: Adapters) -> Tensor:
        """Last hidden states ``(rows, time, hidden)`` of right-padded ids, after the final norm."""
        ...


def pad_right(rows: Sequence[np.ndarray], device: torch.device) -> Tensor:
    """Token ids as one ``(rows, longest)`` tensor; zeros behind short rows, which no real token ever sees."""
    ids = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(ids).to(device)

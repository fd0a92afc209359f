"""The interface of a frozen language model, however it is computed.

Two implementations: ``llama`` (own fused forward for Llama-like hosts) and
``extensions.hosts.wrapped`` (any causal language model of transformers, through its own forward).
Both give the same tokens and log-probabilities.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterLayout
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.backend.bank import SlotBank
from symbiont_ecology.model.backend.lowrank import Adapters, Shares, Site
from symbiont_ecology.model.budget import MemoryBudget, if_memory_lasts
from symbiont_ecology.model.dropout import Dropout
from symbiont_ecology.model.packing import Packing


@dataclass(frozen=True)
class Prefill:
    """Prompts (token ids) to read, and the slots of their rows in ``bank``.

    They are sorted by slot and, within a slot, by prompt bytes. No row of the session will have
    more than ``room`` tokens. The budget says how many tokens go through the host at a time.
    """

    prompts: Sequence[np.ndarray]
    slots: Sequence[int]
    room: int
    bank: SlotBank
    budget: MemoryBudget


class Session(ABC):
    """A batch of half-written rows with its key-value cache.

    ``tokens_read (rows,)`` are the tokens of each prompt that no row before it had read; of the
    rows with which it began.
    """

    tokens_read: np.ndarray

    @abstractmethod
    def step(self, tokens: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        """Appends one token per row ``(rows,)``; returns the next logits ``(rows, vocab)``.

        ``adapters`` has one entry for each share of the rows.
        """

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only, in this order."""

    @abstractmethod
    def join(self, prefill: Prefill) -> Tensor:
        """Read prompts, whose rows then stand behind its own; return their first logits. If memory
        runs out, nothing has changed."""

    def admit(self, tokens: Tensor, slots: Sequence[int], prefill: Prefill) -> Tensor:
        """Step its own rows, which belong to these slots, and let those of ``prefill`` join, in one
        pass where that can be; return the logits of all. If memory runs out for new rows, its own
        go on, and their logits alone come."""
        logits = self.step(tokens, *prefill.bank.for_step(slots))
        first = if_memory_lasts(lambda: self.join(prefill))
        return logits if first is None else torch.cat([logits, first])


class Decoder(Protocol):
    """A frozen causal language model whose linear modules take stacked adapters.

    ``shape`` are the host's sizes. ``sites`` are all linear modules of the decoder layers, grouped
    by shared input, in host order. ``device`` is where the base weights are, ``dtype`` what they
    are held in and activations computed in. ``fan_in_fan_out`` says whether linear weights are
    stored as ``(d_in, d_out)``, as in GPT-2.
    """

    shape: HostShape
    sites: tuple[Site, ...]
    device: torch.device
    dtype: torch.dtype
    fan_in_fan_out: bool

    def weights(self) -> dict[str, Tensor]:
        """Return every base weight by its Hugging Face name, tied weights once."""
        ...

    def start(self, prefill: Prefill) -> tuple[Tensor, Session]:
        """Read prompts; return the first logits ``(rows, vocab)`` and the session."""
        ...

    def logits(
        self,
        packing: Packing,
        adapters: Adapters,
        dropout: Dropout | None = None,
        *,
        learns_from: int = 0,
    ) -> Tensor:
        """Return logits ``(targets, vocab)``, row by row, of the answer's tokens and the one after
        the answer.

        Gradients of layers below ``learns_from`` are not wanted, and need not be right.
        """
        ...

    def states(self, packing: Packing, layers: Sequence[int]) -> Tensor:
        """Return hidden states of the bare host at the last token of each text, behind so many
        layers: ``(texts, layers, hidden)``."""
        ...


def layout_of(decoder: Decoder, targets: Sequence[str] | None = None) -> AdapterLayout:
    """Return the adapted modules: all linear ones, or those whose name ends with one of the
    targets.

    Raises:
        HostError: no module's name ends with a target.
    """
    modules = [module for site in decoder.sites for module in site]
    if targets is None:
        return AdapterLayout(tuple(modules))
    ends_of = {
        name: [end for end in targets if f".{name}".endswith(f".{end}")] for name, _, _ in modules
    }
    unknown = set(targets) - {end for ends in ends_of.values() for end in ends}
    if unknown or not targets:
        endings = sorted({name.rsplit(".", 1)[-1] for name in ends_of})
        raise HostError(f"expected targets among {endings}, got {sorted(unknown) or 'none'}")
    return AdapterLayout(tuple(module for module in modules if ends_of[module[0]]))


def digest_of(decoder: Decoder, identity: bytes) -> str:
    """Return the hash (hex) of some bytes and of every base weight."""
    digest = hashlib.blake2b(identity, digest_size=16)
    for name, weight in sorted(decoder.weights().items()):
        digest.update(name.encode())
        numbers = weight.detach().contiguous().reshape(-1).cpu().view(torch.uint8)
        digest.update(numbers.numpy().data)
    return digest.hexdigest()


def norms_of(decoder: Decoder, layout: AdapterLayout) -> Mapping[str, float]:
    """Return ‖W‖ (Frobenius) of every adapted module's base weights, by the module's name."""
    weights = decoder.weights()
    norms = {}
    for name, _, _ in layout.modules:
        weight = weights[f"{name}.weight"].detach().float()
        scale = weights.get(f"{name}.scale")
        if scale is not None:  # of each output, where weights have eight bits
            weight = weight * scale[:, None]
        norms[name] = float(torch.linalg.vector_norm(weight))
    return norms

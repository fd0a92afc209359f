"""The compiled back end for learning: the passes of ``passes`` with their gradients.

What lies between two large products is one operation for autograd. It keeps its input and computes
the rest again. So a lesson takes less memory and time than with torch: on the embedded host six
tenths of the time. ``learning_backend_for`` chooses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.backend import backward, passes
from symbiont_ecology.host.backend.attention import AttentionSpec, PackedAttention, RMSNorm
from symbiont_ecology.host.backend.compiled import Addresses
from symbiont_ecology.host.backend.learners import Learners
from symbiont_ecology.host.backend.lowrank import Adapters, LowRankTerm, Shares, Site
from symbiont_ecology.host.backend.passes import Pointers
from symbiont_ecology.host.backend.torch_backend import Activation, TorchBackend
from symbiont_ecology.host.packing import Packing
from symbiont_ecology.weights.adapter import AdapterWeights


class VectorLearners(Learners):
    """Where their numbers lie: nothing is copied, and smaller ranks cost less."""

    def __post_init__(self) -> None:
        self._gradients = [torch.zeros(len(one.vector)) for one in self.weights]
        size = self.sites, self.layout, len(self.weights)
        self._vectors, self._slopes = Addresses(*size), Addresses(*size)
        for owner, (one, gradient) in enumerate(zip(self.weights, self._gradients, strict=True)):
            self._vectors.place(owner, one.vector.ctypes.data, one)
            self._slopes.place(owner, gradient.data_ptr(), one)
        self._inputs = _inputs_of(self.sites, self.weights[0]) if self.are_observed else []

    def adapters(self, owners: Sequence[int]) -> Adapters:
        """As ``Learners``."""
        gradients = self._slopes.of(owners, self._gradients)
        if self.are_observed:
            observed = zip(self._inputs, gradients, strict=True)
            return Adapters(tuple(to and ObservedPointers(a, to) for a, to in observed))
        factors = self._vectors.of(owners, self.weights)
        pairs = zip(factors, gradients, strict=True)
        return Adapters(tuple(one and to and LearningPointers(one, to) for one, to in pairs))

    def gradients(self) -> Iterator[Tensor]:
        """As ``Learners``."""
        yield from self._gradients


def _inputs_of(sites: Sequence[Site], weights: AdapterWeights) -> list[Tensor]:
    """A of each site's members, ``(members · rank, d_in)``, empty where there are none."""
    a = {name: factor for name, factor, _ in weights.factors()}
    none = np.zeros((0, 0), dtype=np.float32)
    adapted = [[a[name] for name, _, _ in site if name in a] or [none] for site in sites]
    return [torch.from_numpy(np.concatenate(members)) for members in adapted]


@dataclass(frozen=True)
class LearningPointers:
    """Where the factors of one site lie, and where their gradients gather."""

    factors: Pointers
    gradient: Pointers

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        """As ``LowRankTerm``; tiles are for torch."""
        assert isinstance(shares, Sequence)
        if torch.is_grad_enabled() and x.requires_grad:
            added: Tensor = _LowRank.apply(x, y, self, shares)  # type: ignore[no-untyped-call]
            return added
        return passes.add_low_rank(x, y, self.factors, shares)


@dataclass(frozen=True)
class ObservedPointers:
    """The same as ``lowrank.ObservedTerm`` where gradients gather in vectors."""

    a: Tensor
    gradient: Pointers

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        """As ``LowRankTerm``; nothing is added."""
        if y.requires_grad:
            assert isinstance(shares, Sequence)
            inner = x.detach() @ self.a.t()
            note = partial(backward.add_outer, inner, gradient=self.gradient, counts=shares)
            y.register_hook(note)  # type: ignore[no-untyped-call]
        return y


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, term: LearningPointers, counts: Sequence[int]
    ) -> Tensor:
        """``y`` with the term added, in place."""
        ctx.save_for_backward(x)
        ctx.term, ctx.counts = term, counts
        ctx.mark_dirty(y)
        return passes.add_low_rank(x, y, term.factors, counts)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Gradients of x and y; those of the factors are added where they gather."""
        (x,) = ctx.saved_tensors
        places = ctx.term.factors, ctx.term.gradient
        return backward.low_rank_back(x, dy, *places, ctx.counts), dy, None, None


class LearningAttention(PackedAttention):
    """Straight on the line; nothing is kept but what came in."""

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """As ``PackedAttention``."""
        assert self.states is None, "who learns keeps no cache"
        assert self.kept is None, "who learns reads preambles, too"
        stretches = self._narrow if self.is_narrow(layer) else self._wide
        line = self.specs[layer], self.packing.positions, stretches
        seen: Tensor = _Attended.apply(heads, *line)  # type: ignore[no-untyped-call]
        return seen

    @cached_property
    def _wide(self) -> np.ndarray:
        return self.packing.stretches()

    @cached_property
    def _narrow(self) -> np.ndarray:
        return self.packing.stretches(is_ends=True)


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: RMSNorm) -> Tensor:
        """``x (tokens, width)`` normed."""
        ctx.save_for_backward(x)
        ctx.norm = norm
        return passes.normalize(x, norm)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        """The gradient of ``x``."""
        (x,) = ctx.saved_tensors
        return backward.normalize_back(x, ctx.norm, dy), None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """``x (tokens, 2 · width)`` to ``(tokens, width)``."""
        ctx.save_for_backward(x)
        return passes.gate(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        """The gradient of ``x``."""
        (x,) = ctx.saved_tensors
        return backward.gate_back(x, dy)


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, heads: Tensor, spec: AttentionSpec, positions: Tensor, stretches: np.ndarray
    ) -> Tensor:
        """What tokens see, ``(tokens or ends, width)``."""
        ctx.save_for_backward(heads)
        ctx.line = spec, positions, stretches
        border = heads.shape[1] - spec.kv_heads
        rotated = passes.rotate(heads[:, :border], spec, positions)
        return passes.look(rotated, heads[:, border:], stretches, spec)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of ``heads``."""
        (heads,) = ctx.saved_tensors
        spec, positions, stretches = ctx.line
        border = heads.shape[1] - spec.kv_heads
        turned = passes.rotate(heads[:, :border], spec, positions)
        gradient = torch.empty_like(heads)
        line = turned, heads[:, border:], stretches, spec
        d_turned = backward.look_back(*line, dy, gradient[:, border:])
        backward.rotate_back(heads[:, :border], spec, positions, d_turned, gradient[:, :border])
        return gradient, None, None, None


def learning_backend_for(device: torch.device, dtype: torch.dtype) -> TorchBackend:
    """The fastest back end for a host with such weights where gradients are wanted."""
    return CompiledLearning() if passes.suit(device, dtype) else TorchBackend()


class CompiledLearning(TorchBackend):
    """What the compiled passes do instead of torch (see ``TorchBackend``)."""

    learners = VectorLearners

    def kind_of_attention(self, packing: Packing) -> type[PackedAttention]:
        """As ``TorchBackend``."""
        return LearningAttention

    def normalize(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """As ``TorchBackend``."""
        normed: Tensor = _Normed.apply(x, norm)  # type: ignore[no-untyped-call]
        return normed

    def gated(
        self, y: Tensor, activation: Activation, term: LowRankTerm | None, x: Tensor, shares: Shares
    ) -> Tensor:
        """As ``TorchBackend``; one pass where it can be."""
        if activation is not F.silu:
            return super().gated(y, activation, term, x, shares)
        y = y if term is None else term.add_to(y, x, shares)
        gated: Tensor = _Gated.apply(y)  # type: ignore[no-untyped-call]
        return gated

"""Adapter weights and optimizer states as immutable values: one flat vector and a layout that names
its parts.

A flat vector makes everything that treats an adapter as one thing (hashing, saving, noise,
clipping, Adam moments, copying into a slot) a single array operation. What needs matrices asks for
``factors``. Low-rank adapters: Hu et al. 2021, arXiv:2106.09685.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np


@dataclass(frozen=True)
class AdapterLayout:
    """Linear modules of a host that carry LoRA factors: ``(name, d_in, d_out)`` in host order.

    For a rank r the flat vector holds, module after module, A ``(r, d_in)`` and then Bᵀ
    ``(r, d_out)``.

    Example:
        >>> from symbiont_ecology.adapters import AdapterLayout
        >>> layout = AdapterLayout((("layers.0.q_proj", 8, 8), ("layers.0.v_proj", 8, 4)))
        >>> layout.size(rank=2)
        56
    """

    modules: tuple[tuple[str, int, int], ...]

    def size(self, rank: int) -> int:
        """Return the length of the flat vector at that rank (parameters)."""
        return rank * self.width

    @cached_property
    def width(self) -> int:
        """Parameters per unit of rank."""
        return sum(d_in + d_out for _, d_in, d_out in self.modules)

    def blocks(self, rank: int) -> Iterator[tuple[str, slice, slice, int, int]]:
        """Yield ``(name, slice of A, slice of Bᵀ, d_in, d_out)`` of every module at that rank."""
        start = 0
        for name, d_in, d_out in self.modules:
            middle, stop = start + rank * d_in, start + rank * (d_in + d_out)
            yield name, slice(start, middle), slice(middle, stop), d_in, d_out
            start = stop


Norms: TypeAlias = Mapping[str, float]
"""‖W‖ (Frobenius) of every adapted module of the host, by name."""


class Perturbation(Protocol):
    """A change of an adapter for one assignment: the organelle answers as it would be with it.

    Equal ones are equal and hash alike; ``str`` orders those of one organelle.
    """

    def of(self, centre: AdapterWeights, norms: Norms) -> AdapterWeights:
        """Return the changed adapter."""


@dataclass(frozen=True, repr=False)
class AdapterWeights:
    """One adapter: ΔW = scaling · B · A for every module of the layout.

    ``vector`` is float32, ``(layout.size(rank),)``, and read-only: kernels read it where it lies,
    so an array that it is a view of must not change either. A ``phrase`` belongs to an adapter like
    its numbers: it stands in front of every question that the adapter is asked, and is read.
    """

    layout: AdapterLayout
    rank: int
    scaling: float
    vector: np.ndarray
    phrase: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.vector.shape != (self.layout.size(self.rank),) or self.vector.dtype != np.float32:
            raise ValueError(
                f"expected a float32 vector of {self.layout.size(self.rank)} parameters at rank "
                f"{self.rank}, got {self.vector.dtype} {self.vector.shape}"
            )
        if not self.vector.flags.c_contiguous:
            object.__setattr__(self, "vector", np.ascontiguousarray(self.vector))
        self.vector.setflags(write=False)

    def __repr__(self) -> str:
        return f"<adapter of rank {self.rank}, {len(self.vector)} parameters>"

    def factors(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield ``(module, A (rank, d_in), B (d_out, rank))`` as read-only views."""
        for name, a, b, d_in, d_out in self.layout.blocks(self.rank):
            yield (
                name,
                self.vector[a].reshape(self.rank, d_in),
                self.vector[b].reshape(self.rank, d_out).T,
            )

    def delta(self, module: str) -> np.ndarray:
        """Return ΔW of one module, dense, ``(d_out, d_in)``: for tests and reports, not for the
        kernel."""
        for name, a, b in self.factors():
            if name == module:
                return np.asarray(self.scaling * (b @ a), dtype=np.float32)
        raise KeyError(module)

    def times(self, share: float) -> AdapterWeights:
        """Return the same with ΔW × ``share``; A and B stay as they are."""
        return replace(self, scaling=share * self.scaling)

    @classmethod
    def from_factors(
        cls,
        layout: AdapterLayout,
        rank: int,
        scaling: float,
        factors: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> AdapterWeights:
        """Pack ``{module: (A (r, d_in), B (d_out, r))}``; r ≤ ``rank`` is padded with zeros
        (exact)."""
        vector = np.zeros(layout.size(rank), dtype=np.float32)
        for name, a_slice, b_slice, d_in, d_out in layout.blocks(rank):
            a, b = factors[name]
            vector[a_slice].reshape(rank, d_in)[: a.shape[0]] = a
            vector[b_slice].reshape(rank, d_out)[: b.shape[1]] = b.T
        return cls(layout, rank, scaling, vector)

    @classmethod
    def random(
        cls,
        layout: AdapterLayout,
        rank: int,
        scaling: float,
        generator: np.random.Generator,
        b_std: float = 0.0,
    ) -> AdapterWeights:
        """Draw A ~ N(0, 1/d_in), B ~ N(0, b_std²): the usual start, the identity when ``b_std``
        is 0."""
        vector = np.empty(layout.size(rank), dtype=np.float32)
        for _, a, b, d_in, d_out in layout.blocks(rank):
            vector[a] = generator.standard_normal(rank * d_in, dtype=np.float32) / np.sqrt(d_in)
            vector[b] = (
                b_std * generator.standard_normal(rank * d_out, dtype=np.float32) if b_std else 0.0
            )
        return cls(layout, rank, scaling, vector)


BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8
"""Constants of Adam, here and in every learning rule."""
MAX_EXACT_PARAMETERS = 1_000_000
"""Parameters up to which moments keep all their bits."""


@dataclass(frozen=True, repr=False)
class OptimizerState:
    """State of learning beside the weights, which goes with an organelle wherever it goes.

    ``first`` and ``second`` are Adam's moments in the layout of the weights they belong to (None
    before the first step), ``step`` counts updates (Kingma & Ba 2014, arXiv:1412.6980). ``notes``
    are numbers that a learning rule keeps, such as reward baselines. The moments become read-only.
    With more than ``MAX_EXACT_PARAMETERS`` parameters they are rounded to bfloat16, always, so that
    a blob holds half as many bytes and a resume is exact.

    It survives a resume as a blob: a file named by the hash of its content, to which
    ``Organelle.optimizer_state`` in ``state.json`` refers. A checkpoint writes the blob before the
    state that names it.
    """

    step: int = 0
    first: np.ndarray | None = None
    second: np.ndarray | None = None
    notes: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<optimizer state after {self.step} updates, {len(self.notes)} notes>"

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            moment = getattr(self, name)
            if moment is None:
                continue
            if moment.size > MAX_EXACT_PARAMETERS and not is_rounded(moment):
                object.__setattr__(self, name, _rounded(moment))
            getattr(self, name).setflags(write=False)


def is_rounded(moment: np.ndarray) -> bool:
    """Return true if float32 numbers are bfloat16 numbers, whose last 16 bits are zero."""
    return not bool(np.bitwise_or.reduce(moment.view(np.uint32)) & 0xFFFF)


def _rounded(moment: np.ndarray) -> np.ndarray:
    """Round to the nearest bfloat16, to the even one of two; NaN stays as it is."""
    bits = moment.view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(moment), moment, nearest.view(np.float32))

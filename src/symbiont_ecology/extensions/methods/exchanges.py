"""Merges that exchange parts: numbers or directions of one parent for those of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import grown, modules, spectrum, truncated
from symbiont_ecology.adapters.operators import Merge, Parents, largest_rank, operators


@operators.register("elementwise")
@dataclass(frozen=True)
class Elementwise(Merge):
    """Every number of A and of B comes from one parent or the other (uniform crossover, Syswerda
    1989).

    It takes no account of the gauge: the same two parents, factored in another way, have other
    children. It is here as the control for those that do.
    """

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """One draw per number, at the larger parent's rank."""
        first, second = _of_equal_rank(parents, generator)
        chosen = generator.random(len(first.vector)) < 0.5
        scaled = np.float32(second.scaling / first.scaling)
        factor = np.ones_like(second.vector)
        for _, _, b, _, _ in second.layout.blocks(second.rank):
            factor[b] = scaled  # so that B means in the child what it means in its parent
        vector = np.where(chosen, first.vector, factor * second.vector)
        return AdapterWeights(first.layout, first.rank, first.scaling, vector)


@operators.register("directions")
@dataclass(frozen=True)
class Directions(Merge):
    """Every singular direction of ΔW comes from one parent or the other, paired by how alike they
    are, module by module: an exchange that does not depend on how ΔW is factored."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """One draw per pair of directions, at the larger parent's rank."""
        rank, factors = largest_rank(parents), {}
        for name, parts in modules(parents):
            (u, s, v), (u_other, s_other, v_other) = (spectrum(a, b) for a, b in parts)
            pairs = _paired(np.abs((u.T @ u_other) * (v @ v_other.T)))
            choices = [generator.random() < 0.5 for _ in pairs]
            rows = [
                (s[i], u[:, i], v[i]) if is_first else (s_other[j], u_other[:, j], v_other[j])
                for (i, j), is_first in zip(pairs, choices, strict=True)
            ]
            a = np.stack([right for _, _, right in rows])
            b = np.stack([size * left for size, left, _ in rows], axis=1)
            factors[name] = (a, b)
        child = AdapterWeights.from_factors(parents[0].layout, rank, 1.0, factors)
        return truncated(child, rank)  # exact: it balances A and B


def _of_equal_rank(parents: Parents, generator: Generator) -> list[AdapterWeights]:
    rank = largest_rank(parents)
    return [grown(parent, rank, generator) for parent in parents]


def _paired(likeness: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of rows and columns, the most alike first, each once (greedy matching)."""
    pairs, rest = list[tuple[int, int]](), likeness.copy()
    for _ in range(min(rest.shape)):
        row, column = np.unravel_index(int(np.argmax(rest)), rest.shape)
        pairs.append((int(row), int(column)))
        rest[row, :] = -1.0
        rest[:, column] = -1.0
    return pairs

"""Variation of adapter weights: mutations, and merges of two parents. Parents never change."""

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.fence import FaultError
from symbiont_ecology.base.registry import Registry, Spec, kind_of

Parents = Sequence[AdapterWeights]


class Operator(Protocol):
    """Parents' weights to a child's weights."""

    arity: ClassVar[int]
    """How many parents it takes."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """Return the child; equal draws give equal children."""


class Mutation(Operator, Protocol):
    """An operator of one parent. A subclass writes ``mutated``."""

    arity: ClassVar[int] = 1

    def mutated(self, parent: AdapterWeights, generator: Generator) -> AdapterWeights:
        """Return the child of this parent."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """Return the child of the only parent."""
        (parent,) = parents
        return self.mutated(parent, generator)


class Merge(Operator, Protocol):
    """An operator of two parents. A subclass writes ``__call__``."""

    arity: ClassVar[int] = 2


operators: Registry[Operator] = Registry("operator", "symbiont_ecology.adapters.operators")


def largest_rank(parents: Parents) -> int:
    """Return the rank of the parent with the most room."""
    return max(parent.rank for parent in parents)


def with_arity(spec: Spec, arity: int) -> Operator:
    """Return the operator of a spec; ConfigError unless it takes so many parents."""
    operator = operators.build(spec)
    if operator.arity != arity:
        fit = ", ".join(name for name in operators.names() if operators[name].arity == arity)
        raise ConfigError(
            f"expected an operator of {arity} parent{'s' * (arity > 1)} ({fit}), "
            f"got {kind_of(spec)!r}, which takes {operator.arity}"
        )
    return operator


def checked_child(
    operator: Operator, parents: Parents, generator: Generator, most: int
) -> AdapterWeights:
    """Return the child that an operator makes, if it can live in a slot of at most such a rank.

    Raises:
        FaultError: it is no adapter for the parents' host, its rank is too large, or a number in
            it is not finite.
    """
    child = operator(parents, generator)
    if not isinstance(child, AdapterWeights):
        raise FaultError(f"returned {type(child).__name__:.60}, expected AdapterWeights")
    if child.layout != parents[0].layout:
        raise FaultError("returned weights of another layout, expected that of the parents")
    if not 1 <= child.rank <= most:
        raise FaultError(f"returned rank {child.rank!r:.60}, expected 1 to {most}")
    if not math.isfinite(child.scaling):
        raise FaultError(f"returned the scaling {child.scaling!r:.60}, expected a finite number")
    if not np.isfinite(child.vector).all():
        raise FaultError("returned weights that are not finite")
    return child

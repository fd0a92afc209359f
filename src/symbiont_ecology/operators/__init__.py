"""Variation of adapter weights: mutations, and merges of two parents. Parents never change."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from numpy.random import Generator

from symbiont_ecology.errors import ConfigError
from symbiont_ecology.registry import Registry, Spec, kind_of
from symbiont_ecology.weights import AdapterWeights, OptimizerState


@dataclass(frozen=True)
class Parent(AdapterWeights):
    """A parent's weights, and what its learning left behind; most operators look at the weights
    alone."""

    optimizer_state: OptimizerState = field(default_factory=OptimizerState)


Parents = Sequence[Parent]


class Operator(Protocol):
    """Parents' weights to a child's weights."""

    arity: ClassVar[int]
    """How many parents it takes."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """The child; equal draws give equal children."""


class Mutation(ABC):
    """An operator of one parent. A subclass writes ``mutated``."""

    arity: ClassVar[int] = 1

    @abstractmethod
    def mutated(self, parent: Parent, generator: Generator) -> AdapterWeights:
        """The child of this parent."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """The child of the only parent."""
        (parent,) = parents
        return self.mutated(parent, generator)


class Merge(Operator):
    """An operator of two parents. A subclass writes ``__call__``."""

    arity: ClassVar[int] = 2


operators: Registry[Operator] = Registry("operator", "symbiont_ecology.operators")


def with_arity(spec: Spec, arity: int) -> Operator:
    """The operator of a spec; ConfigError unless it takes so many parents."""
    operator = operators.build(spec)
    if operator.arity != arity:
        fit = ", ".join(name for name in operators.names() if operators[name].arity == arity)
        raise ConfigError(
            f"expected an operator of {arity} parent{'s' * (arity > 1)} ({fit}), "
            f"got {kind_of(spec)!r}, which takes {operator.arity}"
        )
    return operator

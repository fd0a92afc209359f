"""What the kernel knows of a server's answers: whose weights their log-probabilities are of.

The kernel reads an answer with the adapter that should have given it. Log-probabilities that are
equal up to rounding prove it right. Those that are not are read as the bare host, and as what
answered before: whatever is nearer than half is what answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines.server import Answered, AnsweringServer, Asked
from symbiont_ecology.types import HOST_SLOT
from symbiont_ecology.weights import AdapterWeights

if TYPE_CHECKING:
    from symbiont_ecology.host.kernel import HostKernel

FEWEST_COUNTED = 4
"""A shorter answer is read as if it had so many tokens that agree: few tokens prove little."""
NOISES = 4.0
"""Times the noise of rounding up to which log-probabilities are taken for equal."""
EXACT = 1e-4
"""Nats per token that two exact computations differ by."""


class WrongAdapterError(HostError):
    """A server answered with other weights than it was asked for."""


@dataclass(frozen=True)
class Testimony:
    """A question to a slot and the answer to it."""

    slot: int
    question: Asked
    answered: Answered

    @property
    def reported(self) -> np.ndarray:
        """Log-probabilities (nats) as the server says, ``(tokens,)``."""
        return np.array(self.answered.log_probabilities)


class Witness:
    """Compares a server's answers with the kernel's."""

    def __init__(self, kernel: HostKernel, server: AnsweringServer) -> None:
        self._kernel, self._server = kernel, server
        self._noise = EXACT

    def meet(self, rows: Sequence[Testimony]) -> None:
        """Measures by the bare host's answers how the server rounds.

        Raises:
            HostError: it serves another model.
        """
        distance = max(map(_distance, rows, self.read(rows)))
        if distance > self._server.tolerance:
            raise HostError(
                f"expected {self._server.url} to serve the model {self._kernel.name_or_path}, got "
                f"log-probabilities that differ by {distance:.2g} nats per token: serve the same "
                "model in the same precision, or raise host.engine.tolerance"
            )
        self._noise = EXACT + distance

    def check(
        self, rows: Sequence[Testimony], earlier: Mapping[int, Sequence[AdapterWeights]]
    ) -> None:
        """Whether answers are of the weights that are in the kernel's slots.

        ``earlier`` are those that a stale cache could answer with instead, by slot.

        Raises:
            WrongAdapterError: they are of others.
        """
        for row, scores in zip(rows, self.read(rows), strict=True):
            far = _distance(row, scores)
            if far <= NOISES * self._noise:
                continue
            for other_scores, source in self._others(row, earlier):
                near = _distance(row, other_scores)
                if near < far / 2:
                    raise WrongAdapterError(
                        f"expected {self._server.url} to answer with the adapter of slot "
                        f"{row.slot}, got answers of {source} ({near:.2g} nats per token from it, "
                        f"{far:.2g} from the adapter): {self._server.load_advice}; one server "
                        "alone, without replicas"
                    )
            if far > self._server.tolerance:
                raise WrongAdapterError(
                    f"expected {self._server.url} to answer with the weights of slot {row.slot}, "
                    f"got log-probabilities that differ by {far:.2g} nats per token: serve the "
                    "same model in the same precision, or raise host.engine.tolerance"
                )

    def read(self, rows: Sequence[Testimony]) -> list[np.ndarray]:
        """The kernel's log-probabilities (nats) of answers, ``(tokens,)`` each."""
        if not rows:
            return []
        ids, slots = [row.answered.ids for row in rows], [row.slot for row in rows]
        scores = self._kernel.score([row.question.prompt for row in rows], ids, slots)
        return [np.asarray(values) for values in scores]

    def scores(self, told: Sequence[Testimony]) -> list[np.ndarray]:
        """The model's own log-probabilities (nats) of answers: where the server tells others, the
        kernel's."""
        kernel_scores = iter(self.read([row for row in told if not self.has_own(row)]))
        return [row.reported if self.has_own(row) else next(kernel_scores) for row in told]

    def has_own(self, told: Testimony) -> bool:
        """Whether the server reports the model's own log-probabilities of this answer."""
        question = told.question
        return question.seed is None or self._server.reports_own(question.decoding)

    def _others(
        self, row: Testimony, earlier: Mapping[int, Sequence[AdapterWeights]]
    ) -> list[tuple[np.ndarray, str]]:
        """How an answer would read if it came from something else."""
        if row.slot == HOST_SLOT:
            return []
        readings = [(self.read([replace(row, slot=HOST_SLOT)])[0], "the bare host")]
        weights = self._kernel.weights_of(row.slot)
        try:
            for adapter in earlier.get(row.slot, ()):
                self._kernel.place(row.slot, adapter)
                readings.append((self.read([row])[0], "an earlier adapter, which is stale"))
        finally:
            self._kernel.place(row.slot, weights)
        return readings


def longest(rows: Sequence[Testimony], part: float) -> list[Testimony]:
    """The longest answers of each slot, which say most: that part of them, at least one if any."""
    groups: dict[int, list[Testimony]] = {}
    for row in sorted(rows, key=lambda row: -len(row.answered.ids)):
        groups.setdefault(row.slot, []).append(row)
    return [row for group in groups.values() for row in group[: ceil(part * len(group))]]


def _distance(row: Testimony, scores: np.ndarray) -> float:
    """Nats per token by which log-probabilities differ."""
    return float(np.abs(row.reported - scores).sum() / max(len(scores), FEWEST_COUNTED))

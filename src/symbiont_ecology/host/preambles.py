"""What prompts begin with alike is kept from call to call: keys and values of examples and of
templates.

A preamble is read alone, in a forward of its own, and what layers made of it is kept. So the
numbers are the same bit for bit whether it was kept or had to be read again, and a run that goes on
after a kill says what it would have said.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from symbiont_ecology.weights.adapter import AdapterWeights

MOST_BYTES = 128_000_000
"""Of keys, values and the adapters that they were made with: 2,800 tokens of SmolLM2."""


@dataclass(frozen=True)
class _Kept:
    """Keys and values, and the adapter with which they were read (None: the bare host), which is
    held so that no other one can be taken for it."""

    states: Tensor
    weights: AdapterWeights | None

    @property
    def size(self) -> int:
        """Bytes."""
        weights = 0 if self.weights is None else self.weights.vector.nbytes
        return self.states.nbytes + weights


class Preambles:
    """Keys and values by adapter and token ids, the latest of them."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept, self._most, self._size = OrderedDict[tuple[int, bytes], _Kept](), most_bytes, 0

    def get(self, weights: AdapterWeights | None, ids: bytes, read: Callable[[], Tensor]) -> Tensor:
        """What there is for an adapter that never changes, read now if there is nothing."""
        key = id(weights), ids
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key].states
        entry = self._kept[key] = _Kept(read(), weights)
        self._size += entry.size
        while self._size > self._most and self._kept:
            self._size -= self._kept.popitem(last=False)[1].size
        return entry.states

"""What prompts begin with alike is kept from call to call: keys and values of examples and of
templates.

A preamble is read alone, in a forward of its own, and what layers made of it is kept. So the
numbers are the same bit for bit whether it was kept or had to be read again, and a run that goes on
after a kill says what it would have said.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterWeights


class Preambles:
    """Keys and values by adapter and token ids, the latest of them.

    Adapters are held for as long as something is kept that was read with them, so that no other one
    can be taken for them.
    """

    def __init__(self) -> None:
        self._kept = OrderedDict[tuple[int, bytes], Tensor]()
        self._adapters = dict[int, AdapterWeights | None]()
        self._entries = Counter[int]()  # of each adapter
        self._size = 0  # bytes, each adapter counted once

    def get(
        self,
        weights: AdapterWeights | None,
        ids: bytes,
        read: Callable[[], Tensor],
        most_bytes: int,
    ) -> Tensor:
        """What there is for an adapter (None: the bare host), read now if there is nothing; no more
        than so many bytes are kept afterwards."""
        key = id(weights), ids
        if key not in self._kept:
            self._kept[key] = read()
            self._size += self._kept[key].nbytes
            if id(weights) not in self._adapters:
                self._adapters[id(weights)] = weights
                self._size += _bytes_of(weights)
            self._entries[id(weights)] += 1
        self._kept.move_to_end(key)
        states = self._kept[key]
        while self._kept and self._size > most_bytes:
            self._forget_oldest()
        return states

    def _forget_oldest(self) -> None:
        (owner, _), states = self._kept.popitem(last=False)
        self._size -= states.nbytes
        self._entries[owner] -= 1
        if not self._entries[owner]:
            self._size -= _bytes_of(self._adapters.pop(owner))


def _bytes_of(weights: AdapterWeights | None) -> int:
    return 0 if weights is None else weights.vector.nbytes

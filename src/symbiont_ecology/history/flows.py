"""Where energy came from and where it went: the ledger made again from the event log.

The books of an organelle (``Settled``) say what it earned and spent. What is left are dowries and
what the dead leave behind, and those follow from births, trials and deaths. A dowry is paid by
living parents in equal parts, or else by the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symbiont_ecology.economics import Prices
from symbiont_ecology.events import Born, Event, Gated, Proposed, Retired, Settled, Stillborn
from symbiont_ecology.types import OrganelleId

WORLD: OrganelleId = "world"
"""The account that pays what is earned, and takes what is spent."""


@dataclass(frozen=True)
class Transfer:
    """Energy that moved outside the books, in mATP: a ``"dowry"`` to a newborn, a ``"refund"`` of
    one to parents whose child was refused, what each parent paid for a ``"stillborn"`` one, an
    ``"estate"`` of the dead to the world."""

    generation: int
    kind: str
    source: OrganelleId
    target: OrganelleId
    amount: int


class Flows:
    """Balances of everyone and all transfers, as far as a log was read; mATP.

    The balances of the living and of children on probation add up to what the log's
    ``GenerationEnded`` says (``energy_total``), after any generation.
    """

    def __init__(self, prices: Prices) -> None:
        self._dowry = prices.dowry
        self.balances: dict[OrganelleId, int] = {}
        self.transfers: list[Transfer] = []
        self._parents: dict[OrganelleId, Sequence[OrganelleId]] = {}  # of those on probation

    def add(self, event: Event) -> None:
        """Moves the energy of one event."""
        match event:
            case Settled():
                self.balances[event.id] = event.balance
            case Proposed() if len(event.parents) > 1:
                self._parents[event.id] = event.parents
                self._endow(event.generation, event.id, event.parents)
            case Gated(verdict="reject") if event.id in self._parents:
                self._refund(event.generation, event.id)
            case Born() if event.id not in self.balances:
                parents = [parent for parent in event.parents if parent in self.balances]
                payers = [] if event.is_endowed else parents
                self._endow(event.generation, event.id, payers)
            case Stillborn():
                for parent in event.parents:
                    self._move(event.generation, "stillborn", parent, WORLD, event.price)
            case Retired():
                self._move(event.generation, "estate", event.id, WORLD, event.balance)
                del self.balances[event.id]

    def _endow(self, generation: int, child: OrganelleId, parents: Sequence[OrganelleId]) -> None:
        payers = parents or [WORLD]
        for payer in payers:
            self._move(generation, "dowry", payer, child, self._dowry // len(payers))

    def _refund(self, generation: int, child: OrganelleId) -> None:
        parents, rest = self._parents[child], self.balances[child]
        for parent in parents:
            if parent in self.balances:
                self._move(generation, "refund", child, parent, rest // len(parents))
        self._move(generation, "estate", child, WORLD, self.balances[child])
        del self.balances[child]

    def _move(
        self, generation: int, kind: str, source: OrganelleId, target: OrganelleId, amount: int
    ) -> None:
        for account, change in ((source, -amount), (target, amount)):
            if account != WORLD:
                self.balances[account] = self.balances.get(account, 0) + change
        if amount:
            self.transfers.append(Transfer(generation, kind, source, target, amount))

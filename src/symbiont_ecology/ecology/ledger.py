"""Double-entry energy accounts in whole milli-ATP (mATP): what one account gains, another one
loses.

The world is an account too: it pays what organelles earn, and takes what they spend, what overflows
their cap, what rounding leaves and what the dead leave behind. So the sum over all accounts is
zero, always and exactly, and a leak is an arithmetic error that a test can see. No other module
moves energy.
"""

from dataclasses import dataclass, field

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.types import OrganelleId


@dataclass
class Ledger:
    """Balances in mATP. A balance may be negative; for how long, prices say (``grace``)."""

    balances: dict[OrganelleId, int] = field(default_factory=dict)
    world: int = 0

    @property
    def total(self) -> int:
        """Energy over all accounts, the world's included: zero after any history."""
        return self.world + sum(self.balances.values())

    def balance(self, organelle_id: OrganelleId) -> int:
        """Return what an organelle owns, in mATP; LedgerError when there is no such account."""
        if organelle_id not in self.balances:
            raise LedgerError(
                f"no account {organelle_id!r}: open it before energy moves, and not after it was "
                "closed"
            )
        return self.balances[organelle_id]

    def open(self, organelle_id: OrganelleId) -> None:
        """Open an account with nothing in it; its first energy is a transfer or is minted."""
        if organelle_id in self.balances:
            raise LedgerError(f"account {organelle_id!r} is open already")
        self.balances[organelle_id] = 0

    def mint(self, organelle_id: OrganelleId, amount: int, cap: int | None = None) -> int:
        """Let the world pay an organelle; what would lift the balance above ``cap`` stays with the
        world.

        Returns the mATP that arrived. A balance that is above the cap already is left as it is.
        """
        room = amount if cap is None else max(0, cap - self.balance(organelle_id))
        paid = _amount(min(amount, room))
        self._move(organelle_id, paid)
        return paid

    def charge(self, organelle_id: OrganelleId, amount: int) -> None:
        """Let an organelle pay the world, into debt if need be."""
        self._move(organelle_id, -_amount(amount))

    def transfer(self, source: OrganelleId, target: OrganelleId, amount: int) -> None:
        """Let ``source`` pay ``target``, into debt if need be."""
        self.balance(target)  # both accounts must exist before either changes
        self._move(source, -_amount(amount))
        self._move(target, amount)

    def close(self, organelle_id: OrganelleId) -> int:
        """End an account; the world takes what is left, or the debt. Returns that remainder in
        mATP."""
        rest = self.balance(organelle_id)
        self._move(organelle_id, -rest)
        del self.balances[organelle_id]
        return rest

    def _move(self, organelle_id: OrganelleId, amount: int) -> None:
        """Move energy from the world to an organelle: nothing else moves any."""
        self.balances[organelle_id] = self.balance(organelle_id) + amount
        self.world -= amount


class LedgerError(EcologyError, ValueError):
    """A movement of energy that cannot be booked: unknown account, or an amount that is no whole
    mATP."""


def _amount(amount: int) -> int:
    """Return ``amount`` if it is a whole number of mATP, not negative: a float would leak energy in
    rounding."""
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < 0:
        raise LedgerError(f"expected a whole number of mATP >= 0, got {amount!r}")
    return amount

"""Immigration: founders that were trained elsewhere, such as by trl or PEFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symbiont_ecology.adapters.peft_files import stated_rank
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.ecology import Decision, Found
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("immigration")
@dataclass(frozen=True)
class Immigration(Mechanism):
    """The population begins with adapters from PEFT folders, one organelle for each; without any,
    as it does otherwise.

    The folders are read when the run is founded, and not needed afterwards.
    """

    adapters: tuple[str, ...] = ()  # PEFT folders, from where the command is typed

    def founding_faults(self, rank: int) -> list[str]:
        """The adapters must be there, and fit into the host's slots."""
        ranks = {adapter: stated_rank(adapter) for adapter in self.adapters}
        return [
            f"host.rank: expected at least {needed}, the rank of {adapter}, got {rank}"
            for adapter, needed in ranks.items()
            if needed > rank
        ]

    def found(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """One organelle for each adapter."""
        if len(self.adapters) > room.places:
            raise ConfigError(
                f"strategy.mechanisms.immigration: expected at most {room.places} adapters, for "
                f"which strategy.capacity and strategy.ranks have room, got {len(self.adapters)}"
            )
        return [
            Found(dict(room.traits), context.rank, operator="immigrant", adapter=adapter)
            for adapter in self.adapters
        ]

"""Immigration: a population begins with adapters that were trained elsewhere, by trl or PEFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symbiont_ecology.adapters.peft_files import read_peft, stated_rank, warn_of_base
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology import Decision, Found
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@dataclass(frozen=True)
class FoundFromFolder(Found):
    """A founder with the adapter of a PEFT ``folder``, whose rank it takes."""

    folder: str = ""

    def first_weights(
        self, organelle_id: OrganelleId, context: ApplyContext
    ) -> tuple[BlobRef, int]:
        adapter = read_peft(self.folder, context.layout)
        return context.store.put_weights(adapter), adapter.rank


@mechanisms.register("immigration")
@dataclass(frozen=True)
class Immigration(Mechanism):
    """The population begins with adapters from PEFT folders, one organelle for each; without any,
    as it does otherwise.

    The folders are read when the run is founded, and not needed afterwards.
    """

    adapters: tuple[str, ...] = ()  # PEFT folders, from where the command is typed

    def check(self, rank: int, host: str) -> None:
        for adapter in self.adapters:
            if (needed := stated_rank(adapter)) > rank:
                raise ConfigError(
                    f"host.rank: expected at least {needed}, the rank of {adapter}, got {rank}"
                )
            warn_of_base(adapter, host)

    def found(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        if len(self.adapters) > room.places:
            raise ConfigError(
                f"strategy.mechanisms.immigration: expected at most {room.places} adapters, for "
                f"which strategy.capacity and strategy.ranks have room, got {len(self.adapters)}"
            )
        self.check(context.rank, host="")  # where nobody did before the host was loaded
        return [
            FoundFromFolder(dict(room.traits), context.rank, operator="immigrant", folder=folder)
            for folder in self.adapters
        ]

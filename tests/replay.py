"""Balances made again from the event log alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from symbiont_ecology.base.events import (
    Acted,
    Born,
    Event,
    Gated,
    GenerationEnded,
    Learned,
    Proposed,
    Retired,
    Settled,
)
from symbiont_ecology.ecology.prices import Prices
from toy import LAYOUT, ToyShape


def endow(child: str, parents: Sequence[str], dowry: int, balances: dict[str, int]) -> None:
    """A child's dowry, from its parents in equal parts."""
    part = dowry // len(parents)
    balances[child] = part * len(parents)
    for parent in parents:
        balances[parent] -= part


def give_back(child: str, parents: Sequence[str], balances: dict[str, int]) -> int:
    """A dowry goes back to the parents who live; what is left of it is the world's."""
    rest = balances.pop(child)
    part = rest // len(parents)
    for parent in balances.keys() & set(parents):
        balances[parent] += part
        rest -= part
    return rest


class Replay:
    """Balances and the world's account from events alone; every amount that an event names must
    agree.

    A rent is that of any rank: organelles may change theirs.
    """

    def __init__(self, probes: Sequence[Acted], prices: Prices) -> None:
        self.prices = prices
        shape = ToyShape().linear_parameters
        self.rents = {prices.rent_for(LAYOUT.size(rank), shape) for rank in range(1, 5)}
        rollouts = sum(len(probe.verdicts) for probe in probes)
        self.exchange = sum(probe.flops for probe in probes) // rollouts
        usual = sum(sum(probe.verdicts) / len(probe.verdicts) for probe in probes) / len(probes)
        self.success: dict[str, float] = defaultdict(lambda: usual)
        self.balances: dict[str, int] = {}
        self.world = 0
        self.parents: dict[str, tuple[str, ...]] = {}  # of those on probation
        self.flops, self.earned = Counter[str](), Counter[str]()
        self.verdicts: dict[str, list[float]] = defaultdict(list)

    def read(self, event: Event) -> None:
        """Moves the energy of one event, and compares."""
        match event:
            case Acted(purpose="practice"):
                price = self.prices.price(self.success[event.cell])
                self.flops[event.id] += event.flops
                self.earned[event.id] += self.prices.revenue(price, event.verdicts)
                self.verdicts[event.cell] += event.verdicts
            case Learned():
                self.flops[event.id] += event.flops
            case Settled():
                self.settle(event)
            case Proposed() | Gated() | Born():
                self.come(event)
            case Retired():
                assert self.balances[event.id] == event.balance
                self.world += self.balances.pop(event.id)
            case GenerationEnded():
                self.end(event)

    def settle(self, event: Settled) -> None:
        """An organelle pays and is paid."""
        prices, balances = self.prices, self.balances
        assert event.cost == prices.cost(self.flops.pop(event.id, 0), self.exchange)
        assert event.rent in self.rents
        assert event.ticket in (0, prices.ticket)
        rest = balances[event.id] - event.spent
        assert event.revenue == min(self.earned.pop(event.id, 0), max(prices.cap - rest, 0))
        self.world += balances[event.id] - event.balance
        balances[event.id] = rest + event.revenue
        assert balances[event.id] == event.balance

    def come(self, event: Proposed | Gated | Born) -> None:
        """Dowries of newborns and of children on probation."""
        dowry, balances = self.prices.dowry, self.balances
        match event:
            case Proposed():
                self.parents[event.id] = event.parents
                if len(event.parents) > 1:
                    endow(event.id, event.parents, dowry, balances)
            case Gated():
                family = self.parents.pop(event.id)
                if event.verdict == "reject" and len(family) > 1:
                    self.world += give_back(event.id, family, balances)
            case Born():
                assert (event.id in balances) == (len(event.parents) > 1)
                if not event.parents:
                    balances[event.id] = dowry
                    self.world -= dowry
                elif len(event.parents) == 1:
                    endow(event.id, event.parents, dowry, balances)

    def end(self, event: GenerationEnded) -> None:
        """The sums are right, and prices follow success."""
        assert event.energy_total == sum(self.balances.values()) == -self.world
        assert not self.parents  # trials end in their generation
        assert event.population == len(self.balances)
        assert not self.flops  # somebody paid for everything
        assert not self.earned
        for cell, rewards in self.verdicts.items():
            self.success[cell] = self.prices.update_success(self.success[cell], rewards)
        self.verdicts.clear()


def replayed(events: Sequence[Event], prices: Prices) -> tuple[dict[str, int], int]:
    """Balances and the world's account after all events."""
    founding = next(place for place, event in enumerate(events) if isinstance(event, Born))
    probes = [event for event in events[:founding] if isinstance(event, Acted)]
    replay = Replay(probes, prices)
    for event in events[founding:]:
        replay.read(event)
    return replay.balances, replay.world

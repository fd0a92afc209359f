"""Newborns have time: nobody dies of a few unlucky answers under the default prices.

A population that judges its young on two to four noisy answers loses the good ones with the bad.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Acted, Event, Settled
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.generation import found_population, run_generation
from symbiont_ecology.run.start import start
from toy import ToyHost, toy_config, toy_runtime

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
NEWBORN = "o1"
PRICES = Prices()
LEAST = 50
"""Answers that show a rate of success to within a seventh, at twice the standard error."""
SEEDS = range(3)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> AdapterWeights:
    """What answers nearly everything right, and with its sign turned nearly everything wrong."""
    folder = tmp_path_factory.mktemp("right") / "run"
    strategy = {"kind": "single", "questions": 4, "learning_rate": 0.1}
    plan = toy_config(0, 60, FAMILIES, strategy=strategy, learning_rule="supervised")
    (learned,) = start(plan, folder, host=ToyHost()).state.population.values()
    return times(5, toy_runtime(folder, plan).store.weights(learned.genome.weights))


def times(factor: float, weights: AdapterWeights) -> AdapterWeights:
    return AdapterWeights(weights.layout, weights.rank, factor * weights.scaling, weights.vector)


class Youth:
    """The first generations of newborns who neither learn nor breed, under the default prices."""

    def __init__(self, folder: Path, seed: int, founders: int) -> None:
        off = dict.fromkeys(("upheaval", "breeding", "refounding"), False)
        strategy = {"kind": "ecology", "founders": founders, "mechanisms": off}
        parts: dict[str, Any] = {"learning_rule": "none", "allocator": "epsilon_greedy"}
        parts["strategy"] = strategy
        self.world = toy_runtime(folder, toy_config(seed, 1, FAMILIES, PRICES, **parts))
        self.state, self.path = EcologyState(seed), folder / "events.jsonl"
        self.log = EventLog(self.path)
        found_population(self.state, self.world, self.log)

    def become(self, organelle_id: str, weights: AdapterWeights) -> None:
        one = self.state.population[organelle_id]
        genome = replace(one.genome, weights=self.world.store.put_weights(weights))
        self.state.population[organelle_id] = replace(one, genome=genome)

    def go_on(self, generations: int = 1) -> list[Event]:
        before = self.state.next_seq
        for _ in range(generations):
            run_generation(self.state, self.world, self.log)
        return list(read_events(self.path))[before:]


def verdicts(events: list[Event]) -> list[float]:
    """Of the newborn's practice."""
    acted = (event for event in events if isinstance(event, Acted) and event.purpose == "practice")
    return [verdict for event in acted if event.id == NEWBORN for verdict in event.verdicts]


def books(events: list[Event]) -> list[Settled]:
    """The newborn's."""
    return [event for event in events if isinstance(event, Settled) and event.id == NEWBORN]


@pytest.mark.parametrize("has_rival", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_wrong_four_times_and_right_ever_after_lives_on_and_grows_rich(
    seed: int, has_rival: bool, right: AdapterWeights, tmp_path: Path
) -> None:
    youth = Youth(tmp_path, seed, founders=1 + has_rival)  # the rival does as the host would
    youth.become(NEWBORN, times(-1, right))
    unlucky = youth.go_on()
    while len(verdicts(unlucky)) < 4:  # beside a rival it may be asked less in a generation
        unlucky += youth.go_on()
    assert not any(verdicts(unlucky))
    youth.become(NEWBORN, right)
    later = youth.go_on(60)
    assert set(verdicts(later)) == {1.0}
    assert len(verdicts(later)) >= 2 * LEAST
    balances = [book.balance for book in books([*unlucky, *later])]
    assert len(balances) == youth.state.generation
    assert min(balances) > 0
    assert balances[-1] > PRICES.dowry

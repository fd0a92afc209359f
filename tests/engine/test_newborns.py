"""Newborns have time: nobody dies of a few unlucky answers under the default prices.

A population that judges its young on two to four noisy answers loses the good ones with the bad.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import start
from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Acted, Event, Settled
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.generation import found_population, run_generation
from toy import ToyHost, toy_config, toy_runtime

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
NEWBORN = "o1"
PRICES = Prices()
LEAST = 50
"""Answers that show a rate of success to within a seventh, at twice the standard error."""


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


@pytest.mark.parametrize("has_rival", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_who_is_wrong_four_times_and_right_ever_after_lives_on_and_grows_rich(
    seed: int, has_rival: bool, right: AdapterWeights, tmp_path: Path
) -> None:
    """It neither learns nor breeds; its rival does as the host would."""
    off = dict.fromkeys(("upheaval", "breeding", "refounding"), False)
    strategy = {"kind": "ecology", "founders": 1 + has_rival, "mechanisms": off}
    parts: dict[str, Any] = {"learning_rule": "none", "allocator": "epsilon_greedy"}
    plan = toy_config(seed, 1, FAMILIES, PRICES, strategy=strategy, **parts)
    world, state, log = toy_runtime(tmp_path, plan), EcologyState(seed), EventLog(tmp_path / "log")
    found_population(state, world, log)

    def become(weights: AdapterWeights) -> None:
        one = state.population[NEWBORN]
        genome = replace(one.genome, weights=world.store.put_weights(weights))
        state.population[NEWBORN] = replace(one, genome=genome)

    def own(kind: type[Event]) -> list[Any]:
        """Its practice, or its books."""
        events = [event for event in read_events(tmp_path / "log") if isinstance(event, kind)]
        own = [event for event in events if event.id == NEWBORN]
        return [event for event in own if getattr(event, "purpose", "practice") == "practice"]

    def verdicts() -> list[float]:
        return [verdict for event in own(Acted) for verdict in event.verdicts]

    become(times(-1, right))
    while len(verdicts()) < 4:  # beside a rival it may be asked less in a generation
        run_generation(state, world, log)
    unlucky = verdicts()
    assert not any(unlucky)
    become(right)
    for _ in range(60):
        run_generation(state, world, log)
    later = verdicts()[len(unlucky) :]
    assert set(later) == {1.0}
    assert len(later) >= 2 * LEAST
    balances = [book.balance for book in own(Settled)]
    assert len(balances) == state.generation
    assert min(balances) > 0
    assert balances[-1] > PRICES.dowry

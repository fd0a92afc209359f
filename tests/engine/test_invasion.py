"""Either of two types spreads when it is rare if prices follow scarcity, and at one price it does
not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from life import fork
from life_measures import read_history
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.ecology import Found, Organelle, Retire
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.start import resume, start
from toy import ToyHost, toy_config, toy_ecology, toy_prices

FAMILIES = ("code.format", "string.reverse")
SCARCITY = toy_prices(rollout=50, ticket=0, rent=20_000, dowry=2000, cap=6000)
BRED, SETTLED, TRIED = 20, 40, 70
"""Generations that have passed after each stage."""
FUTURES = 5
"""Trials from the same community."""


def world(generations: int, prices: Prices, seed: int = 2) -> RunConfig:
    """Nobody learns or varies and anyone is asked anything; energy limits how many live, not
    room."""
    exact = {"at": 4000, "spread": 0.0, "mutation": {"kind": "gaussian", "sigma": 0.0}}
    mechanisms = {"breeding": exact, "refounding": False, "upheaval": False}
    ecology = toy_ecology(questions=16, samples=1, capacity=60, ranks=240, mechanisms=mechanisms)
    return toy_config(
        seed,
        generations,
        FAMILIES,
        prices,
        checkpoint_every=50,
        strategy=ecology,
        learning_rule="none",
        allocator="uniform",
    )


def same(one: Organelle, operator: str) -> Found:
    return Found(one.genome.traits, one.genome.rank, one.genome.weights, operator=operator)


def shares(folder: Path) -> tuple[float, float]:
    """The newcomers' line among the living, when they came and at the end."""
    history = read_history(read_events(folder / "events.jsonl"))
    came = [one.id for one in history.taxa.values() if one.operator == "newcomer"]
    line = {organelle_id for one in came for organelle_id in history.line(one)}
    first, last = history.alive[SETTLED], history.alive[-1]
    return len(line & first) / len(first), len(line & last) / len(last)


def test_a_fork_without_changes_lives_as_the_run_would_have(tmp_path: Path) -> None:
    run, to = tmp_path / "run", tmp_path / "fork"
    start(toy_config(2, 9), run, host=ToyHost())
    fork(run, to, toy_config(2, 15), ToyHost())
    resume(to, host=ToyHost())
    resume(run, overrides=("run.generations=15",), host=ToyHost())
    for name in ("events.jsonl", "state.json"):
        assert (to / name).read_bytes() == (run / name).read_bytes()


@pytest.fixture(scope="module")
def bred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One specialist per family, each of which has met nothing else."""
    folder = tmp_path_factory.mktemp("invasion") / "bred"
    apart = {"kind": "independent", "questions": 4, "samples": 4, "learning_rate": 0.1}
    start(
        toy_config(2, BRED, FAMILIES, strategy=apart, checkpoint_every=50), folder, host=ToyHost()
    )
    return folder


@pytest.mark.parametrize("rare", [0, 1], ids=FAMILIES)
def test_the_rare_type_spreads_where_prices_follow_scarcity_and_not_at_one_price(
    rare: int, bred: Path, tmp_path: Path
) -> None:
    types = list(checkpoint.load_state(bred).population.values())
    newcomer, resident = types[rare], types[1 - rare]
    founding = [Retire(one.id, "removed") for one in types] + [same(resident, "resident")] * 24
    fork(bred, tmp_path / "settled", world(SETTLED, SCARCITY), ToyHost(), founding)
    state = resume(tmp_path / "settled", host=ToyHost()).state
    coming = [same(newcomer, "newcomer")] * round(len(state.population) / 9)
    weights = [BlobStore(bred / "blobs").weights(newcomer.genome.weights)]
    rates = state.success.values()
    price = round(sum(SCARCITY.price(rate) * rate for rate in rates) / sum(rates))
    flat = replace(SCARCITY, base=price, slope=0, lowest=price, highest=price)
    ends: dict[str, list[float]] = {"scarcity": [], "flat": []}
    for name, prices in (("scarcity", SCARCITY), ("flat", flat)):
        for seed in range(FUTURES):
            trial, to = world(TRIED, prices, seed), tmp_path / f"{name}-{seed}"
            fork(tmp_path / "settled", to, trial, ToyHost(), coming, weights)
            resume(to, host=ToyHost())
            begin, end = shares(to)
            assert 0.05 < begin < 0.15
            ends[name].append(end)
    assert np.mean(ends["scarcity"]) > 3 * begin
    assert np.mean(ends["flat"]) < 2 * begin

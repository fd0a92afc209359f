"""Energy: it sums to zero after any history, and the event log alone explains every balance."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbiont_ecology.config import Climate, Flip, RunConfig
from symbiont_ecology.ecology import HOST, Gate
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.events import (
    Acted,
    Born,
    Event,
    Gated,
    GenerationEnded,
    Learned,
    Proposed,
    Quarantined,
    Retired,
    Settled,
    read_events,
)
from symbiont_ecology.strategies.mechanisms import canaries
from symbiont_ecology.tasks import tasks
from toy import LAYOUT, ToyHost, ToyShape, toy_config, toy_ecology, toy_prices

harsh = st.builds(
    lambda lowest, span, **fields: Prices(lowest=lowest, highest=lowest + span, **fields),
    lowest=st.integers(0, 1000),
    span=st.integers(0, 4000),
    rollout=st.integers(1, 3000),
    ticket=st.integers(0, 2000),
    rent=st.integers(0, 200_000),
    base=st.integers(-500, 4000),
    slope=st.integers(-2000, 4000),
    cap=st.integers(0, 60_000),
    dowry=st.integers(0, 25_000),
    grace=st.integers(0, 3),
)
mild = st.builds(
    toy_prices,
    dowry=st.integers(1000, 15_000),
    rent=st.integers(0, 10_000),
    cap=st.integers(20_000, 60_000),
    grace=st.integers(0, 3),
)
LENIENT = {"level": 0.8, "gain": 0.4, "loss": 0.4, "most": 12}
"""A gate that a few questions open or shut."""


@pytest.fixture(autouse=True, scope="module")
def lenient_proof() -> Iterator[None]:
    """What makes canaries suspicious, and their proof, take a few questions; they are no knobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canaries, "PROOF", Gate(**LENIENT))
        patch.setattr(canaries, "SUSPICION", 0.2)
        yield


def perhaps(**knobs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A mechanism with knobs from their ranges, or none."""
    return st.fixed_dictionaries(knobs) | st.just(False)


mechanisms = st.fixed_dictionaries(
    {
        "upheaval": perhaps(level=st.floats(0.1, 2.0)),
        "thrift": perhaps(first=st.integers(1, 3), questions=st.just(2), loss=st.floats(0.3, 0.9)),
        "breeding": perhaps(
            at=st.integers(1000, 30_000),
            inheritance=st.sampled_from(("lamarckian", "darwinian")),
            mutation=st.sampled_from(("clone", "svd_noise")),
        ),
        "refounding": perhaps(least=st.integers(1, 5)),
        "merging": perhaps(
            every=st.integers(1, 2),
            at=st.integers(0, 5000),
            operator=st.sampled_from(("svd", "linear", "concatenation")),
            questions=st.integers(1, 3),
            gate=st.just(LENIENT),
        ),
        "canaries": st.booleans(),
        "morphogenesis": perhaps(
            every=st.integers(1, 3),
            rich=st.integers(1, 20_000),
            poor=st.integers(1, 20_000),
            full=st.floats(0.0, 0.3),
        ),
    }
)
ecologies = st.builds(
    toy_ecology,
    founders=st.integers(2, 6),
    capacity=st.integers(6, 9),
    questions=st.integers(1, 3),
    samples=st.integers(1, 3),
    mechanisms=mechanisms,
    learning_rate=st.floats(0.001, 0.3),
)
small = {"questions": 2, "samples": 2}
controls = st.sampled_from(
    ({"kind": "single", **small}, {"kind": "frozen", "founders": 4, **small})
)
climates = st.builds(
    Climate,
    catastrophes=st.lists(st.integers(1, 16), max_size=2).map(tuple),
    toll=st.floats(0.1, 1.0),
    year=st.integers(0, 8),
    winter=st.floats(0.0, 1.5),
)
flips = st.none() | st.builds(
    lambda at, lasting, **fields: Flip(at_flops=at, back_flops=at + lasting, **fields),
    at=st.floats(0, 5e7),  # a generation takes some millions
    lasting=st.floats(1e6, 5e7),
    families=st.sampled_from((("math.add",), ("math.add", "string.sort"))),
)


def flipped(plan: RunConfig, flip: Flip | None) -> RunConfig:
    """The same run in a world whose conventions change."""
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})


def endow(child: str, parents: Sequence[str], dowry: int, balances: dict[str, int]) -> None:
    """A child's dowry, from its parents in equal parts; nobody gives what it does not own."""
    part = dowry // len(parents)
    balances[child] = part * len(parents)
    for parent in parents:
        assert balances[parent] >= part
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

    No event says of what rank a newborn is, so a rent is that of any rank.
    """

    def __init__(self, probes: Sequence[Acted], prices: Prices, climate: Climate) -> None:
        self.prices, self.climate = prices, climate
        shape = ToyShape().linear_parameters
        self.rents = {prices.rent_for(LAYOUT.size(rank), shape) for rank in range(1, 5)}
        self.exchange = sum(probe.flops for probe in probes) // sum(
            len(probe.verdicts) for probe in probes
        )
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
                season = self.prices.times(self.climate.payment(event.generation))
                price = season.price(self.success[event.cell])
                self.flops[event.id] += event.flops
                self.earned[event.id] += season.revenue(price, event.verdicts)
                self.verdicts[event.cell] += event.verdicts
            case Acted(purpose="probation"):
                payers = self.parents.get(event.id, (event.id,))
                self.flops.update(dict.fromkeys(payers, event.flops // len(payers)))
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
        assert event.population == len(self.balances.keys() - self.parents.keys())
        assert not self.flops  # somebody paid for everything
        assert not self.earned
        for cell, rewards in self.verdicts.items():
            self.success[cell] = self.prices.update_success(self.success[cell], rewards)
        self.verdicts.clear()


def replayed(
    events: Sequence[Event], prices: Prices, climate: Climate | None = None
) -> tuple[dict[str, int], int]:
    """Balances and the world's account after all events."""
    founding = next(place for place, event in enumerate(events) if isinstance(event, Born))
    probes = [event for event in events[:founding] if isinstance(event, Acted)]
    replay = Replay(probes, prices, climate or Climate())
    for event in events[founding:]:
        replay.read(event)
    return replay.balances, replay.world


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    economy=mild | harsh,
    strategy=st.integers(0, 4).flatmap(lambda rare: ecologies if rare else controls),
    learning_rule=st.sampled_from(("policy_gradient", "expert_iteration", "none")),
    generations=st.integers(10, 25),
    poison=st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=2),
    climate=climates,
    flip=flips,
)
def test_energy_sums_to_zero_and_the_events_explain_every_balance_after_any_history(
    seed: int,
    economy: Prices,
    strategy: dict[str, Any],
    learning_rule: str,
    generations: int,
    poison: dict[int, int],
    climate: Climate,
    flip: Flip | None,
) -> None:
    parts: dict[str, Any] = {
        "strategy": strategy,
        "learning_rule": learning_rule,
        "climate": climate,
    }
    config = flipped(
        toy_config(seed, generations, economy=economy, checkpoint_every=50, **parts), flip
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        state = start(config, folder, host=ToyHost(slots=3, poison=poison)).state
        events = list(read_events(folder / "events.jsonl"))
        assert checkpoint.load_state(folder) == state
    assert state.ledger.total == 0
    assert replayed(events, economy, climate) == (state.ledger.balances, state.ledger.world)
    unborn = {child.id for child in state.challengers.values() if child.kind == "child"}
    assert set(state.ledger.balances) == {*state.population, *unborn}
    assert all(
        isinstance(amount, int) for amount in (*state.ledger.balances.values(), state.ledger.world)
    )


EVENTFUL: dict[str, Any] = {
    "upheaval": True,
    "thrift": {"first": 2, "questions": 1, "loss": 0.5},
    "breeding": {"at": 25_000, "mutation": "svd_noise"},
    "refounding": {"least": 7},
    "merging": {
        "every": 2,
        "at": 0,
        "operator": {"kind": "concatenation", "decay": 0.0},
        "questions": 3,
        "gate": LENIENT,
    },
    "canaries": True,
    "morphogenesis": {"every": 3, "rich": 15_000, "poor": 8000, "full": 0.05},
}


def test_no_energy_is_lost_where_everything_happens(tmp_path: Path) -> None:
    climate = Climate(catastrophes=(20, 50), toll=0.6, year=20)
    economy = toy_prices(dowry=12_001, grace=2, cap=40_000, lowest=1200, rent=4000)
    families = ("math.add", "string.sort", "logic.bool", "word.count")
    knobs: dict[str, Any] = {
        "questions": 4,
        "samples": 2,
        "capacity": 14,
        "ranks": 56,
        "learning_rate": 0.3,
    }
    parts: dict[str, Any] = {
        "strategy": toy_ecology(**knobs, mechanisms=EVENTFUL),
        "learning_rule": "expert_iteration",
        "allocator": "epsilon_greedy",
        "climate": climate,
    }
    flip = Flip(families=families[:2], at_flops=2.5e8, back_flops=3.8e8)  # of 6e8 in all
    plan = flipped(toy_config(4, 60, families, economy, **parts), flip)
    state = start(plan, tmp_path / "run", host=ToyHost()).state
    events = list(read_events(tmp_path / "run/events.jsonl"))
    assert replayed(events, economy, climate) == (state.ledger.balances, state.ledger.world)
    assert state.ledger.total == 0
    happened = {
        (type(event).__name__, getattr(event, "operator", getattr(event, "cause", "")))
        for event in events
    }
    assert happened >= {
        *(("Proposed", name) for name in ("concatenation", "thrift", "recall")),
        *(("Born", name) for name in ("svd_noise", "refounded", "pioneer")),
        *(("Retired", name) for name in ("bankrupt", "catastrophe")),
        ("Resized", ""),
        ("Upheaved", ""),
    }
    admitted = {
        event.id for event in events if isinstance(event, Gated) and event.verdict == "admit"
    }
    merged = {event.id for event in events if isinstance(event, Born) and len(event.parents) == 2}
    assert merged
    assert merged <= admitted


def history(folder: Path, **changes: Any) -> tuple[list[Event], Prices]:
    """The events of a toy run, and its prices."""
    config = toy_config(**changes)
    start(config, folder, host=ToyHost())
    return list(read_events(folder / "events.jsonl")), config.economy


@pytest.mark.parametrize("seed", range(3))
def test_who_is_in_debt_may_try_one_question_and_earn_its_way_back(
    seed: int, tmp_path: Path
) -> None:
    economy = toy_prices(dowry=6000, base=900, slope=200, grace=4)
    events, _ = history(tmp_path / "run", seed=seed, generations=40, economy=economy)
    balances: dict[str, int] = {}
    asked, saved = Counter[tuple[int, str]](), 0
    for event in events:
        match event:
            case Born():
                balances[event.id] = 1  # a newborn owns its dowry
            case Settled():
                saved += balances[event.id] < 0 <= event.balance
                balances[event.id] = event.balance
            case Acted() if event.purpose == "practice" and balances[event.id] < 0:
                asked[event.generation, event.id] += len(event.items)
    assert set(asked.values()) == {1}
    assert saved > 0


@pytest.mark.parametrize("seed", range(3))
def test_the_bankrupt_die_after_grace_and_not_before(seed: int, tmp_path: Path) -> None:
    economy = toy_prices(dowry=6000, base=900, slope=200, grace=2)
    events, _ = history(tmp_path / "run", seed=seed, generations=25, economy=economy)
    overdrawn: dict[str, int] = {}
    deaths = 0
    for event in events:
        match event:
            case Settled():
                overdrawn[event.id] = overdrawn.get(event.id, 0) + 1 if event.balance < 0 else 0
                assert overdrawn[event.id] <= economy.grace + 1, event
            case Retired(cause="bankrupt"):
                assert overdrawn[event.id] == economy.grace + 1
                deaths += 1
    assert deaths > 0


@pytest.mark.parametrize("breed_at", [20_000, 0])
def test_births_pay_a_dowry_that_the_parent_owned(breed_at: int, tmp_path: Path) -> None:
    strategy = toy_ecology(breed_at=breed_at)
    events, economy = history(tmp_path / "run", generations=25, strategy=strategy)
    balances, births = {}, 0
    for event in events:
        if isinstance(event, Settled):
            balances[event.id] = event.balance
        elif isinstance(event, Born) and event.parents:
            births += 1
            (parent,) = event.parents
            assert balances[parent] >= max(breed_at, economy.dowry)
            assert event.traits["learning_rate"] > 0
    assert births > 0
    replayed(events, economy)


def test_the_ecology_never_outgrows_its_capacity_nor_dies_out(tmp_path: Path) -> None:
    events, _ = history(tmp_path / "run", generations=60)
    sizes = [event.population for event in events if isinstance(event, GenerationEnded)]
    assert max(sizes) == 7
    assert min(sizes) >= 4  # refounded from the archive


def test_who_answers_nothing_buys_no_ticket(tmp_path: Path) -> None:
    events, prices = history(tmp_path / "run", generations=12)
    acted = {
        (e.generation, e.id) for e in events if isinstance(e, Acted) and e.purpose == "practice"
    }
    for event in events:
        if isinstance(event, Settled):
            assert event.ticket == prices.ticket * ((event.generation, event.id) in acted)
            if not event.ticket:
                assert event.revenue == event.cost == 0


def test_single_never_dies_however_poor(tmp_path: Path) -> None:
    economy = Prices(dowry=0, base=0, slope=0, lowest=0, highest=0, grace=0)
    config = toy_config(generations=8, economy=economy, strategy={"kind": "single", **small})
    state = start(config, tmp_path / "run", host=ToyHost()).state
    assert list(state.population) == ["o1"]
    assert state.ledger.balance("o1") < 0
    assert not [
        event for event in read_events(tmp_path / "run/events.jsonl") if isinstance(event, Retired)
    ]


def test_a_poor_frozen_population_dies_and_others_are_founded(tmp_path: Path) -> None:
    """Or a run with nobody in it would spend nothing, and never get to the end of its FLOPs."""
    economy = Prices(dowry=0, base=0, slope=0, lowest=0, highest=0, grace=0)
    config = toy_config(train_flops=2e7, economy=economy, strategy={"kind": "frozen", **small})
    finished = start(config, tmp_path / "run", host=ToyHost())
    assert finished.is_complete
    events = list(read_events(tmp_path / "run/events.jsonl"))
    gone = {event.id for event in events if isinstance(event, Retired)}
    assert len(gone) >= 16
    assert not gone & set(finished.state.population)
    assert finished.state.ledger.total == 0
    assert resume(tmp_path / "run", host=ToyHost()).is_complete


def test_the_exchange_rate_makes_a_mean_rollout_cost_its_price(tmp_path: Path) -> None:
    trained = [name for name in tasks.names() if tasks[name].role == "trained"]
    strategy = {"kind": "single", "questions": 1, "samples": 2}
    events, economy = history(
        tmp_path / "run", generations=5, learning_rule="none", strategy=strategy, families=trained
    )
    rollouts = sum(
        len(event.verdicts) for event in events if isinstance(event, Acted) and event.id != HOST
    )
    paid = sum(event.cost for event in events if isinstance(event, Settled))
    assert paid / rollouts == pytest.approx(
        economy.rollout, rel=0.15
    )  # an adapter adds a little to the host


def test_lines_of_the_log_are_plain_json_without_gaps(tmp_path: Path) -> None:
    history(tmp_path / "run", generations=4)
    rows = [
        json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()[1:]
    ]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert not [row for row in rows if row["kind"] == Quarantined.__name__]

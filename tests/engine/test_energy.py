"""Energy: it sums to zero after any history, and the event log alone explains every balance."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replay import replayed
from runs import start
from seen import ECONOMY, LENIENT, eventful_plan
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Gated
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.config import Flip
from toy import ToyHost, toy_config, toy_ecology, toy_prices

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


def perhaps(**knobs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A mechanism with knobs from their ranges, or none."""
    return st.fixed_dictionaries(knobs) | st.just(False)


mechanisms = st.fixed_dictionaries(
    {
        "upheaval": perhaps(level=st.floats(0.1, 2.0)),
        "breeding": perhaps(
            at=st.integers(1000, 30_000),
            inheritance=st.sampled_from(("lamarckian", "darwinian")),
            mutation=st.sampled_from(("clone", "svd_noise")),
        ),
        "refounding": perhaps(least=st.integers(1, 5)),
        "merging": perhaps(
            every=st.integers(1, 2),
            at=st.integers(0, 5000),
            operator=st.sampled_from(("svd", "concatenation")),
            questions=st.integers(1, 3),
            gate=st.just(LENIENT),
        ),
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
flips = st.none() | st.builds(
    lambda at, lasting, **fields: Flip(at_flops=at, back_flops=at + lasting, **fields),
    at=st.floats(0, 5e7),  # a generation takes some millions
    lasting=st.floats(1e6, 5e7),
    families=st.sampled_from((("math.add",), ("math.add", "string.sort"))),
)


def flipped(plan: RunConfig, flip: Flip | None) -> RunConfig:
    """The same run in a world whose conventions change."""
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    economy=mild | harsh,
    strategy=st.integers(0, 4).flatmap(lambda rare: ecologies if rare else controls),
    learning_rule=st.sampled_from(("policy_gradient", "expert_iteration", "none")),
    generations=st.integers(8, 15),
    poison=st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=2),
    flip=flips,
)
def test_energy_sums_to_zero_and_the_events_explain_every_balance_after_any_history(
    seed: int,
    economy: Prices,
    strategy: dict[str, Any],
    learning_rule: str,
    generations: int,
    poison: dict[int, int],
    flip: Flip | None,
) -> None:
    parts: dict[str, Any] = {"strategy": strategy, "learning_rule": learning_rule}
    config = flipped(
        toy_config(seed, generations, economy=economy, checkpoint_every=50, **parts), flip
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        state = start(config, folder, host=ToyHost(slots=3, poison=poison)).state
        events = list(read_events(folder / "events.jsonl"))
        assert checkpoint.load_state(folder) == state
    assert state.ledger.total == 0
    assert replayed(events, economy) == (state.ledger.balances, state.ledger.world)
    assert set(state.ledger.balances) == set(state.population)
    amounts = *state.ledger.balances.values(), state.ledger.world
    assert all(isinstance(amount, int) for amount in amounts)


def test_no_energy_is_lost_where_everything_happens(tmp_path: Path) -> None:
    plan = eventful_plan()
    state = start(plan, tmp_path / "run", host=ToyHost()).state
    events = list(read_events(tmp_path / "run/events.jsonl"))
    assert replayed(events, ECONOMY) == (state.ledger.balances, state.ledger.world)
    assert state.ledger.total == 0
    happened = {
        (type(event).__name__, getattr(event, "operator", getattr(event, "cause", "")))
        for event in events
    }
    assert happened >= {
        ("Proposed", "concatenation"),
        *(("Born", name) for name in ("svd_noise", "refounded", "pioneer")),
        ("Retired", "bankrupt"),
        ("Resized", ""),
        ("Upheaved", ""),
    }
    admitted = {
        event.id for event in events if isinstance(event, Gated) and event.verdict == "admit"
    }
    merged = {event.id for event in events if isinstance(event, Born) and len(event.parents) == 2}
    assert merged
    assert merged <= admitted

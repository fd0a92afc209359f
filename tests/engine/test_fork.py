"""A fork begins where another run stands, and without changes has the same future."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fork import fork
from symbiont_ecology.ecology import RULE, Found, Retire
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import RunError
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Born, Retired, Settled
from toy import ToyHost, toy_config, toy_ecology


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Nine generations, checkpointed at the end."""
    start(toy_config(2, 9), tmp_path / "run", host=ToyHost())
    return tmp_path / "run"


def test_a_fork_without_changes_lives_as_the_run_would_have(run: Path, tmp_path: Path) -> None:
    fork(run, tmp_path / "fork", toy_config(2, 15), ToyHost())
    resume(tmp_path / "fork", host=ToyHost())
    resume(run, overrides=("run.generations=15",), host=ToyHost())
    for name in ("events.jsonl", "state.json"):
        assert (tmp_path / "fork" / name).read_bytes() == (run / name).read_bytes()


def test_the_run_that_is_forked_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    fork(run, tmp_path / "fork", toy_config(5, 15), ToyHost(), [Retire("o1", "removed")])
    resume(tmp_path / "fork", host=ToyHost())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_under_another_strategy_whoever_is_on_probation_is_let_go_of(tmp_path: Path) -> None:
    merging = {"merging": {"every": 1, "at": 0, "questions": 1}}
    here, there = (
        toy_config(1, 9, strategy=toy_ecology(mechanisms=ways)) for ways in (merging, {})
    )
    state = start(here, tmp_path / "run", host=ToyHost()).state
    assert state.challengers
    fork(tmp_path / "run", tmp_path / "fork", there, ToyHost())
    forked = checkpoint.load_state(tmp_path / "fork")
    assert not forked.challengers
    assert set(forked.ledger.balances) == set(state.population)
    assert forked.ledger.total == 0


def test_an_invader_has_a_rule_to_learn_by(tmp_path: Path) -> None:
    rules = {"kind": "heritable", "rules": ["expert_iteration", "none"]}
    plan = toy_config(2, 9, learning_rule=rules)
    state = start(plan, tmp_path / "run", host=ToyHost()).state
    genome = next(iter(state.population.values())).genome
    invader = Found({"learning_rate": 0.1}, genome.rank, genome.weights, operator="invader")
    fork(tmp_path / "run", tmp_path / "fork", plan, ToyHost(), [invader])
    (one,) = (
        o
        for o in checkpoint.load_state(tmp_path / "fork").population.values()
        if o.operator == "invader"
    )
    assert RULE in one.genome.traits


def test_decisions_are_carried_out_and_logged_before_the_fork_goes_on(
    run: Path, tmp_path: Path
) -> None:
    state = checkpoint.load_state(run)
    gone, genome = next(iter(state.population)), next(iter(state.population.values())).genome
    decisions = [
        Retire(gone, "removed"),
        Found(genome.traits, genome.rank, genome.weights, operator="invader"),
    ]
    fork(run, tmp_path / "fork", toy_config(2, 12), ToyHost(), decisions)
    resume(tmp_path / "fork", host=ToyHost())
    common = len(list(read_events(run / "events.jsonl")))
    events = list(read_events(tmp_path / "fork" / "events.jsonl"))
    retired, born = events[common : common + 2]
    assert isinstance(retired, Retired)
    assert (retired.id, retired.cause) == (gone, "removed")
    assert isinstance(born, Born)
    assert (born.operator, born.weights) == ("invader", genome.weights)
    assert any(isinstance(one, Settled) and one.id == born.id for one in events[common + 2 :])
    assert checkpoint.load_state(tmp_path / "fork").ledger.total == 0


def test_a_fork_may_have_other_prices_and_another_future(run: Path, tmp_path: Path) -> None:
    free = Prices(dowry=12_000, grace=1, cap=40_000, ticket=0, rent=0)
    for name, config in (("free", toy_config(2, 15, economy=free)), ("other", toy_config(3, 15))):
        fork(run, tmp_path / name, config, ToyHost())
        resume(tmp_path / name, host=ToyHost())
    resume(run, overrides=("run.generations=15",), host=ToyHost())
    logs = {(tmp_path / name / "events.jsonl").read_bytes() for name in ("run", "free", "other")}
    assert len(logs) == 3


def test_a_fork_never_writes_into_a_folder_that_is_there(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="exists already"):
        fork(run, tmp_path, toy_config(2, 15), ToyHost())


def test_forks_of_a_run_that_goes_on_meanwhile_are_whole(run: Path, tmp_path: Path) -> None:
    longer = ("run.generations=40", "run.checkpoint_every=1")
    with ThreadPoolExecutor(1) as other:
        going = other.submit(resume, run, overrides=longer, host=ToyHost())
        count = 0
        while not going.done():
            fork(run, tmp_path / f"fork-{count}", toy_config(2, 90), ToyHost())
            count += 1
    assert going.result().is_complete
    for number in range(count):
        state = checkpoint.load_state(tmp_path / f"fork-{number}")
        blobs = {path.stem for path in (tmp_path / f"fork-{number}" / "blobs").iterdir()}
        assert state.reachable() <= blobs
    assert count > 1


def test_a_fork_that_fails_leaves_nothing_behind_and_can_be_tried_again(
    run: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())
    living = list(checkpoint.load_state(run).population)
    decisions = [Retire(living[0], "removed"), Retire("o99", "removed")]
    with pytest.raises(RunError, match=rf"got 'o99': name one of {living[1]}, ") as refused:
        fork(run, tmp_path / "fork", toy_config(2, 12), ToyHost(), decisions)
    assert "\n" not in str(refused.value)
    assert set(tmp_path.iterdir()) == before
    fork(run, tmp_path / "fork", toy_config(2, 12), ToyHost())
    assert resume(tmp_path / "fork", host=ToyHost()).is_complete


def test_a_fork_of_what_is_no_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run in"):
        fork(tmp_path / "nowhere", tmp_path / "fork", toy_config(2, 12), ToyHost())
    assert not list(tmp_path.iterdir())

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from symbiont_ecology.ecology.ledger import Ledger, LedgerError

WHO = st.sampled_from(["a", "b", "c"])
AMOUNT = st.integers(-5, 10**30)
MOVES = st.one_of(
    st.tuples(st.just("open"), WHO),
    st.tuples(st.just("close"), WHO),
    st.tuples(st.just("mint"), WHO, AMOUNT, st.none() | AMOUNT),
    st.tuples(st.just("charge"), WHO, AMOUNT),
    st.tuples(st.just("transfer"), WHO, WHO, AMOUNT),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(MOVES, max_size=30))
def test_energy_sums_to_zero_to_the_milli_atp_after_any_history(
    moves: list[tuple[Any, ...]],
) -> None:
    ledger = Ledger()
    for verb, *arguments in moves:
        before = TypeAdapter(Ledger).dump_json(ledger)
        try:
            getattr(ledger, verb)(*arguments)
        except LedgerError:
            # A refused movement moves nothing.
            assert TypeAdapter(Ledger).dump_json(ledger) == before
        assert ledger.total == 0
    assert TypeAdapter(Ledger).validate_json(TypeAdapter(Ledger).dump_json(ledger)) == ledger


@settings(deadline=None)
@given(st.lists(st.tuples(WHO, WHO, st.integers(0, 10**30)), max_size=9))
def test_a_transfer_takes_from_one_what_it_gives_to_the_other(
    moves: list[tuple[str, str, int]],
) -> None:
    ledger, expected = Ledger(), dict.fromkeys("abc", 0)
    for who in expected:
        ledger.open(who)
    for source, target, amount in moves:
        ledger.transfer(source, target, amount)
        expected[source] -= amount
        expected[target] += amount
    assert (ledger.balances, ledger.world) == (expected, 0)


def test_nothing_moves_to_or_from_an_account_that_is_not_there() -> None:
    ledger = Ledger()
    ledger.open("a")
    for source, target in (("a", "ghost"), ("ghost", "a")):
        with pytest.raises(LedgerError, match="no account 'ghost'"):
            ledger.transfer(source, target, 5)
    assert (ledger.balances, ledger.world) == ({"a": 0}, 0)


def test_what_is_minted_charged_and_left_over_comes_from_and_goes_to_the_world() -> None:
    ledger = Ledger()
    ledger.open("a")
    assert ledger.mint("a", 900) == 900
    ledger.charge("a", 200)
    assert (ledger.balances, ledger.world, ledger.total) == ({"a": 700}, -700, 0)
    assert ledger.close("a") == 700
    assert (ledger.balances, ledger.world) == ({}, 0)
    assert Ledger({"a": 5}, world=-3).total == 2


def test_what_overflows_the_cap_stays_with_the_world() -> None:
    ledger = Ledger()
    ledger.open("a")
    assert ledger.mint("a", 700, cap=1000) == 700
    assert ledger.mint("a", 700, cap=1000) == 300
    assert ledger.mint("a", 1, cap=500) == 0
    assert (ledger.balance("a"), ledger.world) == (1000, -1000)


def test_a_charge_may_lead_into_debt_and_the_world_takes_the_debt_of_the_dead() -> None:
    ledger = Ledger()
    ledger.open("a")
    ledger.charge("a", 30)
    assert ledger.balance("a") == -30
    assert ledger.close("a") == -30
    assert (ledger.balances, ledger.world) == ({}, 0)


def test_an_unknown_account_is_named() -> None:
    said = "no account 'ghost': open it before energy moves, and not after it was closed"
    with pytest.raises(LedgerError, match=f"^{said}$"):
        Ledger().charge("ghost", 1)
    ledger = Ledger()
    ledger.open("a")
    with pytest.raises(LedgerError, match="account 'a' is open already"):
        ledger.open("a")


@pytest.mark.parametrize("amount", [-1, 0.5, 1.0, True, "1"])
def test_only_whole_amounts_move(amount: Any) -> None:
    ledger = Ledger()
    ledger.open("a")
    with pytest.raises(LedgerError, match="whole number of mATP"):
        ledger.charge("a", amount)

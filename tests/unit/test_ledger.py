from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from symbiont_ecology.economics.ledger import Ledger, LedgerError

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
            assert (
                TypeAdapter(Ledger).dump_json(ledger) == before
            )  # a refused movement moves nothing
        assert ledger.total == 0
    assert TypeAdapter(Ledger).validate_json(TypeAdapter(Ledger).dump_json(ledger)) == ledger


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


def test_a_transfer_to_oneself_changes_nothing() -> None:
    ledger = Ledger()
    ledger.open("a")
    ledger.mint("a", 50)
    ledger.transfer("a", "a", 20)
    assert ledger.balance("a") == 50


def test_an_unknown_account_is_named() -> None:
    with pytest.raises(LedgerError, match="no account 'ghost'"):
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

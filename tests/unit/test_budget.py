from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from symbiont_ecology.economics.budget import ComputeBudget, Cost, Phase

COUNT = st.integers(0, 10**18)
COSTS = st.builds(Cost, *[COUNT] * 7)


@given(st.lists(st.tuples(st.sampled_from(get_args(Phase)), COSTS), max_size=8), st.randoms())
def test_charges_add_up_in_any_order_and_phases_stay_apart(charges: list[tuple[Phase, Cost]], random) -> None:  # type: ignore[no-untyped-def]
    budget, shuffled = ComputeBudget(), ComputeBudget()
    for phase, cost in charges:
        budget.charge(phase, cost)
    random.shuffle(charges)
    for phase, cost in charges:
        shuffled.charge(phase, cost)
    assert budget == shuffled
    assert budget.select == sum((cost for phase, cost in charges if phase == "select"), Cost())
    assert budget.total == sum((cost for _, cost in charges), Cost())
    assert TypeAdapter(ComputeBudget).validate_json(TypeAdapter(ComputeBudget).dump_json(budget)) == budget

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from symbiont_ecology.economics import Cost

COUNT = st.integers(0, 10**18)
COSTS = st.builds(Cost, *[COUNT] * 6)


@given(st.lists(COSTS, max_size=8), st.randoms())
def test_costs_add_up_exactly_in_any_order(costs: list[Cost], shuffler: random.Random) -> None:
    total = sum(costs, Cost())
    shuffler.shuffle(costs)
    assert sum(costs, Cost()) == total
    assert total.flops == sum(one.flops for one in costs)
    assert TypeAdapter(Cost).validate_json(TypeAdapter(Cost).dump_json(total)) == total

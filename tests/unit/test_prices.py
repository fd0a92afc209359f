from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.registry import validate
from symbiont_ecology.ecology.prices import Prices

SHARE = st.floats(0, 1)


def test_the_bare_hosts_mean_rollout_costs_a_quarter_of_an_atp_on_any_host() -> None:
    for hidden in (64, 1024):
        shape = HostShape(
            4, hidden, 4, 4, hidden // 4, 4 * hidden, 1000, 512, 12 * hidden * hidden, 0
        )
        mean = shape.rollout_flops(0, 30, 6)
        assert Prices().cost(mean, mean) == 250
        assert Prices().cost(3 * mean, mean) == 750
        assert Prices().cost(mean - 1, mean) == 249  # rounded down, the rest stays with the world


@given(SHARE, SHARE)
def test_scarce_success_pays_more_within_bounds(one: float, other: float) -> None:
    prices = Prices()
    low, high = prices.price(max(one, other)), prices.price(min(one, other))
    assert prices.lowest <= low <= high <= prices.highest
    assert (prices.price(0.0), prices.price(1.0)) == (prices.highest, prices.lowest)


@given(SHARE, st.lists(SHARE, max_size=20))
def test_the_success_average_stays_a_share_and_ignores_order(
    success: float, rewards: list[float]
) -> None:
    prices = Prices()
    after = prices.update_success(success, rewards)
    assert 0 <= after <= 1
    assert after == prices.update_success(success, rewards[::-1])
    if not rewards:
        assert after == success


def test_rent_is_in_proportion_to_the_share_of_the_host_that_is_held() -> None:
    rents = [Prices(rent=1000).rent_for(count, 1_000_000) for count in (0, 999, 50_000, 1_000_000)]
    assert rents == [0, 0, 50, 1000]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rollout": 0}, "rollout: expected greater than 0, got 0"),
        ({"lowest": 3000}, r"lowest: expected at most highest \(2400\), got 3000"),
    ],
)
def test_impossible_prices_are_refused(fields: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        validate(Prices, fields, "economy")

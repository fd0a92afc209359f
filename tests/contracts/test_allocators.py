"""What every allocator promises, and what each of them is for; a new one is tested by itself."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from symbiont_ecology.ecology import SuccessPosterior
from symbiont_ecology.ecology.routing.allocators import allocators

CELLS = ("math.add/short", "string.sort/short", "logic.bool/long", "h07")
posteriors = st.builds(SuccessPosterior, st.floats(0, 50), st.floats(0, 50))


@pytest.mark.parametrize("name", allocators.names())
@given(
    cells=st.lists(st.sampled_from(CELLS), max_size=12),
    allowance=st.dictionaries(st.sampled_from(("o1", "o2", "o9", "o10")), st.integers(0, 5)),
    believed=st.dictionaries(
        st.sampled_from(("o1", "o2", "o9", "gone")),
        st.dictionaries(st.sampled_from(CELLS), posteriors),
    ),
    seed=st.integers(0, 999),
)
def test_an_allocator_hands_out_what_can_be_paid_for(
    name: str,
    cells: list[str],
    allowance: dict[str, int],
    believed: dict[str, dict[str, SuccessPosterior]],
    seed: int,
) -> None:
    allocator, before = allocators.build(name), dict(allowance)
    assigned = allocator.assign(cells, believed, allowance, np.random.default_rng(seed))
    assert allowance == before
    assert all(
        count <= allowance[organelle_id]
        for organelle_id, count in Counter(organelle_id for organelle_id, _ in assigned).items()
    )
    assert len(assigned) == min(len(cells), sum(allowance.values()))
    places = [place for _, place in assigned]
    assert len(set(places)) == len(places)
    assert set(places) <= set(range(len(cells)))
    assert assigned == allocator.assign(cells, believed, allowance, np.random.default_rng(seed))
    shuffled = dict(reversed(allowance.items())), dict(reversed(believed.items()))
    assert assigned == allocator.assign(
        cells, shuffled[1], shuffled[0], np.random.default_rng(seed)
    )


@pytest.mark.parametrize("known", [SuccessPosterior(), SuccessPosterior(3.0, 1.0)])
@pytest.mark.parametrize("name", allocators.names())
def test_an_allocator_favours_nobody_by_name(name: str, known: SuccessPosterior) -> None:
    everyone, cells = ("o9", "o10", "o100"), ["math.add/short"] * 10
    believed = {organelle_id: {"math.add/short": known} for organelle_id in everyone}
    asked = Counter[str]()
    for seed in range(100):
        generator = np.random.default_rng(seed)
        dealt = allocators.build(name).assign(
            cells, believed, dict.fromkeys(everyone, 10), generator
        )
        asked[dealt[0][0]] += 1  # one of each deal: questions of a generation are not independent
    assert stats.chisquare([asked[organelle_id] for organelle_id in everyone]).pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("thompson", 190, 200), ("epsilon_greedy", 160, 199), ("uniform", 80, 120)],
)
def test_an_allocator_sends_questions_to_whom_it_is_to_believe_in(
    name: str, least: int, most: int
) -> None:
    known = {"o1": SuccessPosterior(40, 2), "o2": SuccessPosterior(2, 40)}
    believed = {who: {"math.add/short": posterior} for who, posterior in known.items()}
    assigned = allocators.build(name).assign(
        ["math.add/short"] * 200, believed, {"o1": 500, "o2": 500}, np.random.default_rng(0)
    )
    assert least <= Counter(organelle_id for organelle_id, _ in assigned)["o1"] <= most

"""The archive against pyribs' MAP-Elites, where nothing fades."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ribs.archives import CategoricalArchive

from symbiont_ecology.base.types import cell_name
from symbiont_ecology.ecology.success import Archive, Elite

FAMILIES, DEPTHS = ("math.add", "logic.bool", "string.sort"), ("short", "medium")
cells = st.tuples(st.sampled_from(FAMILIES), st.sampled_from(DEPTHS))


@given(st.lists(st.tuples(cells, st.floats(0, 1, width=32)), min_size=1, max_size=40))
def test_within_a_generation_elites_are_those_of_map_elites(
    tried: list[tuple[tuple[str, str], float]],
) -> None:
    ours = Archive()
    theirs = CategoricalArchive(solution_dim=1, categories=[FAMILIES, DEPTHS])
    for number, (cell, score) in enumerate(tried):
        is_new = ours.add(
            cell_name(cell), Elite(f"o{number}", f"w{number}", 4, score, generation=7)
        )  # type: ignore[arg-type]
        status = theirs.add_single([number], score, cell)["status"]
        assert is_new == bool(status)
    held = theirs.data(["solution", "objective", "measures"])
    assert {name: (elite.organelle_id, elite.score) for name, elite in ours.elites.items()} == {
        cell_name(tuple(cell)): (f"o{int(number[0])}", np.float32(score))  # type: ignore[arg-type]
        for number, score, cell in zip(
            held["solution"], held["objective"], held["measures"], strict=True
        )
    }
    assert len(ours.elites) == theirs.stats.num_elites

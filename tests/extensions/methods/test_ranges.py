"""The range of an organelle: which prompts are strange to it."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology import load_config
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.extensions.methods.speciation import PromptRange, profile
from symbiont_ecology.run.build import mixture

STRANGE = -5.0


def prompts(style: str, count: int = 40) -> dict[str, list[str]]:
    mix = mixture(load_config("steady", [f"tasks.style={style}"]))
    return {
        name: [
            item.prompt
            for depth in mix.depths_of(mix.families[name])
            for item in mix.draw((name, depth), count, Draw(0)(name, depth))
        ]
        for name in mix.names
    }


@pytest.mark.parametrize("style", ["terse", "natural"])
def test_prompts_of_other_families_are_strange_and_new_ones_of_its_own_are_not(style: str) -> None:
    families = prompts(style)
    for name, own in families.items():
        known = PromptRange()
        for start in range(0, 40, 8):
            known = known.after(own[start : start + 4] + own[40 + start : 44 + start])
        new = own[4:8] + own[44:48]
        assert min(map(known.familiarity, new)) > STRANGE, name
        for other, theirs in families.items():
            if other != name:
                assert max(map(known.familiarity, theirs)) < STRANGE, (name, other)


def test_what_somebody_met_lately_widens_the_range() -> None:
    families = prompts("terse")
    known = PromptRange().after(families["math.add"][:16])
    assert known.familiarity(families["string.sort"][0]) < STRANGE
    for start in range(0, 40, 8):
        known = known.after(families["string.sort"][start : start + 8])
    assert known.familiarity(families["string.sort"][40]) > STRANGE


def test_a_range_is_open_until_two_prompts_were_met() -> None:
    assert PromptRange().is_open
    assert PromptRange().after(["one"]).is_open
    assert not PromptRange().after(["one", "two"]).is_open
    assert PromptRange().after([]).is_open


def test_profiles_are_unit_vectors_of_any_text() -> None:
    for text in ("a", "réd \x00", "x" * 10_000):
        assert np.linalg.norm(profile(text)) == pytest.approx(1)
    assert not profile("").any()

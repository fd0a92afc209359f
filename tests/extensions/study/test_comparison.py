"""Comparisons of outcomes that were made up, so that the truth is known."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_up import made_up_results
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.extensions.study.cli import tell_comparison
from symbiont_ecology.extensions.study.comparison import Summary, summarise
from symbiont_ecology.extensions.study.figures import draw_all
from symbiont_ecology.extensions.study.outcomes import Tuning
from symbiont_ecology.extensions.study.pack import render
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results

FAMILIES, DEPTHS, PER_CELL = tuple("abcdef"), ("short", "medium"), 40
shifts = ("in-distribution", "depth", "retention")
TRUE = {"ecology": 0.7, "single": 0.5, "twin": 0.7, "sft": 0.9}
"""How often an arm is right; the twin is as good as the ecology."""
BUDGETS = (1.0, 4.0)


def protocol(seeds: int) -> dict[str, Any]:
    arms = {name: {"about": name, "routing": "learned"} for name in TRUE}
    arms["routed"] = {"about": "the same runs", "of": "single", "routing": "family"}
    made = Protocol.model_validate(
        {
            "name": "made-up",
            "question": "does the instrument see what is there?",
            "base": [],
            "unit_flops": 1e9,
            "budgets": BUDGETS,
            "seeds": list(range(seeds)),
            "arms": arms,
            "shifts": shifts,
            "per_cell": PER_CELL,
            "flip": {"at": 4, "back": 8, "extra": [0, 1]},
        }
    )
    return made.model_dump(mode="json")


def bits(generator: np.random.Generator, share: float) -> dict[str, str]:
    cells = [f"{family}/{depth}" for family in FAMILIES for depth in DEPTHS]
    return {
        cell: "".join("01"[generator.random() < share] for _ in range(PER_CELL)) for cell in cells
    }


def system(generator: np.random.Generator, share: float) -> dict[str, Any]:
    return {
        "bits": {shift: bits(generator, share) for shift in shifts},
        "flops": dict.fromkeys(shifts, 1e6),
        "organelles": 2,
    }


def rows(seeds: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(0)
    signed = {"schema": 1, "protocol": "0123", "source": "4567"}
    host = system(generator, 0.2)
    host["bits"] |= {"retention": bits(generator, 0.8)}
    alone = {"kind": "host", "arm": "host", "seed": 0, "host": "89ab", "versions": {"numpy": "2"}}
    yield {**signed, **alone, "systems": {"host": host}}
    for seed in range(seeds):
        for arm, share in TRUE.items():
            head = {**signed, "arm": arm, "seed": seed, "option": 0}
            for budget in BUDGETS:
                life = {"rollouts": 10, "births": 1, "merges": 0, "deaths": 1, "alive": 3}
                yield {
                    **head,
                    "kind": "main",
                    "budget": budget,
                    "life": {**life, "earned": 10.0, "spent": 5.0},
                    "train": {"flops": 1e9 * budget, "executed": 5e8 * budget},
                    "systems": {way: system(generator, share) for way in ("learned", "family")},
                }
            legs = [
                {"phase": phase, "extra": extra, "train_flops": 1e9 * (since + extra)}
                | {"systems": {way: system(generator, share) for way in ("learned", "family")}}
                for phase, since, extras in (
                    ("before", 4, [0]),
                    ("flipped", 4, [0, 1]),
                    ("back", 8, [0, 1]),
                )
                for extra in extras
            ]
            yield {**head, "kind": "flip", "budget": 4.0, "families": list("abc"), "legs": legs}


@pytest.fixture(scope="module")
def left() -> list[dict[str, Any]]:
    """What eight seeds left."""
    return list(rows(8))


@pytest.fixture(scope="module")
def whole(left: list[dict[str, Any]]) -> Results:
    return made_up_results(protocol(8), left)


@pytest.fixture(scope="module")
def summary(whole: Results) -> Summary:
    return summarise(whole)


def test_a_difference_that_is_there_is_claimed_and_one_that_is_not_is_not(summary: Summary) -> None:
    for budget in ("1", "4"):
        found = summary.differences[budget]["in-distribution"]
        for arm, points in {"single": 0.2, "sft": -0.2, "routed": 0.2, "host": 0.5}.items():
            assert found[arm].estimate == pytest.approx(points, abs=0.04)
            assert found[arm].low < points < found[arm].high
        assert found["single"].is_claimed
        assert found["twin"].low < 0 < found["twin"].high
        assert not found["twin"].is_claimed
    flip = summary.flip["differences"]["area"]
    assert flip["single"].estimate == pytest.approx(0.2, abs=0.04)
    assert flip["single"].is_claimed
    assert not flip["twin"].is_claimed


def test_what_needs_more_seeds_is_not_claimed_from_fewer(summary: Summary) -> None:
    depth = summary.differences["4"]["depth"]["single"]
    assert depth.p_adjusted < 0.05
    assert not depth.is_claimed
    several = summarise(made_up_results(protocol(16), rows(16)))
    assert several.differences["4"]["depth"]["single"].is_claimed


def test_retention_is_of_what_the_host_could_do(whole: Results, summary: Summary) -> None:
    kept = summary.accuracy["4"]["retention"]
    assert kept["host"].estimate == 1.0
    assert 0.75 < whole.known.mean() < 0.85
    for arm, share in TRUE.items():
        assert kept[arm].estimate == pytest.approx(share, abs=0.03)


def test_retention_alone_of_a_host_that_could_do_nothing_says_nothing() -> None:
    made = {**protocol(2), "shifts": ["retention", *shifts[:1]]}
    found = list(rows(2))
    answers = found[0]["systems"]["host"]["bits"]["retention"]
    answers |= dict.fromkeys(answers, "0" * PER_CELL)
    assert "retention" not in summarise(made_up_results(made, found)).accuracy["4"]


def test_nothing_is_claimed_of_families_in_general_from_one_of_them() -> None:
    """The seeds agree, the families do not: p is small, and the interval holds 0."""
    found = list(rows(8))
    for row in found:
        if row["kind"] == "main" and row["arm"] == "ecology":
            cells = row["systems"]["learned"]["bits"]["in-distribution"]
            cells |= {
                cell: "1" * PER_CELL if cell[0] == "a" else "10" * (PER_CELL // 2) for cell in cells
            }
    summary = summarise(made_up_results(protocol(8), found))
    apart = summary.differences["4"]["in-distribution"]["single"]
    assert apart.p_adjusted < 0.05
    assert apart.low < 0 < apart.high
    assert not apart.is_claimed


def page_of(summary: Summary, figures: list[str]) -> str:
    """The page of a pack."""
    tuning = Tuning(chosen={arm: {"1": 0, "4": 0} for arm in TRUE})
    parts = {"tuning": tuning, "figures": figures, "digest": "0123"}
    return render("pack.md.j2", summary=summary, **parts)


@pytest.mark.parametrize("count", [1, 2, 5, 14, 31])
def test_every_part_of_a_suite_makes_a_page(
    left: list[dict[str, Any]], tmp_path: Path, count: int
) -> None:
    """Seed by seed, as a suite does its jobs: whatever is finished when somebody looks."""
    results = made_up_results(protocol(8), left[:count])
    summary = summarise(results)
    page = page_of(summary, draw_all(results, summary, tmp_path))
    assert page.startswith("# made-up")
    assert "nan" not in page
    assert "| ecology |" in render("excerpt.md.j2", summary=summary)
    tell_comparison(summary)


def test_few_seeds_are_named_as_the_reason_of_a_large_q(
    left: list[dict[str, Any]], whole: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    few = summarise(made_up_results(protocol(8), [row for row in left if row["seed"] < 3]))
    tell_comparison(few)
    for told in (page_of(few, []), capsys.readouterr().out):
        assert "From so few seeds (3) q cannot be below 0.25" in told
    assert "q cannot be below" not in page_of(summarise(whole), [])


def test_names_cannot_break_a_table(left: list[dict[str, Any]]) -> None:
    odd = protocol(8)
    odd["arms"]["twin"]["about"] = "alike | or not\nat all"
    page = page_of(summarise(made_up_results(odd, left[:9])), [])
    assert "| twin | alike \\| or not at all | verdicts |" in page


def test_answers_are_one_tidy_table(left: list[dict[str, Any]], whole: Results) -> None:
    run = next(row for row in left if row["kind"] == "main" and row["arm"] == "sft")
    answers = whole.answers.query("arm == 'sft' and seed == 0 and budget == 1 and phase == 'run'")
    asked = answers.query("routing == 'learned' and shift == 'depth' and cell == 'c/short'")
    bits = run["systems"]["learned"]["bits"]["depth"]["c/short"]
    assert asked.right.tolist() == [int(bit) for bit in bits]
    assert asked.item.tolist() == list(range(PER_CELL))
    shifts = answers.groupby(["routing", "shift"], observed=True).flops.sum()
    assert np.allclose(shifts, 1e6)
    assert set(whole.answers.query("phase == 'back'").train_flops) == {8e9, 9e9}


def test_what_cannot_be_compared_is_said_in_words(left: list[dict[str, Any]]) -> None:
    with pytest.raises(DataError, match="bare host"):
        summarise(made_up_results(protocol(8), left[1:]))
    with pytest.raises(DataError, match="expected outcomes of a suite, but 1"):
        made_up_results(protocol(8), [left[0], {**left[1], "kind": "mane"}])
    short = copy.deepcopy(left)
    del short[-2]["systems"]["learned"]["bits"]["depth"]["c/short"]
    with pytest.raises(DataError, match="arm 'sft': expected runs that"):
        summarise(made_up_results(protocol(8), short))


def test_arms_without_a_seed_in_common_differ_over_questions_alone(
    left: list[dict[str, Any]],
) -> None:
    others = [
        row
        for row in left
        if row["arm"] == "host" or (row["arm"] == "ecology") == (row["seed"] < 3)
    ]
    unpaired = summarise(made_up_results(protocol(8), others))
    differences = unpaired.differences["4"]["in-distribution"]
    skill = unpaired.accuracy["4"]["in-distribution"]
    for arm, gap in (("single", 0.2), ("twin", 0.0), ("sft", -0.2)):
        test = differences[arm]
        assert test.estimate == pytest.approx(skill["ecology"].estimate - skill[arm].estimate)
        assert test.low < gap < test.high
        assert (test.p, test.detectable, test.is_claimed, len(test.seeds)) == (1.0, None, False, 1)
    assert len(differences["host"].seeds) == 3
    tell_comparison(unpaired)

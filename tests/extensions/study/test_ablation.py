"""Ablations whose truth is known: what is there is seen, what is not there is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablated import made_up
from made_up import made_up_results
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.shipped import config_folder
from symbiont_ecology.extensions.study.ablation import (
    AblationResults,
    load_ablation,
    render_ablation,
    results_of,
    smallest_q,
)
from symbiont_ecology.extensions.study.comparison import Difference
from symbiont_ecology.extensions.study.protocol import Arm, FlipPlan, Protocol

DEFAULT = config_folder() / "ablations" / "default.yaml"
TRUTH = {
    "helps": {"accuracy": 0.05},
    "idles": {},
    "harms": {"accuracy": -0.05, "kept": -0.06},
    "saves": {"energy": -6e6, "flops": -6e6},
}


def concluded(results: dict[str, Any]) -> dict[str, dict[str, Difference]]:
    return AblationResults.model_validate(results).effects


def test_an_effect_that_is_there_holds_and_one_that_is_not_does_not() -> None:
    found = concluded(made_up(TRUTH))
    held = {
        (arm, name) for arm, own in found.items() for name, one in own.items() if one.is_claimed
    }
    assert held == {(arm, name) for arm, added in TRUTH.items() for name in added}
    for arm, added in TRUTH.items():
        for name, true in added.items():
            assert found[arm][name].low < true < found[arm][name].high


def test_worlds_in_which_nothing_matters_are_seldom_said_to_matter() -> None:
    claims = 0
    for world in range(100):
        found = concluded(made_up({"one": {}, "two": {}, "three": {}}, seeds=9, world=world))
        claims += any(one.is_claimed for own in found.values() for one in own.values())
    assert claims <= 10  # of a binomial with 100 tries at .05 more are had once in ninety times


def test_what_holds_is_read_out_in_plain_words() -> None:
    assert AblationResults.model_validate(made_up(TRUTH)).readings == {
        "helps": "adds accuracy",
        "idles": "nothing that 12 seeds can see",
        "harms": "costs accuracy and resilience where it stays",
        "saves": "saves practice FLOPs and answering FLOPs; nothing seen of its purpose",
    }


def test_a_mechanism_that_never_acted_is_not_said_to_have_done_nothing() -> None:
    numbers = made_up(TRUTH)
    numbers["measured"]["idles"] = numbers["measured"]["ecology"]
    results = AblationResults.model_validate(numbers)
    assert results.readings["idles"] == "never acted in these runs"
    page = render_ablation(results)
    assert ("| idles | q =" in page, "| helps | q =" in page) == (False, True)


def test_the_smallest_q_is_what_an_effect_that_stands_alone_gets() -> None:
    results = made_up(
        {"all": {"accuracy": 9.0}, **{name: {} for name in "abcdefg"}}, seeds=10, world=1
    )
    effect = concluded(results)["all"]["accuracy"]
    assert effect.p_adjusted == pytest.approx(smallest_q(56, 10))
    assert not effect.is_claimed
    assert smallest_q(56, 12) < 0.05


RIGHT = {"ecology": "1111", "less": "1001"}


def answers(right: str) -> dict[str, Any]:
    """Verdicts on two families; on b all of them are right."""
    bits = {"in-distribution": {"a/short": right, "b/short": "1111"}}
    return {"learned": {"bits": bits, "flops": {"in-distribution": 2400}}}


def lived(arm: str, seed: int) -> Iterator[dict[str, Any]]:
    """What a run left; family a flips, and nobody is right there until it flips back."""
    head = {"source": "4567", "protocol": "0123", "arm": arm, "seed": seed, "budget": 1.0}
    counts = dict.fromkeys(
        ("rollouts", "births", "merges", "deaths", "alive", "earned", "spent"), 0
    )
    life = {"solved": 3.0, "train": {"flops": 99, "executed": 99}, "life": counts}
    rest = {"option": 0, "selection_flops": 0, "systems": answers(RIGHT[arm])}
    yield {**head, "kind": "main", **life, **rest}
    legs = [
        {"phase": phase, "extra": extra, "train_flops": extra, "systems": answers(right)}
        for phase, right in (("flipped", "0000"), ("back", RIGHT[arm]))
        for extra in (0, 1)
    ]
    yield {**head, "kind": "flip", "families": ["a"], "legs": legs}


def test_everything_is_measured_by_seed_from_what_the_runs_left() -> None:
    arms = {"ecology": Arm(about="all"), "less": Arm(about="without it")}
    fields: dict[str, Any] = {"name": "made-up", "question": "?", "base": (), "unit_flops": 100.0}
    flip = FlipPlan(at=1, back=2, extra=(0, 1))
    plan = Protocol(**fields, budgets=(1,), seeds=(0, 1), arms=arms, flip=flip).model_dump(
        mode="json"
    )
    host = {
        "kind": "host",
        "arm": "host",
        "seed": 0,
        "host": "89ab",
        "versions": {},
        "source": "4567",
    }
    runs = [row for seed in (0, 1) for arm in RIGHT for row in lived(arm, seed)]
    found = results_of(made_up_results(plan, [{**host, "protocol": "0123"}, *runs]), [])
    same = {"coverage": [2.0, 2.0], "energy": [33.0, 33.0], "kept": [1.0, 1.0]}
    full = {"accuracy": [1.0, 1.0], "flops": [300.0, 300.0], "flipped": [0.5, 0.5], **same}
    half = {"accuracy": [0.75, 0.75], "flops": [400.0, 400.0], "flipped": [0.25, 0.25], **same}
    assert found.measured == {"ecology": full, "less": half}
    assert found.off_budget == pytest.approx(0.01)


@pytest.mark.parametrize("file", sorted(DEFAULT.parent.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_ablations_that_ship_can_be_run_and_can_show_something(file: Path) -> None:
    rows, plan = load_ablation(file)
    assert len(plan.seeds) >= 10
    assert smallest_q(6 * len(rows), len(plan.seeds)) < plan.level
    assert all(len(arm.tune) == 1 for arm in plan.arms.values())
    default = plan.config("ecology", 1, 0)
    for row in rows:
        assert plan.config(row.mechanism, 1, 0) != default


MISTAKES = {
    "mechanism: breading": "no mechanism 'breading'; did you mean 'breeding'?",
    "mechanism: prices, change: [economy.slop=1]": "did you mean 'economy.slope'?",
    "mechanism: tasks, change: ['tasks.depths=[long]']": "expected the tasks of 'ecology'",
    "mechanism: ecology": "none called ecology",
    "mechanism: host": "is the bare host",
    "mechanisms: breeding": "unknown key 'rows.0.mechanisms'; did you mean 'rows.0.mechanism'?",
    "mechanism: breeding, purpose: acuracy": "rows.0.purpose: expected 'accuracy', 'retention'",
}


@pytest.mark.parametrize(("row", "message"), MISTAKES.items())
def test_a_mistake_in_a_row_is_one_line(row: str, message: str, tmp_path: Path) -> None:
    purpose = "" if "purpose" in row else ", purpose: accuracy"
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"name: mine\nquestion: what?\nbase: [base]\nunit_flops: 1.0e+9\nbudgets: [1]\n"
        f"seeds: [0, 1]\nrows: [{{{row}{purpose}, about: it}}]\n"
    )
    with pytest.raises(ConfigError) as error:
        load_ablation(path)
    assert message in str(error.value)
    with pytest.raises(ConfigError, match="two seeds or more to pair"):
        load_ablation(DEFAULT, ["seeds=[0]"])

"""What a fault of an operator costs, and what a run with faults is like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from faulty import FAULTS, Act, Chance, breeds, goes_wrong, learns, of, raises
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.operators import Parent
from symbiont_ecology.base.errors import EcologyWarning
from symbiont_ecology.base.events import Born, PartFailed, Stillborn
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.run.start import resume, start
from toy import ToyHost, toy_config

pytestmark = pytest.mark.usefixtures("faulty_parts")


def of_rank(rank: int) -> Callable[[Parent], AdapterWeights]:
    """Children of that rank."""

    def child(parent: Parent) -> AdapterWeights:
        vector = np.zeros(parent.layout.size(rank), dtype=np.float32)
        return AdapterWeights(parent.layout, rank, 1.0, vector)

    return child


def of_another_host(parent: Parent) -> AdapterWeights:
    layout = AdapterLayout((("policy", 3, 4),))
    return AdapterWeights(layout, 1, 1.0, np.zeros(layout.size(1), dtype=np.float32))


def in_double(parent: Parent) -> AdapterWeights:
    return AdapterWeights(parent.layout, parent.rank, 1.0, parent.vector.astype(np.float64))


def not_finite(parent: Parent) -> AdapterWeights:
    return replace(parent, vector=np.full_like(parent.vector, np.nan))


WRONG_CHILDREN: dict[str, tuple[Act, str]] = {
    "no weights": (lambda: 3.0, "returned float, expected AdapterWeights"),
    "rank 0": (lambda: of_rank(0), "returned rank 0, expected 1 to 4"),
    "a rank that no slot holds": (lambda: of_rank(40), "returned rank 40, expected 1 to 4"),
    "another host's": (lambda: of_another_host, "returned weights of another layout"),
    "another precision": (lambda: in_double, "raised ValueError: expected a float32 vector"),
    "NaN": (lambda: not_finite, "returned weights that are not finite"),
    "an infinite scaling": (
        lambda: lambda parent: replace(parent, scaling=float("inf")),
        "returned the scaling inf, expected a finite number",
    ),
}


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_CHILDREN.values()])
def test_a_child_that_cannot_live_is_not_born_and_is_paid_for(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 2, act)
    finished = start(breeds(), tmp_path / "run", host=ToyHost())
    assert finished.is_complete
    assert finished.state.ledger.total == 0
    lost, born = of(Stillborn, tmp_path / "run"), of(Born, tmp_path / "run")
    assert len(lost) == Chance.calls // 2 > 0
    for event in lost:
        assert event.operator == "wild"
        assert event.fault.startswith(said)
        assert event.parents
    assert not {event.id for event in lost} & {event.id for event in born}
    assert any(event.operator == "wild" for event in born)


def test_a_run_with_faults_resumes_exactly(tmp_path: Path) -> None:
    """By the content of what they see, so that a call in a resumed process is the same."""

    @dataclass(frozen=True)
    class Picky(RewardRule):
        """Fails at answers of even length."""

        def __call__(self, rollout: Rollout) -> float:
            """The verdict, of the others."""
            if len(rollout.text) % 2 == 0:
                raise ValueError("even")
            return rollout.verdict

    reward_rules.register("picky")(Picky)
    plan = toy_config(generations=8, reward="picky")
    start(plan, tmp_path / "whole", host=ToyHost())
    start(plan, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    assert of(PartFailed, tmp_path / "whole")
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_who_fails_is_warned_of_once_in_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 5, raises)
    for name in ("run", "another run of this process"):
        with pytest.warns(EcologyWarning) as said:
            start(learns(4, reward="moody"), tmp_path / name, host=ToyHost())
        (line,) = [str(one.message) for one in said if "moody" in str(one.message)]
        assert line.startswith("reward rule 'moody' (faulty.py) raised ValueError: no such")
        assert "\n" not in line

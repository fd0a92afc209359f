"""Three things that more generations would not mend, found in a log; and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from symbiont_ecology.base.events import (
    Acted,
    Born,
    Event,
    GenerationEnded,
    Quarantined,
    Retired,
    Settled,
)
from symbiont_ecology.base.types import BlobRef
from symbiont_ecology.extensions.study.health import MIN_ROLLOUTS, Health

REF = BlobRef("0" * 64)


@dataclass(frozen=True)
class Life:
    """A run made up for a test: everyone answers ten questions in each generation."""

    generations: int = 6
    organelles: int = 4
    marks: float = 1.0
    revenue: int = 15_000
    more: Sequence[Event] = ()

    def events(self) -> Iterator[Event]:
        """The log, in its order."""
        everyone = [f"o{number}" for number in range(self.organelles)]
        for who in everyone:
            yield Born(0, who, "founder", (), REF, {})
        items = tuple(map(str, range(10)))
        for now in range(self.generations):
            for who in everyone:
                verdicts = (0.0,) * 9 + (self.marks,)
                yield Acted(now, who, "a/short", items, verdicts, 1, 99, 50, 10**6, "practice")
                yield Acted(now, who, "a/short", items, (1.0,) * 10, 1, 99, 50, 10**6, "probe")
                yield Settled(now, who, 1, self.revenue, 20_000, 500, 5_000)
            yield GenerationEnded(now, self.organelles, 0, 0, 0.3, 3, 100 * (now + 1), 0, 9, 2)
        yield from self.more


def found(life: Life, *, sees_gold: bool = False) -> list[str]:
    findings = list(Health.of(life.events()).findings(sees_gold=sees_gold))
    assert all(finding.seen and finding.mend for finding in findings)
    return [finding.name for finding in findings]


def test_a_healthy_run_is_told_in_numbers() -> None:
    child = Born(3, "o9", "refounded", ("o1",), REF, {})
    health = Health.of(Life(more=[child, Retired(4, "o1", "bankrupt", 4, -5)]).events())
    assert (health.generations, health.rollouts, health.right) == (6, 240, 24)
    assert (health.founders, health.births, health.bankrupt) == (4, 1, 1)
    assert (health.earned, health.spent) == (24 * 15_000, 24 * 20_501)
    assert list(health.findings()) == []


@pytest.mark.parametrize("marks", [0.0, 0.4])  # part of the marks is not right
def test_where_nothing_is_right_nothing_is_learned(marks: float) -> None:
    life = Life(marks=marks)
    assert found(life) == ["nothing is right"]
    assert found(life, sees_gold=True) == []
    few = replace(life, generations=1)
    assert Health.of(few.events()).rollouts < MIN_ROLLOUTS
    assert found(few) == []


def test_quarantines_are_sick_from_a_quarter_of_the_organelles_on() -> None:
    quarantine = [Quarantined(2, "o1", "a loss was not finite")]
    assert found(Life(organelles=5, more=quarantine)) == []
    assert found(Life(organelles=4, more=quarantine)) == ["numbers that are not finite"]


def test_bankruptcies_are_sick_if_as_many_as_were_founded_earned_less_than_half() -> None:
    broke = [Retired(3, f"o{number}", "bankrupt", 3, -5) for number in range(4)]
    assert found(Life(revenue=8_500, more=broke[:3])) == []
    assert found(Life(revenue=8_500, more=broke)) == ["everyone is bankrupt"]
    assert found(Life(revenue=15_000, more=broke)) == []

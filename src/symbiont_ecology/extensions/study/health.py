"""Health of a run, read from its event log: three things that more generations would not mend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from symbiont_ecology.base import events as kinds

MIN_ROLLOUTS = 60
"""Answers of practice from which on it is no accident that none is right."""
POISONED = 0.25
"""Share of organelles in quarantine that is more than an accident."""
POOR = 0.5
"""Share of its spending that a population must earn once as many are bankrupt as were founded."""


@dataclass(frozen=True)
class HealthFinding:
    """Something that is wrong: what was seen, and which key to change in which direction."""

    name: str
    seen: str
    mend: str


@dataclass(frozen=True)
class Health:
    """Some generations in numbers; ``right`` counts rollouts of practice with half of the marks or
    more, energy is in mATP."""

    generations: int
    rollouts: int
    right: int
    earned: int
    spent: int
    founders: int
    births: int
    bankrupt: int
    quarantined: int

    @classmethod
    def of(cls, log: Iterable[kinds.Event]) -> Health:
        """Return the numbers of a log."""
        counts = Counter[str]()
        for event in log:
            match event:
                case kinds.Acted(purpose="practice", verdicts=verdicts):
                    right = sum(verdict >= 0.5 for verdict in verdicts)
                    counts.update(rollouts=len(verdicts), right=right)
                case kinds.Settled(revenue=revenue, spent=spent):
                    counts.update(earned=revenue, spent=spent)
                case kinds.Born(generation=generation, parents=parents):
                    counts["births" if parents or generation else "founders"] += 1
                case kinds.Retired(cause="bankrupt"):
                    counts["bankrupt"] += 1
                case kinds.Quarantined():
                    counts["quarantined"] += 1
                case kinds.GenerationEnded():
                    counts["generations"] += 1
        return cls(**{field.name: counts[field.name] for field in fields(cls)})

    def findings(self, *, sees_gold: bool = False) -> Iterator[HealthFinding]:
        """Yield what is wrong; who learns from gold answers needs no right answer."""
        if not (self.right or sees_gold) and self.rollouts >= MIN_ROLLOUTS:
            mend = "give tasks.style the form that the host knows (symbiont look), or easier tasks"
            yield HealthFinding("nothing is right", f"0 right of {self.rollouts} answers", mend)
        if self.quarantined >= max(POISONED * (self.founders + self.births), 1):
            seen = f"{self.quarantined} organelles have weights or losses that are not finite"
            mend = "lower strategy.learning_rate, or take another host.dtype than float16"
            yield HealthFinding("numbers that are not finite", seen, mend)
        if self.bankrupt >= max(self.founders, 1) and self.earned < POOR * self.spent:
            seen = f"{self.bankrupt} bankrupt, {self.earned} mATP earned of {self.spent} spent"
            mend = "raise economy.base and economy.highest, or lower economy.rollout"
            yield HealthFinding("everyone is bankrupt", seen, mend)

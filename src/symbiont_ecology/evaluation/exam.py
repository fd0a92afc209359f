"""An exam: the same questions to the host, to SFT, to the best single organelle and to the routed portfolio.

What is chosen from practice costs nothing beyond training. What is chosen on selection questions costs their
answers, which are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symbiont_ecology.engine.world import Host
from symbiont_ecology.evaluation.answers import Watch, quietly
from symbiont_ecology.evaluation.measure import (
    Candidates,
    Evaluation,
    difference,
    evaluate_adapter,
    interval_values,
)
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.evaluation.routings import Routing
from symbiont_ecology.statistics import mcnemar

RESELECTED = ", reselected"


@dataclass(frozen=True)
class Exam:
    """Evaluations by the name of what was asked; ``main`` is the one that was asked for."""

    systems: Mapping[str, Evaluation]
    main: str
    train_flops: int

    def summary(self) -> dict[str, Any]:
        """All systems, how the main one differs from each, and what its training must answer to pay off."""
        main = self.systems[self.main]
        return {
            "systems": {name: one.summary() for name, one in self.systems.items()},
            "differences": {
                name: _difference(main, one) for name, one in self.systems.items() if name != self.main
            },
            "train_flops": self.train_flops,
            "break_even_solved": self.break_even(),
        }

    def break_even(self) -> float | None:
        """Solved questions after which training has paid off in FLOPs against the host; None is never."""
        costs = [self.systems[name].summary()["flops_per_solved"] for name in ("host", self.main)]
        saved = costs[0] - costs[1]
        return self.train_flops / saved if saved > 0 else None


def sit(
    candidates: Candidates,
    questions: Sequence[Question],
    host: Host,
    routing: str,
    *,
    way: Routing | None = None,
    selection: Sequence[Question] = (),
    sft: Path | None = None,
    watch: Watch = quietly,
) -> Exam:
    """The exam of a run; ``selection`` questions judge its candidates anew, beside what practice says."""
    systems = {name: candidates.evaluate(questions, host, name, watch=watch) for name in ("host", "single")}
    if sft is not None:
        systems["sft"] = evaluate_adapter(sft, questions, host)
    systems[routing] = candidates.evaluate(questions, host, routing, way=way, watch=watch)
    if selection:
        chosen = candidates.reselected(selection, host, watch)
        for name in dict.fromkeys(("single", routing)):
            again = way if name == routing else None
            systems[name + RESELECTED] = chosen.evaluate(questions, host, name, way=again, watch=watch)
    return Exam(systems, routing, candidates.portfolio.state.budget.train.flops)


def _difference(main: Evaluation, other: Evaluation) -> dict[str, Any]:
    """On the same questions: bootstrap interval, and McNemar's exact test."""
    pairs = list(zip(main.verdicts, other.verdicts, strict=True))
    wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return {**interval_values(difference(main, other)), "mcnemar_p": mcnemar(wins, losses)}

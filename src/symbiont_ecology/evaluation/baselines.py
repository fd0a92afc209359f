"""An exam: the same questions to the host, to SFT, to the best single organelle and to the routed
portfolio.

What is chosen from practice costs nothing beyond training. What is chosen on selection questions
costs their answers, which are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.answers import Progress, no_progress
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun, difference
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.evaluation.robustness import robustness
from symbiont_ecology.evaluation.spec import EvaluationSpec

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection questions."""


@dataclass(frozen=True)
class BaselineComparison:
    """Evaluations by the name of what was asked; ``main`` is the one that was asked for."""

    systems: Mapping[str, Evaluation]
    asked: Mapping[str, EvaluationSpec]
    main: str
    train_flops: int

    def summary(self) -> dict[str, Any]:
        """All systems, how the main one differs from each, and what its training must answer to pay
        off."""
        main = self.systems[self.main]
        return {
            "systems": {name: one.summary() for name, one in self.systems.items()},
            "differences": {
                name: difference(main, one)
                for name, one in self.systems.items()
                if name != self.main
            },
            "robustness": robustness(main.answers),
            "train_flops": self.train_flops,
            "break_even_solved": self.break_even(),
        }

    def break_even(self) -> float | None:
        """Right answers after which training and selection have paid off against the host; None is
        never."""
        costs = [self.systems[name].summary()["flops_per_solved"] for name in ("host", self.main)]
        saved, spent = (
            costs[0] - costs[1],
            self.train_flops + self.systems[self.main].selection.flops,
        )
        return spent / saved if saved > 0 else None


def compare_with_baselines(
    candidates: LoadedRun,
    asked: EvaluationSpec,
    questions: Sequence[Question],
    host: Host,
    *,
    selection: Sequence[Question] = (),
    sft: Path | None = None,
    watch: Progress = no_progress,
) -> BaselineComparison:
    """The exam of a run; ``selection`` questions judge its candidates anew, beside practice."""
    main, practised = asked.name, replace(asked, selection=None, most=None)
    alone = replace(practised, routing="single", routing_map=None)
    wanted = {"host": replace(alone, routing="host"), "single": alone}
    if sft is not None:
        wanted["sft"] = replace(alone, adapter=str(sft))
    wanted[main] = practised
    systems = {
        name: one.answered(candidates, questions, host, watch) for name, one in wanted.items()
    }
    if selection:
        one = replace(alone, selection=asked.selection, most=asked.most)
        anew = {"single" + RESELECTED: one, main + RESELECTED: asked}
        chosen = candidates.reselected(selection, host, watch)
        systems |= {
            name: one.answered(chosen, questions, host, watch) for name, one in anew.items()
        }
        wanted, main = wanted | anew, main + RESELECTED
    return BaselineComparison(systems, wanted, main, candidates.portfolio.state.spent.flops)

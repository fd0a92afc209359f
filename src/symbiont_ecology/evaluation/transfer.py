"""Transfer between families: what the best organelle of one family makes of another family's
questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.answers import Progress, no_progress
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.inference.routings import Routing
from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.mixture import TaskMixture

JUDGED_BY = 8
"""Selection questions per cell."""


def transfer_matrix(
    candidates: LoadedRun, questions: Sequence[Question], host: Host, watch: Progress = no_progress
) -> dict[str, Any]:
    """Accuracy of every family's best organelle on every family, and its mean gain over the host.

    Who is best is judged on selection questions. ``gain`` tells the family itself, other families
    of its convention group, and all others apart.
    """
    tasks = candidates.tasks
    families = tasks.families
    selection = draw_shifts(tasks, ["in-distribution"], JUDGED_BY, split="selection")
    candidates = candidates.reselected(selection, host, watch)
    portfolio = candidates.portfolio
    best = {
        name: portfolio.best_of(
            [cell for cell in portfolio.scores if cell.rpartition("/")[0] == name]
        )
        for name in families
    }
    bare = candidates.evaluate(questions, host, "host", watch=watch).by_family()
    table, gains = {}, dict[str, list[float]](own=[], group=[], others=[])
    for owner, organelle_id in best.items():
        found = candidates.evaluate(
            questions, host, "transfer", way=_all_to(organelle_id), watch=watch
        ).by_family()
        table[owner] = {name: share.estimate for name, share in found.items()}
        for name, share in found.items():
            is_near = _group(name, tasks) == _group(owner, tasks)
            kind = "own" if name == owner else "group" if is_near else "others"
            gains[kind].append(share.estimate - bare[name].estimate)
    return {
        "organelles": best,
        "host": {name: share.estimate for name, share in bare.items()},
        "accuracy": table,
        "gain": {kind: sum(found) / len(found) if found else None for kind, found in gains.items()},
    }


def _group(name: str, tasks: TaskMixture) -> str:
    """The convention group of a family, which may be one that the run never met."""
    return (tasks.families.get(name) or task_families.build(name)).group


def _all_to(organelle_id: str) -> Routing:
    """One organelle answers everything."""
    return lambda _, questions, ask: list(ask(questions, [organelle_id] * len(questions)))

"""Transfer between families: how the best organelle of one family does on another family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symbiont_ecology.base.types import Item, OrganelleId, cell_family
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.routings import AskOne
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.extensions.study.baselines import reselected
from symbiont_ecology.extensions.study.routings import best_of
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.mixture import TaskMixture

SELECTION_PER_CELL = 8
"""Selection items per cell that say which organelle is a family's best."""


@dataclass(frozen=True)
class TransferMatrix:
    """``organelles`` are each family's best, ``accuracy[owner][family]`` theirs on every family.

    ``gain`` is their mean gain over the host: on the family itself (``own``), on other families of
    its convention group, and on all others; None if there are none.
    """

    organelles: Mapping[str, OrganelleId]
    host: Mapping[str, float]
    accuracy: Mapping[str, Mapping[str, float]]
    gain: Mapping[str, float | None]


def transfer_matrix(
    run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
) -> TransferMatrix:
    """Ask the best organelle of every family about every family."""
    mixture = run.tasks
    selection = draw_shifts(mixture, ["in-distribution"], SELECTION_PER_CELL, split="selection")
    run, _ = reselected(run, selection, host, progress)
    cells: dict[str, list[str]] = {name: [] for name in mixture.families}
    for cell in run.pool.scores:
        cells.setdefault(cell_family(cell), []).append(cell)
    best = {name: best_of(run.pool, cells[name]) for name in mixture.families}
    host_shares = run.evaluate(items, host, "host", progress=progress).by_family()
    accuracy, gains = {}, dict[str, list[float]](own=[], group=[], others=[])
    for owner, organelle_id in best.items():
        answers = run.evaluate(items, host, AskOne(organelle_id), progress=progress)
        shares = answers.by_family()
        accuracy[owner] = {name: share.estimate for name, share in shares.items()}
        for name, share in shares.items():
            is_near = _group(name, mixture) == _group(owner, mixture)
            kind = "own" if name == owner else "group" if is_near else "others"
            gains[kind].append(share.estimate - host_shares[name].estimate)
    means = {kind: sum(gain) / len(gain) if gain else None for kind, gain in gains.items()}
    return TransferMatrix(
        best, {name: share.estimate for name, share in host_shares.items()}, accuracy, means
    )


def _group(name: str, mixture: TaskMixture) -> str:
    """Return the convention group of a family, which may be one that the run never met, or a word
    of somebody's file."""
    if name not in mixture.families and name not in tasks.names():
        return name
    return (mixture.families.get(name) or tasks.build(name)).group

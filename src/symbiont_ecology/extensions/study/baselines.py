"""The same items to the host, to SFT, to the best single organelle and to the routed pool; and the
best organelle of each family on all families.

What is chosen from practice costs nothing beyond training. What is chosen on selection items costs
their answers, which are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.types import Item, OrganelleId, cell_name, last_turn
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.routing.routers import Observation
from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec, log_evaluation
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.items import read_items, some_of
from symbiont_ecology.evaluate.measure import LoadedRun, SystemComparison
from symbiont_ecology.evaluate.routings import AskOne
from symbiont_ecology.extensions.study.routings import best_of_families
from symbiont_ecology.run.runtime import Host

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection items."""
SFT = "sft"


class BaselineSpec(EvaluationSpec):
    """An evaluation whose candidates are judged on items of the file ``selection``, of which
    ``most`` are used; or in which the PEFT folder ``adapter`` answers everything."""

    FILES: ClassVar[tuple[str, ...]] = (*EvaluationSpec.FILES, "selection", "adapter")
    selection: str | None = None
    most: int | None = None
    adapter: str | None = None

    def selection_items(self, run: LoadedRun) -> list[Item]:
        """Return what candidates are judged by; nothing, if practice does."""
        if self.selection is None:
            return []
        return some_of(run.as_asked(read_items(Path(self.selection))), self.most)


def compare_with_baselines(
    run: LoadedRun,
    spec: BaselineSpec,
    items: Sequence[Item],
    host: Host,
    *,
    selection: Sequence[Item] = (),
    progress: Progress = no_progress,
) -> tuple[SystemComparison, Cost]:
    """Ask the host, the best single organelle, the routing of the specification, and its adapter;
    where there are ``selection`` items, the routings once more, judged by these. Return the
    answers, which the run's log keeps, and what it took to judge."""
    practice = spec.model_copy(update={"selection": None, "most": None, "adapter": None})
    specs = {name: practice.model_copy(update={"routing": name}) for name in (HOST, "single")}
    main, cost = kind_of(spec.routing), Cost()
    specs[main] = practice
    runs = dict.fromkeys(specs, run)
    if selection:
        judged, cost = reselected(run, selection, host, progress)
        for name in ("single", main):
            again = {"adapter": None, "routing": specs[name].routing}
            specs[name + RESELECTED] = spec.model_copy(update=again)
            runs[name + RESELECTED] = judged
        main += RESELECTED
    systems = {
        name: runs[name].evaluate(items, host, one.routing, progress=progress)
        for name, one in specs.items()
    }
    if spec.adapter is not None:
        weights = {SFT: read_peft(Path(spec.adapter), host.layout)}
        tuned = replace(run, pool=replace(run.pool, weights=weights))
        specs[SFT] = practice.model_copy(update={"routing": "single", "adapter": spec.adapter})
        answers = tuned.evaluate(items, host, AskOne(SFT), progress=progress)
        systems[SFT] = replace(answers, source=spec.adapter, routing=SFT)
    for name, evaluation in systems.items():
        spent = cost if name.endswith(RESELECTED) else Cost()
        selected = {"selection_flops": spent.flops, "selection_tokens": spent.tokens}
        log_evaluation(evaluation, run, specs[name], **selected)
    return SystemComparison(systems, main, run.pool.state.spent.flops + cost.flops), cost


def reselected(
    run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
) -> tuple[LoadedRun, Cost]:
    """Return the run with every elite, and the host, judged anew on selection items, and what that
    took."""
    candidates = (HOST, *run.pool.elites)
    rollouts = run.evaluator(host, progress).ask(
        [item for item in items for _ in candidates],
        [candidate for _ in items for candidate in candidates],
    )
    verdicts: dict[str, dict[OrganelleId, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        verdicts[cell_name(rollout.item.cell)][rollout.organelle_id].append(rollout.verdict)
    scores = {
        cell: {name: sum(values) / len(values) for name, values in by_organelle.items()}
        for cell, by_organelle in verdicts.items()
    }
    new = [Observation(last_turn(r.item.prompt), r.organelle_id, r.verdict) for r in rollouts]
    observations = (*run.pool.observations, *new)
    pool = replace(run.pool, scores=scores, observations=observations, source="selection")
    return replace(run, pool=pool), sum((rollout.cost for rollout in rollouts), Cost())


@dataclass(frozen=True)
class TransferMatrix:
    """``organelles`` are each family's best by practice, ``accuracy[owner][family]`` theirs on all
    families, and ``gain`` is their mean gain over the host: on the family itself (``own``) and on
    all ``others``."""

    organelles: Mapping[str, OrganelleId]
    host: Mapping[str, float]
    accuracy: Mapping[str, Mapping[str, float]]
    gain: Mapping[str, float]


def transfer_matrix(
    run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
) -> TransferMatrix:
    """Ask the best organelle of every family about every family."""
    best = best_of_families(run.pool, run.tasks.families)
    accuracy = dict[str, dict[str, float]]()
    for owner, organelle_id in {HOST: HOST, **best}.items():
        answers = run.evaluate(items, host, AskOne(organelle_id), progress=progress)
        accuracy[owner] = {name: share.estimate for name, share in answers.by_family().items()}
    bare, gains = accuracy.pop(HOST), defaultdict[str, list[float]](list)
    for owner, shares in accuracy.items():
        for name, share in shares.items():
            gains["own" if name == owner else "others"].append(share - bare[name])
    means = {kind: sum(gain) / len(gain) for kind, gain in gains.items()}
    return TransferMatrix(best, bare, accuracy, means)

"""The same items to the host, to SFT, to the best single organelle and to the routed pool; and the
best organelle of each family on all families."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec, log_evaluation
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.measure import LoadedRun, SystemComparison
from symbiont_ecology.evaluate.routings import AskOne
from symbiont_ecology.extensions.study.routings import best_of_families
from symbiont_ecology.run.runtime import Host


class BaselineSpec(EvaluationSpec):
    """An evaluation beside which the PEFT folder ``adapter`` answers everything."""

    adapter: str | None = None


def compare_with_baselines(
    run: LoadedRun,
    spec: BaselineSpec,
    items: Sequence[Item],
    host: Host,
    progress: Progress = no_progress,
) -> SystemComparison:
    """Ask the host, the best single organelle, the routing of the specification, and its adapter.
    The run's log keeps all of it."""
    plain = spec.model_copy(update={"adapter": None})
    names = dict.fromkeys((HOST, "single", spec.routing))
    specs = {name: plain.model_copy(update={"routing": name}) for name in names}
    systems = {name: run.evaluate(items, host, name, progress=progress) for name in specs}
    if spec.adapter is not None:
        weights = {"sft": read_peft(Path(spec.adapter), host.layout)}
        tuned = replace(run, pool=replace(run.pool, weights=weights))
        specs["sft"] = spec.model_copy(update={"routing": "single"})
        answers = tuned.evaluate(items, host, AskOne("sft"), progress=progress)
        systems["sft"] = replace(answers, source=spec.adapter, routing="sft")
    for name, evaluation in systems.items():
        log_evaluation(evaluation, run, specs[name])
    return SystemComparison(systems, spec.routing)


def transfer_matrix(
    run: LoadedRun, items: Sequence[Item], host: Host, progress: Progress = no_progress
) -> dict[str, Any]:
    """Ask the best organelle of every family, by practice, about every family.

    ``accuracy[owner][family]`` is that of the owner's best, and ``gain`` the mean gain of all over
    the host: on the family itself (``own``) and on all ``others``.
    """
    best, accuracy = best_of_families(run.pool, run.tasks.families), dict[str, dict[str, float]]()
    for owner, organelle_id in {HOST: HOST, **best}.items():
        answers = run.evaluate(items, host, AskOne(organelle_id), progress=progress)
        accuracy[owner] = {
            name: part.accuracy().estimate for name, part in answers.families.items()
        }
    bare, gains = accuracy.pop(HOST), defaultdict[str, list[float]](list)
    for owner, shares in accuracy.items():
        for name, share in shares.items():
            gains["own" if name == owner else "others"].append(share - bare[name])
    means = {kind: sum(gain) / len(gain) for kind, gain in gains.items()}
    return {"organelles": best, "host": bare, "accuracy": accuracy, "gain": means}

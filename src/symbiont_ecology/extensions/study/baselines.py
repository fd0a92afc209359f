"""The same items to the host, to SFT, to the best single organelle and to the routed pool.

What is chosen from practice costs nothing beyond training. What is chosen on selection items costs
their answers, which are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.statistics import Interval, wilson
from symbiont_ecology.base.types import Item, OrganelleId, cell_family, cell_name, last_turn
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.ecology.routing.routers import Observation
from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec, log_evaluation
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.items import read_items, some_of
from symbiont_ecology.evaluate.measure import LoadedRun, Record, SystemComparison
from symbiont_ecology.evaluate.routings import AskOne
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.extensions.study.routings import best_of
from symbiont_ecology.extensions.study.shifts import MARK, PERTURBED, PLAIN
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.mixture import TaskMixture

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection items."""
SFT = "sft"


class BaselineSpec(EvaluationSpec):
    """An evaluation whose candidates are judged on items of the file ``selection``, of which
    ``most`` are used; or in which the PEFT folder ``adapter`` answers everything."""

    selection: str | None = None
    most: int | None = None
    adapter: str | None = None

    def selection_items(self, run: LoadedRun) -> list[Item]:
        """Return what candidates are judged by; nothing, if practice does."""
        if self.selection is None:
            return []
        return some_of(run.as_asked(read_items(Path(self.selection))), self.most)


@dataclass(frozen=True)
class BaselineComparison(SystemComparison):
    """Systems on the same items; ``specs`` is what was asked of each, ``selection`` what it took
    to judge the candidates anew."""

    specs: Mapping[str, BaselineSpec]
    selection: Cost

    def record(self) -> Record:
        shares = {
            name: asdict(share)
            for name, share in robustness(self.systems[self.main].rollouts).items()
        }
        brittle = {"brittle": shares.pop("brittle")} if "brittle" in shares else {}
        return super().record() | {
            "train_flops": self.spent - self.selection.flops,
            "selection_flops": self.selection.flops,
            "selection_tokens": self.selection.tokens,
            "robustness": ({"accuracy": shares} if shares else {}) | brittle,
        }

    def log(self, run: LoadedRun) -> None:
        """Add every system to the run's log of evaluations."""
        for name, evaluation in self.systems.items():
            cost = self.selection if name.endswith(RESELECTED) else Cost()
            spent = {"selection_flops": cost.flops, "selection_tokens": cost.tokens}
            log_evaluation(evaluation, run, self.specs[name], **spent)


def compare_with_baselines(
    run: LoadedRun,
    spec: BaselineSpec,
    items: Sequence[Item],
    host: Host,
    *,
    selection: Sequence[Item] = (),
    progress: Progress = no_progress,
) -> BaselineComparison:
    """Ask the host, the best single organelle, the adapter of the specification, and its routing;
    where there are ``selection`` items, the last two kinds once more, judged by these."""
    practice = spec.model_copy(update={"selection": None, "most": None, "adapter": None})
    specs = {name: practice.model_copy(update={"routing": name}) for name in (HOST, "single")}
    main = kind_of(spec.routing)
    specs[main] = practice
    systems = {
        name: run.evaluate(items, host, one.routing, progress=progress)
        for name, one in specs.items()
    }
    if spec.adapter is not None:
        weights = {SFT: read_peft(Path(spec.adapter), host.layout)}
        tuned = replace(run, pool=replace(run.pool, weights=weights))
        specs[SFT] = practice.model_copy(update={"routing": "single", "adapter": spec.adapter})
        answers = tuned.evaluate(items, host, AskOne(SFT), progress=progress)
        systems[SFT] = replace(answers, source=spec.adapter, routing=SFT)
    cost = Cost()
    if selection:
        judged, cost = reselected(run, selection, host, progress)
        chosen = spec.model_copy(update={"adapter": None})
        for name in dict.fromkeys(("single", main)):
            specs[name + RESELECTED] = chosen.model_copy(update={"routing": specs[name].routing})
            systems[name + RESELECTED] = judged.evaluate(
                items, host, specs[name].routing, progress=progress
            )
        main += RESELECTED
    spent = run.pool.state.spent.flops + cost.flops
    return BaselineComparison(systems, main, spent, specs, cost)


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


def robustness(rollouts: Sequence[Rollout]) -> dict[str, Interval]:
    """Return the accuracy by way of writing, and under ``brittle`` the share of right answers that
    are wrong in another way of writing; nothing if no item was perturbed."""
    replies: dict[str, dict[str, Rollout]] = defaultdict(dict)
    for rollout in rollouts:
        identity, mark, name = rollout.item.id.rpartition(MARK)
        if rollout.item.shift == PERTURBED and mark:
            replies[identity][name] = rollout
    verdicts = defaultdict[str, list[float]](list)
    for by_name in replies.values():
        for name, rollout in by_name.items():
            verdicts[name].append(rollout.verdict)
    shares = {name: wilson(sum(values), len(values)) for name, values in verdicts.items()}
    right = [by_name for by_name in replies.values() if by_name[PLAIN].is_right]
    brittle = sum(not all(rollout.is_right for rollout in by_name.values()) for by_name in right)
    return shares | ({"brittle": wilson(brittle, len(right))} if right else {})


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

"""The same items to the host, to SFT, to the best single organelle and to the routed pool.

What is chosen from practice costs nothing beyond training. What is chosen on selection items costs
their answers, which are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.evaluation.general import (
    GeneralAbility,
    GeneralReader,
    general_of_servers,
    general_reader,
)
from symbiont_ecology.evaluation.measure import (
    Evaluation,
    EvaluationDifference,
    LoadedRun,
    Record,
    difference,
    interval_values,
)
from symbiont_ecology.evaluation.shifts import MARK, PERTURBATIONS, PLAIN
from symbiont_ecology.evaluation.spec import EvaluationSpec
from symbiont_ecology.statistics import Interval, wilson
from symbiont_ecology.types import Item
from symbiont_ecology.weights.peft_files import read_peft

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection items."""


@dataclass(frozen=True)
class Robustness:
    """What becomes of right answers when a prompt is written a little differently.

    *Brittle* is an item that is answered right as it stands, and wrong in at least one other way of
    writing it; None if nothing was right.
    """

    accuracy: Mapping[str, Interval]
    brittle: Interval | None


@dataclass(frozen=True)
class BaselineComparison:
    """Evaluations by the name of what was asked; ``main`` is the one that was asked for.

    ``servers`` is what plain English is to each adapter that serves, by its id; nothing where the
    host knows none.
    """

    systems: Mapping[str, Evaluation]
    specs: Mapping[str, EvaluationSpec]
    main: str
    train_flops: int
    servers: Mapping[str, GeneralAbility] = field(default_factory=dict)

    @cached_property
    def differences(self) -> dict[str, EvaluationDifference]:
        """The main system minus each other one."""
        main = self.systems[self.main]
        rest = {name: evaluation for name, evaluation in self.systems.items() if name != self.main}
        return {name: difference(main, evaluation) for name, evaluation in rest.items()}

    @property
    def break_even(self) -> float | None:
        """Right answers after which training and selection have paid off against the host.

        None is never.
        """
        main = self.systems[self.main]
        saved = self.systems["host"].flops_per_solved - main.flops_per_solved
        return (self.train_flops + main.selection.flops) / saved if saved > 0 else None

    @property
    def robustness(self) -> Robustness | None:
        """Of the main system, if perturbed items were asked."""
        return robustness(self.systems[self.main].rollouts)

    def summary(self) -> Record:
        """All systems, how the main one differs from each, and when training pays off."""
        robust = self.robustness
        perturbed: Record = {}
        if robust is not None:
            shares = robust.accuracy.items()
            perturbed["accuracy"] = {name: interval_values(share) for name, share in shares}
            if robust.brittle is not None:
                perturbed["brittle"] = interval_values(robust.brittle)
        return {
            "systems": {name: evaluation.summary() for name, evaluation in self.systems.items()},
            "differences": {name: asdict(gap) for name, gap in self.differences.items()},
            "robustness": perturbed,
            "train_flops": self.train_flops,
            "break_even_solved": self.break_even,
            "servers": {name: ability.summary() for name, ability in self.servers.items()},
        }


def compare_with_baselines(
    run: LoadedRun,
    spec: EvaluationSpec,
    items: Sequence[Item],
    host: Host,
    *,
    selection: Sequence[Item] = (),
    sft: Path | None = None,
    progress: Progress = no_progress,
) -> BaselineComparison:
    """Asks everyone; ``selection`` items judge the candidates anew, beside practice."""

    def variant(source: EvaluationSpec, **changes: str | int | None) -> EvaluationSpec:
        """The same question, asked in another way."""
        return source.model_copy(update=changes)

    by_practice = variant(spec, selection=None, most=None)
    single = variant(by_practice, routing="single", routing_map=None)
    specs = {"host": variant(single, routing="host"), "single": single}
    if sft is not None:
        specs["sft"] = variant(single, adapter=str(sft))
    main = spec.name
    specs[main] = by_practice
    systems = {name: spec.evaluate(run, items, host, progress) for name, spec in specs.items()}
    if selection:
        best = variant(single, selection=spec.selection, most=spec.most)
        by_selection = {"single" + RESELECTED: best, main + RESELECTED: spec}
        reselected = run.reselected(selection, host, progress)
        systems |= {
            name: spec.evaluate(reselected, items, host, progress)
            for name, spec in by_selection.items()
        }
        specs, main = specs | by_selection, main + RESELECTED
    train_flops, reader = run.pool.state.spent.flops, general_reader(run.config, run.pool, host)
    if reader is None:
        return BaselineComparison(systems, specs, main, train_flops)
    systems = {
        name: replace(evaluation, general=_general(specs[name], run, reader))
        for name, evaluation in systems.items()
    }
    return BaselineComparison(
        systems, specs, main, train_flops, general_of_servers(reader, run.pool)
    )


def _general(spec: EvaluationSpec, run: LoadedRun, reader: GeneralReader) -> GeneralAbility:
    """What plain English is to a system, its candidates judged by practice."""
    if spec.adapter is None:
        return reader.of_routing(run.pool, spec.find_routing(run))
    adapter = read_peft(Path(spec.adapter), reader.host.layout)
    return replace(reader, weights={"adapter": adapter}).of("adapter")


def robustness(rollouts: Sequence[Rollout]) -> Robustness | None:
    """Accuracy by way of writing, and the share of brittle items; None if nothing was perturbed."""
    replies: dict[str, dict[str, Rollout]] = defaultdict(dict)
    for rollout in rollouts:
        identity, mark, name = rollout.item.id.rpartition(MARK)
        if rollout.item.shift == "perturbed" and mark:
            replies[identity][name] = rollout
    if not replies:
        return None
    right = [by_name for by_name in replies.values() if by_name[PLAIN].is_right]
    brittle = sum(not all(rollout.is_right for rollout in by_name.values()) for by_name in right)
    shares = {
        name: wilson(sum(by_name[name].verdict for by_name in replies.values()), len(replies))
        for name in PERTURBATIONS
    }
    return Robustness(shares, wilson(brittle, len(right)) if right else None)

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

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.statistics import Interval, wilson
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.general import GeneralAbility, general_of_servers, general_reader
from symbiont_ecology.evaluate.measure import (
    Evaluation,
    EvaluationDifference,
    LoadedRun,
    Record,
    difference,
)
from symbiont_ecology.evaluate.shifts import MARK, PERTURBED, PLAIN
from symbiont_ecology.evaluate.spec import EvaluationSpec
from symbiont_ecology.run.runtime import Host

RESELECTED = "*"
"""Behind the name of a routing whose candidates were judged on selection items."""


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
    def robustness(self) -> Mapping[str, Interval]:
        """Accuracy of the main system by way of writing, and the share of brittle answers, where
        perturbed items were asked."""
        return robustness(self.systems[self.main].rollouts)

    def summary(self) -> Record:
        """Return all systems, how the main one differs from each, and when training pays off."""
        shares = {name: asdict(share) for name, share in self.robustness.items()}
        brittle = shares.pop("brittle", None)
        perturbed = ({"accuracy": shares} if shares else {}) | (
            {"brittle": brittle} if brittle else {}
        )
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
    """Ask everyone; ``selection`` items judge the candidates anew, beside practice."""
    by_practice = spec.varied(selection=None, most=None)
    single = by_practice.varied(routing="single", routing_map=None)
    specs = {"host": single.varied(routing="host"), "single": single}
    if sft is not None:
        specs["sft"] = single.varied(adapter=str(sft))
    main = spec.name
    specs[main] = by_practice
    systems = {name: spec.evaluate(run, items, host, progress) for name, spec in specs.items()}
    if selection:
        best = single.varied(selection=spec.selection, most=spec.most)
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
    abilities = {
        name: reader.of_routing(run.pool, spec.find_routing(run))
        if spec.adapter is None
        else replace(reader, weights={name: read_peft(Path(spec.adapter), host.layout)}).of(name)
        for name, spec in specs.items()
    }
    systems = {name: replace(systems[name], general=one) for name, one in abilities.items()}
    return BaselineComparison(
        systems, specs, main, train_flops, general_of_servers(reader, run.pool)
    )


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

"""Any runs as a suite: asked the same questions, and brought into the form that packs are made of.

Runs whose configs differ in the seed, and in what is no part of a life (how often it was saved,
what was asked at its end, who looked on), are one arm. A suite (``experiments.suite``) also tunes
its arms and gives them one budget; here they are as they are, and the tables say what each of them
spent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.evaluation.measure import ANSWERS_FILE, LoadedRun
from symbiont_ecology.evaluation.shifts import shifts as registered_shifts
from symbiont_ecology.experiments.jobs import Job, bare_host, host_of, items_of, outcome_of_run
from symbiont_ecology.experiments.outcomes import ReportedOutcome
from symbiont_ecology.experiments.protocol import LOOKING_ON, Arm, Protocol
from symbiont_ecology.learning import learning_rules, reward_rules
from symbiont_ecology.registry import kind_of, validate
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks.habitats import SyntheticHabitats


@dataclass(frozen=True)
class AdhocComparison:
    """Runs that can be compared, the arms that they belong to, and the protocol that describes
    them."""

    protocol: Protocol
    runs: Mapping[Path, LoadedRun]
    arms: Mapping[str, Sequence[Path]]

    @property
    def first(self) -> Path:
        """The run whose task mix and host stand for all."""
        return next(iter(self.runs))


def adhoc_comparison(
    folders: Sequence[Path], shifts: Sequence[str], per_cell: int, name: str
) -> AdhocComparison:
    """Reads the runs and finds every mistake before a host is loaded.

    Raises:
        ConfigError: the runs have different task mixes or hosts, one seed of an arm is there twice,
            there is no such shift, or runs of different seeds are to be asked what users want
            whom each seed draws anew.
        RunError: a folder holds no run.
    """
    for shift in shifts:
        registered_shifts.build(shift)
    runs = {folder: LoadedRun.of_run(folder) for folder in folders}
    first = next(iter(runs.values()))
    for folder, one in runs.items():
        if (
            one.config.tasks != first.config.tasks
            or one.config.host.model != first.config.host.model
        ):
            raise ConfigError(
                f"{folder} was run on other tasks or another host than {folders[0]}: only runs "
                "that can be "
                "asked the same questions can be compared"
            )
    seeds = sorted({one.config.seed for one in runs.values()})
    is_drawn = isinstance(first.tasks.habitats, SyntheticHabitats)
    if is_drawn and "habitats" in shifts and len(seeds) > 1:
        raise ConfigError(
            f"shift habitats: expected runs of one seed, got seeds {', '.join(map(str, seeds))}: "
            "each seed draws users of its own, so compare the runs of one seed at a time"
        )
    arms = _arms(runs)
    protocol = _protocol(name, arms, runs, tuple(shifts), per_cell)
    if not items_of(protocol, first.config, shifts[:1]):
        raise ConfigError(
            f"expected a shift with questions for these tasks, got {shifts[0]}, which has none"
        )
    return AdhocComparison(protocol, runs, arms)


def ask_runs(
    comparison: AdhocComparison, progress: Progress = no_progress
) -> list[ReportedOutcome]:
    """Asks every run, and the bare host, the items of the protocol; returns the outcomes."""
    protocol, runs = comparison.protocol, comparison.runs
    first = runs[comparison.first].config
    outcomes: list[ReportedOutcome] = [
        bare_host(protocol, first, host_of(first), comparison.first / ANSWERS_FILE)
    ]
    for arm, folders in comparison.arms.items():
        for folder in folders:
            run = runs[folder]
            job = Job("main", arm, run.config.seed, 1.0)
            outcomes.append(outcome_of_run(job, protocol, run, host_of(run.config), progress))
    return outcomes


def _arms(runs: Mapping[Path, LoadedRun]) -> dict[str, list[Path]]:
    """Folders by the name of their arm: the strategy's, numbered where configs of one strategy
    differ."""
    alike: dict[str, list[Path]] = defaultdict(list)
    for folder, one in runs.items():
        level = {"checkpoint_every": 1, "final_holdout": None, "final_holdout_samples": None}
        length = one.config.run.model_copy(update=level)
        but_seed = one.config.model_copy(update={"seed": 0, "run": length})
        alike[but_seed.model_dump_json(exclude=LOOKING_ON)].append(folder)
    arms: dict[str, list[Path]] = {}
    for members in alike.values():
        spec = runs[members[0]].config.strategy
        kind = kind_of(spec)
        same = sum(name == kind or name.startswith(f"{kind}-") for name in arms)
        arms[f"{kind}-{same + 1}" if same else kind] = members
    for arm, members in arms.items():
        seeds = [runs[folder].config.seed for folder in members]
        if len(set(seeds)) < len(seeds):
            raise ConfigError(f"arm {arm!r} has a seed twice: {', '.join(map(str, members))}")
    return arms


def _sees(config: RunConfig) -> str:
    """What learning is told."""
    reward = reward_rules.build(config.reward)
    if reward.sees_gold or learning_rules.build(config.learning_rule).sees_gold:
        return "gold answers"
    warm = strategies.build(config.strategy).warm
    told = "judgements of people" if reward.asks_people else "verdicts"
    return f"{told}, {warm} gold examples per cell" if warm else told


def _protocol(
    name: str,
    arms: Mapping[str, Sequence[Path]],
    runs: Mapping[Path, LoadedRun],
    shifts: tuple[str, ...],
    per_cell: int,
) -> Protocol:
    spent = [one.pool.state.spent.flops for one in runs.values()]
    sides = {}
    for arm, members in arms.items():
        config = runs[members[0]].config
        is_one = arm.startswith("single")
        about = ", ".join(sorted(str(folder) for folder in members))
        sides[arm] = Arm(about=about, sees=_sees(config), routing="single" if is_one else "learned")
    facts = {
        "name": name,
        "question": "how do these runs compare?",
        "base": (),
        "unit_flops": float(max(spent)),
        "budgets": (1.0,),
        "seeds": tuple(sorted({one.config.seed for one in runs.values()})),
        "arms": sides,
        "main": "ecology" if "ecology" in sides else next(iter(sides)),
        "shifts": shifts,
        "per_cell": per_cell,
    }
    return validate(Protocol, facts, "comparison")

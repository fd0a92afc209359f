"""Any runs as a suite: asked the same questions, and brought into the form that packs are made of.

Runs whose configs differ in the seed, and in what is no part of a life (``arm_key``), are one arm.
A suite (``experiments.suite``) also tunes its arms and gives them one budget; here they are as they
are, and the tables say what each of them spent.
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
from symbiont_ecology.experiments.jobs import Job, bare_host, host_of, outcome_of_run
from symbiont_ecology.experiments.outcomes import ReportedOutcome
from symbiont_ecology.experiments.protocol import Arm, Protocol, arm_key
from symbiont_ecology.experiments.suite import check_questions
from symbiont_ecology.learning import learning_rules, reward_rules
from symbiont_ecology.registry import kind_of, validate
from symbiont_ecology.strategies import strategies


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

    @property
    def last_generation(self) -> int:
        """The last one that any of the runs has lived: users are judged as they judge then."""
        return max(run.last_generation for run in self.runs.values())


def adhoc_comparison(
    folders: Sequence[Path], shifts: Sequence[str], per_cell: int, name: str
) -> AdhocComparison:
    """Reads the runs and finds every mistake before a host is loaded.

    Raises:
        ConfigError: the runs have different task mixes or hosts, one seed of an arm is there twice,
            there is no such shift, users are to be asked beside another shift, or the questions
            do not fit (``check_questions``).
        RunError: a folder holds no run.
    """
    for shift in shifts:
        registered_shifts.build(shift)
    runs = {folder: LoadedRun.of_run(folder) for folder in folders}
    first = next(iter(runs.values()))
    for folder, run in runs.items():
        if (
            run.config.tasks != first.config.tasks
            or run.config.host.model != first.config.host.model
        ):
            raise ConfigError(
                f"{folder} was run on other tasks or another host than {folders[0]}: only runs "
                "that can be asked the same questions can be compared"
            )
    rest = [shift for shift in shifts if shift != "habitats"]
    if 0 < len(rest) < len(shifts):
        raise ConfigError(
            "shift habitats: the adapters that serve users answer it, and routers answer "
            f"{', '.join(rest)}: ask habitats alone"
        )
    check_questions(first.config, shifts, sorted({run.config.seed for run in runs.values()}))
    arms = _arms(runs)
    protocol = _protocol(name, arms, runs, tuple(shifts), per_cell)
    return AdhocComparison(protocol, runs, arms)


def ask_runs(
    comparison: AdhocComparison, progress: Progress = no_progress
) -> list[ReportedOutcome]:
    """Asks every run, and the bare host, the items of the protocol; returns the outcomes."""
    protocol, runs, moment = comparison.protocol, comparison.runs, comparison.last_generation
    first = runs[comparison.first].config
    outcomes: list[ReportedOutcome] = [
        bare_host(protocol, first, host_of(first), comparison.first / ANSWERS_FILE, moment)
    ]
    for arm, folders in comparison.arms.items():
        for folder in folders:
            run = runs[folder]
            job = Job("main", arm, run.config.seed, 1.0)
            host = host_of(run.config)
            outcomes.append(outcome_of_run(job, protocol, run, host, progress, generation=moment))
    return outcomes


def _arms(runs: Mapping[Path, LoadedRun]) -> dict[str, list[Path]]:
    """Folders by the name of their arm: the strategy's, numbered where configs of one strategy
    differ."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for folder, run in runs.items():
        groups[arm_key(run.config)].append(folder)
    arms: dict[str, list[Path]] = {}
    for members in groups.values():
        spec = runs[members[0]].config.strategy
        kind = kind_of(spec)
        count = sum(name == kind or name.startswith(f"{kind}-") for name in arms)
        arms[f"{kind}-{count + 1}" if count else kind] = members
    for arm, members in arms.items():
        by_seed: dict[int, Path] = {}
        for folder in members:
            seed = runs[folder].config.seed
            if seed in by_seed:
                raise ConfigError(
                    f"arm {arm!r} has seed {seed} twice, in {by_seed[seed]} and {folder}: leave "
                    "one of them out"
                )
            by_seed[seed] = folder
    return arms


def _sees(config: RunConfig) -> str:
    """What learning is told."""
    reward = reward_rules.build(config.reward)
    if reward.sees_gold or learning_rules.build(config.learning_rule).sees_gold:
        return "gold answers"
    warm = strategies.build(config.strategy).warm
    return f"verdicts, {warm} gold examples per cell" if warm else "verdicts"


def _protocol(
    name: str,
    arms: Mapping[str, Sequence[Path]],
    runs: Mapping[Path, LoadedRun],
    shifts: tuple[str, ...],
    per_cell: int,
) -> Protocol:
    flops = [run.pool.state.spent.flops for run in runs.values()]
    sides = {}
    for arm, members in arms.items():
        is_single = all(len(runs[folder].pool.organelles) == 1 for folder in members)
        routing = "single" if is_single else "habitat" if "habitats" in shifts else "learned"
        about = ", ".join(sorted(str(folder) for folder in members))
        sides[arm] = Arm(about=about, sees=_sees(runs[members[0]].config), routing=routing)
    facts = {
        "name": name,
        "question": "how do these runs compare?",
        "base": (),
        "unit_flops": float(max(flops)),
        "budgets": (1.0,),
        "seeds": tuple(sorted({run.config.seed for run in runs.values()})),
        "arms": sides,
        "main": "ecology" if "ecology" in sides else next(iter(sides)),
        "shifts": shifts,
        "per_cell": per_cell,
    }
    return validate(Protocol, facts, "comparison")

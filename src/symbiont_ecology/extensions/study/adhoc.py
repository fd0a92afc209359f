"""Any runs as a suite: asked the same questions, and brought into the form that packs are made of.

Runs whose configs differ in the seed, and in what is no part of a life (``arm_key``), are one arm.
A suite also tunes its arms and gives them one budget; here they are as they are, and the tables say
what each of them spent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import kind_of, validate
from symbiont_ecology.ecology.learning import learning_rules, reward_rules
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.shifts import shifts as registered_shifts
from symbiont_ecology.extensions.study.jobs import (
    HOST_JOB,
    Job,
    check_questions,
    host_of,
    host_parts,
    items_of,
    run_parts,
)
from symbiont_ecology.extensions.study.outcomes import Leg, Outcome, SystemAnswers
from symbiont_ecology.extensions.study.protocol import DECIDES_NOTHING, Arm, Protocol
from symbiont_ecology.run.config import RunConfig


def gather(
    folders: Sequence[Path], shifts: Sequence[str], per_cell: int, name: str
) -> tuple[Protocol, dict[str, list[LoadedRun]]]:
    """Read the runs and find every mistake before a host is loaded; return the protocol that
    describes them, and the runs of its arms.

    Raises:
        ConfigError: the runs have different task mixes or hosts, one seed of an arm is there twice,
            there is no such shift, users are to be asked beside another shift, or the questions
            do not fit (``check_questions``).
        RunError: a folder holds no run.
    """
    shifts = [registered_shifts.present_name(shift) for shift in shifts]
    for shift in shifts:
        registered_shifts.build(shift)
    runs = [LoadedRun.of_run(folder) for folder in folders]
    first, *others = runs
    for run in others:
        mine, theirs = run.config, first.config
        if (mine.tasks, mine.host.model) != (theirs.tasks, theirs.host.model):
            raise ConfigError(
                f"{run.folder} was run on other tasks or another host than {first.folder}: only "
                "runs that can be asked the same questions can be compared"
            )
    rest = [shift for shift in shifts if shift != "users"]
    if 0 < len(rest) < len(shifts):
        raise ConfigError(
            "shift users: the adapters that serve users answer it, and routers answer "
            f"{', '.join(rest)}: ask users alone"
        )
    seeds = sorted({run.config.seed for run in runs})
    check_questions(first.config, shifts, seeds)
    arms = _arms_of(runs)
    facts = {
        "name": name,
        "question": "how do these runs compare?",
        "unit_flops": float(max(run.pool.state.spent.flops for run in runs)),
        "budgets": (1.0,),
        "seeds": seeds,
        "arms": {arm: _side(members, shifts) for arm, members in arms.items()},
        "main": "ecology" if "ecology" in arms else next(iter(arms)),
        "shifts": tuple(shifts),
        "per_cell": per_cell,
    }
    return validate(Protocol, facts, "comparison"), arms


def ask(
    protocol: Protocol, arms: Mapping[str, Sequence[LoadedRun]], progress: Progress = no_progress
) -> list[Outcome]:
    """Ask the bare host, and every run, the items of the protocol; return the outcomes. Users are
    judged as in the last generation that any of the runs has lived."""
    first, *_ = runs = [run for members in arms.values() for run in members]
    moment = max(run.last_generation for run in runs)
    parts = host_parts(protocol, first.config, host_of(first.config), moment)
    outcomes = [HOST_JOB.outcome(protocol, **parts)]
    for arm, members in arms.items():
        routing = protocol.arms[arm].routing
        for run in members:
            items = items_of(protocol, run.config, protocol.shifts, moment)
            answers = run.evaluate(items, host_of(run.config), routing, progress=progress)
            systems = {routing: SystemAnswers.of(answers)}
            leg = Leg(train_flops=run.pool.state.spent.flops, systems=systems)
            job = Job("main", arm, run.config.seed, 1.0)
            outcomes.append(job.outcome(protocol, legs=[leg], **run_parts(run)))
    return outcomes


def _arms_of(runs: Sequence[LoadedRun]) -> dict[str, list[LoadedRun]]:
    """Runs by the name of their arm: the strategy's, numbered where configs of one strategy
    differ."""
    groups: dict[str, list[LoadedRun]] = defaultdict(list)
    for run in runs:
        groups[arm_key(run.config)].append(run)
    arms: dict[str, list[LoadedRun]] = {}
    for members in groups.values():
        kind = kind_of(members[0].config.strategy)
        count = sum(name == kind or name.startswith(f"{kind}-") for name in arms)
        arm = f"{kind}-{count + 1}" if count else kind
        arms[arm], by_seed = members, dict[int, LoadedRun]()
        for run in members:
            twin = by_seed.setdefault(run.config.seed, run)
            if twin is not run:
                raise ConfigError(
                    f"arm {arm!r} has seed {run.config.seed} twice, in {twin.folder} and "
                    f"{run.folder}: leave one of them out"
                )
    return arms


def _side(runs: Sequence[LoadedRun], shifts: Sequence[str]) -> Arm:
    names = [{name.partition("@")[0] for name in run.pool.weights} for run in runs]
    is_single = all(len(alone) == 1 for alone in names)
    routing = "single" if is_single else "user" if "users" in shifts else "learned"
    about = ", ".join(sorted(str(run.folder) for run in runs))
    return Arm(about=about, sees=_sees(runs[0].config), routing=routing)


def _sees(config: RunConfig) -> str:
    """Return the words for what learning is told."""
    parts = reward_rules.build(config.reward), learning_rules.build(config.learning_rule)
    if any(part.sees_gold for part in parts):
        return "gold answers"
    warm = strategies.build(config.strategy).warm
    return f"verdicts, {warm} gold examples per cell" if warm else "verdicts"


def arm_key(config: RunConfig) -> str:
    """Return a config without its seed and without what is no part of a life: what decides nothing,
    how often the run is saved, what it is asked at its end. Runs of one arm have the same."""
    fixed = {"checkpoint_every": 1, "final_holdout": None, "final_holdout_samples": None}
    life = config.run.model_copy(update=fixed)
    core = config.model_copy(update={"seed": 0, "run": life})
    return core.model_dump_json(exclude=DECIDES_NOTHING)

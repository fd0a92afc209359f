"""Compute-matched supervised fine-tuning: the peer that sees reference answers, as a protocol.

SFT is one adapter that reads instead of practising (strategy ``single`` with ``samples: 0``, the
learning rule ``supervised``). So its tasks, its meter and its resume are those of the runs that it
is matched with. Learning rate, rank and the moment to stop are options of one arm, which is tuned
on selection items like every other arm; nothing of it is reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import validate
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.evaluate.evaluation_log import logged
from symbiont_ecology.extensions.study.jobs import Job, read_outcome
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.suite import score_of, tuning_jobs
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import lived_seconds

BUDGET_KEYS = {
    "train_flops": "train_flops",
    "total_flops": "train_flops",
    "train_tokens": "train_tokens",
    "total_tokens": "train_tokens",
    "wall_clock_seconds": "train_seconds",
}
"""Measures of a budget, and the key of ``run`` that limits them."""
STOPS = (0.25, 0.5, 1.0)
"""Parts of the budget at which training may stop."""
ARM = "sft"


@dataclass(frozen=True)
class SweepPlan:
    """A sweep: what is spent (``amount`` in the unit of ``measure``, a key of ``BUDGET_KEYS``), and
    what is swept: every rate with every rank. ``questions`` are reference answers per cell and
    step, ``per_cell`` selection items."""

    measure: str
    amount: float
    rates: Sequence[float]
    ranks: Sequence[int]
    questions: int = 1
    per_cell: int = 20

    def __str__(self) -> str:
        rates, ranks, stops = (
            ", ".join(f"{value:g}" for value in values)
            for values in (self.rates, self.ranks, STOPS)
        )
        swept = f"rates {rates}; ranks {ranks}; it may stop at {stops} of it"
        is_exact = self.measure != "wall_clock_seconds"
        warning = "" if is_exact else "; seconds depend on the machine: this cannot be repeated"
        return f"SFT for {self.amount:.4g} {self.measure}; {swept}{warning}"

    @property
    def options(self) -> list[tuple[int, float, float]]:
        """Every (rank, learning rate, part of the budget)."""
        return list(itertools.product(self.ranks, self.rates, STOPS))


@dataclass(frozen=True)
class SweepPoint:
    """One option of the sweep, its success on selection items and what it took."""

    learning_rate: float
    rank: int
    part: float
    accuracy: float
    train_flops: int
    folder: str


def spent_by(folder: Path, measure: str) -> float:
    """Return what a run spent. ``total_*`` adds every selection in its evaluations to its training.

    Raises:
        ConfigError: no such measure.
        RunError: no run there.
    """
    if measure not in BUDGET_KEYS:
        raise ConfigError(f"--budget: expected one of {', '.join(BUDGET_KEYS)}, got {measure!r}")
    state = load_state(folder)
    if measure == "wall_clock_seconds":
        return lived_seconds(folder, state.generation)
    is_flops = measure.endswith("flops")
    amount = state.spent.flops if is_flops else state.spent.tokens
    if measure.startswith("total"):
        # Systems of one evaluation share a selection: its file and size tell it from others.
        selections = {}
        for line in logged(folder):
            key = line.generation, line.asked.get("selection"), line.asked.get("most")
            selections[key] = line.selection_flops if is_flops else line.selection_tokens
        amount += sum(selections.values())
    return float(amount)


def sft_protocol(
    base: str, overrides: Sequence[str], config: RunConfig, plan: SweepPlan
) -> Protocol:
    """Return the sweep as a protocol with one arm. ``base`` is a preset or file, ``config`` what it
    makes with the overrides."""
    limit = BUDGET_KEYS[plan.measure]
    no_limits = dict.fromkeys(sorted(set(BUDGET_KEYS.values())), "null")
    tune = []
    for rank, rate, part in plan.options:
        limits = {**no_limits, limit: repr(plan.amount * part)}
        own = [f"run.{key}={value}" for key, value in limits.items()]
        tune.append([f"strategy.learning_rate={rate}", f"host.rank={rank}", *own])
    strategy = f"strategy={{kind: single, samples: 0, questions: {plan.questions}, aging: 0}}"
    about = {"about": "one adapter", "sees": "gold answers", "routing": "single"}
    facts = {
        "name": ARM,
        "question": str(plan),
        "base": (base,),
        "set": (*overrides, strategy, "learning_rule=supervised"),
        "unit_flops": 1.0,  # every option brings its own limit
        "budgets": (1.0,),
        "seeds": (config.seed + 1,),  # which nothing is run with
        "tuning_seeds": (config.seed,),
        "tuning_per_cell": plan.per_cell,
        "arms": {ARM: {**about, "tune": tune}},
        "main": ARM,
    }
    return validate(Protocol, facts, "sft")


def sweep_jobs(protocol: Protocol) -> tuple[Job, ...]:
    """Return a job for every option; also if there is only one."""
    return tuning_jobs(protocol) or (Job("tune", ARM, protocol.tuning_seeds[0], 1.0),)


def sweep_points(protocol: Protocol, folder: Path, plan: SweepPlan) -> list[SweepPoint]:
    """Return the finished options, in the order of the plan."""
    points = []
    for job in sweep_jobs(protocol):
        outcome = read_outcome(folder / job.name, protocol)
        if outcome is not None:
            rank, rate, part = plan.options[job.option]
            flops = load_state(folder / job.name).spent.flops
            share = score_of(outcome).accuracy
            points.append(SweepPoint(rate, rank, part, share, flops, job.name))
    return points


def best_point(points: Sequence[SweepPoint]) -> SweepPoint:
    """Return the most accurate; of equals the cheapest, which stops first."""
    return min(points, key=lambda point: (-point.accuracy, point.train_flops))

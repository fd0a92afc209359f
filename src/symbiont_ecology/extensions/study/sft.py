"""Compute-matched supervised fine-tuning: the peer that sees reference answers, as a protocol.

SFT is one adapter that reads instead of practising (strategy ``single`` with ``samples: 0``, the
learning rule ``supervised``). So its tasks, its meter and its resume are those of the runs that it
is matched with. Learning rate, rank and the moment to stop are options of one arm, which is tuned
on selection items like every other arm; nothing of it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symbiont_ecology.base.registry import validate
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.study.jobs import read_outcome
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
"""Measures of a budget, and the key of ``run`` that limits them. Training is all that a run spends,
so ``total_*`` are its other names."""
STOPS = (0.25, 0.5, 1.0)
"""Parts of the budget at which training may stop."""
SweepOption = tuple[int, float, float]
"""Rank, learning rate, and part of the budget."""


def spent_by(folder: Path, measure: str) -> float:
    """Return what a run spent on training.

    Raises:
        RunError: no run there.
    """
    state = load_state(folder)
    if measure == "wall_clock_seconds":
        return lived_seconds(folder, state.generation)
    return float(state.spent.flops if measure.endswith("flops") else state.spent.tokens)


def sft_protocol(
    base: str,
    overrides: Sequence[str],
    config: RunConfig,
    measure: str,
    amount: float,
    options: Sequence[SweepOption],
    per_cell: int = 20,
) -> Protocol:
    """Return a sweep as a protocol with one arm, in which every option brings its own limit.

    ``base`` is a preset or file, ``config`` what it makes with the overrides, ``amount`` what is
    spent in the unit of a ``measure``, ``per_cell`` selection items.
    """
    no_limits = dict.fromkeys(sorted(set(BUDGET_KEYS.values())), "null")
    tune = []
    for rank, rate, part in options:
        limits = {**no_limits, BUDGET_KEYS[measure]: repr(amount * part)}
        own = [f"run.{key}={value}" for key, value in limits.items()]
        tune.append([f"strategy.learning_rate={rate}", f"host.rank={rank}", *own])
    swept = [dict.fromkeys(values) for values in zip(*options, strict=True)]
    ranks, rates, parts = (", ".join(f"{value:g}" for value in values) for values in swept)
    about = {"about": "one adapter", "sees": "gold answers", "routing": "single"}
    facts = {
        "name": "sft",
        "question": f"SFT for {amount:.4g} {measure}; rates {rates}; ranks {ranks}; "
        f"it may stop at {parts} of it",
        "base": (base,),
        "set": (*overrides, "learning_rule=supervised"),
        "unit_flops": 1.0,
        "budgets": (1.0,),
        "seeds": (config.seed + 1,),  # which nothing is run with
        "tuning_seeds": (config.seed,),
        "tuning_per_cell": per_cell,
        "arms": {"sft": {**about, "tune": tune}},
        "main": "sft",
    }
    return validate(Protocol, facts, "sft")


def sweep_points(
    protocol: Protocol, folder: Path, options: Sequence[SweepOption]
) -> list[dict[str, Any]]:
    """Return the finished options in their order, their success on selection items and what they
    took."""
    points = list[dict[str, Any]]()
    for job, (rank, rate, part) in zip(tuning_jobs(protocol), options, strict=True):
        if (outcome := read_outcome(folder / job.name, protocol)) is not None:
            found = {"accuracy": score_of(outcome).accuracy, "folder": job.name}
            flops = load_state(folder / job.name).spent.flops
            points.append({"learning_rate": rate, "rank": rank, "part": part, **found})
            points[-1]["train_flops"] = flops
    return points

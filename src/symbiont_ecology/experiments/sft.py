"""Compute-matched supervised fine-tuning: the peer that sees gold answers, on the engine that runs
all arms.

SFT is one adapter that reads instead of practising (strategy ``single`` with ``samples: 0``,
learning_rule ``supervised``), so its task mix, meter and resume are those of the runs that it is
matched with. The learning rate, the rank and the moment to stop are swept on selection questions,
and the sweep is written down.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from symbiont_ecology.config import LoopConfig, RunConfig
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.evaluation.evaluation_log import logged
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.files import read_lines, write_whole
from symbiont_ecology.weights import AdapterWeights

BUDGET_UNITS = ("train_flops", "total_flops", "train_tokens", "total_tokens", "wall_clock_seconds")
TRIAL_FILE, PLAN_FILE = "trial.json", "plan.json"
STOPS = (0.25, 0.5, 1.0)
"""Parts of the budget at which training may stop."""


@dataclass(frozen=True)
class Budget:
    """How much SFT may spend: ``amount`` in the unit that ``measure`` (one of ``MEASURES``)
    names."""

    measure: str
    amount: float

    def loop(self, part: float) -> LoopConfig:
        """The run's end at a part of the budget."""
        limit = self.amount * part
        flops, tokens = (
            limit if self.measure.endswith(kind) else None for kind in ("flops", "tokens")
        )
        return LoopConfig(generations=10**9, train_flops=flops, train_tokens=tokens)


@dataclass(frozen=True)
class SweepPlan:
    """What is swept: every rate with every rank; ``questions`` answers per cell and step,
    ``per_cell`` selection questions."""

    rates: Sequence[float]
    ranks: Sequence[int]
    questions: int = 1
    per_cell: int = 20


@dataclass(frozen=True)
class SweepPoint:
    """One config of the sweep at one moment, and its success on selection questions."""

    learning_rate: float
    rank: int
    part: float
    accuracy: float
    train_flops: int
    seconds: float

    @property
    def folder(self) -> str:
        """Where it is below the sweep's folder."""
        return f"rate-{self.learning_rate:g}-rank-{self.rank}/at-{self.part:g}"


def budget_of(folder: Path, measure: str) -> Budget:
    """What a run spent. ``train_*`` is training alone, ``total_*`` adds every selection in its
    evaluations.

    Raises:
        ConfigError: no such measure.
        RunError: no run there.
    """
    if measure not in BUDGET_UNITS:
        raise ConfigError(f"--budget: expected one of {', '.join(BUDGET_UNITS)}, got {measure!r}")
    train = checkpoint.load_state(folder).spent
    if measure == "wall_clock_seconds":
        return Budget(measure, sum(_timings(folder)))
    kind = measure.rpartition("_")[2]
    spent = train.flops if kind == "flops" else train.tokens
    if measure.startswith("total"):
        # Systems of one evaluation share a selection: its files and its size tell it from others.
        asked = {
            (line.generation, line.asked.selection, line.asked.most): (
                line.selection_flops if kind == "flops" else line.selection_tokens
            )
            for _, line in logged(folder)
        }
        spent += sum(asked.values())
    return Budget(measure, float(spent))


def sft_config(config: RunConfig, learning_rate: float, rank: int, questions: int) -> RunConfig:
    """The config of SFT on the tasks and the host of another one: the arm ``sft`` of a paper
    pack."""
    knobs = {"samples": 0, "questions": questions, "learning_rate": learning_rate, "aging": 0.0}
    strategy = {"kind": "single", **knobs}
    host = config.host.model_copy(update={"rank": rank})
    return config.model_copy(
        update={"strategy": strategy, "learning_rule": "supervised", "host": host}
    )


def sweep(
    base: RunConfig,
    budget: Budget,
    folder: Path,
    plan: SweepPlan,
    host_of: Callable[[RunConfig], Host],
    keep: Callable[[Host, AdapterWeights, SweepPoint, Path], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[SweepPoint]:
    """Trains every combination to its budget and yields each where it may stop. Ends early when
    told to stop.

    ``keep`` writes an adapter into a folder. A trial that is written down is not done again, a run
    that was interrupted goes on.
    """
    selection = draw_shifts(mixture(base), ["in-distribution"], plan.per_cell, split="selection")
    for rank, rate in itertools.product(plan.ranks, plan.rates):
        place, config = (
            folder / f"rate-{rate:g}-rank-{rank}",
            sft_config(base, rate, rank, plan.questions),
        )
        for part in STOPS:
            note = place / f"at-{part:g}" / TRIAL_FILE
            if note.exists():
                yield SweepPoint(**json.loads(note.read_text(encoding="utf-8")))
                continue
            began, host = time.monotonic(), host_of(config)
            if not _live(config, budget, part, place / "run", host, should_stop):
                return
            candidates = LoadedRun.of_run(place / "run")
            accuracy = candidates.evaluate(selection, host, "single").accuracy().estimate
            spent = candidates.pool.state.spent.flops
            trial = SweepPoint(
                rate, rank, part, accuracy, spent, round(time.monotonic() - began, 2)
            )
            keep(host, candidates.pool.weights[candidates.pool.best()], trial, note.parent)
            write_whole(note, json.dumps(asdict(trial)) + "\n")  # last: now it is done
            yield trial


def claim_sweep(folder: Path, base: RunConfig, budget: Budget, plan: SweepPlan) -> None:
    """Makes the folder that of this very sweep.

    Raises:
        RunError: it is another's: its trials would be taken for those of this one.
    """
    path = folder / PLAN_FILE
    text = json.dumps(
        {"base": base.model_dump(mode="json"), "budget": asdict(budget), "plan": asdict(plan)}
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, text)
        elif path.read_text(encoding="utf-8") != text:
            raise RunError(
                f"{folder} holds a sweep with another base, budget or plan: choose another --out"
            )
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def best(trials: Sequence[SweepPoint]) -> SweepPoint:
    """The most accurate; of equals the cheapest, which stops first."""
    return min(trials, key=lambda one: (-one.accuracy, one.train_flops))


def report(budget: Budget, trials: Sequence[SweepPoint], chosen: SweepPoint) -> dict[str, Any]:
    """What is written down beside the adapter."""
    return {
        "schema": 1,
        "budget": asdict(budget),
        "is_exactly_resumable": budget.measure != "wall_clock_seconds",
        "chosen": asdict(chosen),
        "sweep": [asdict(one) for one in trials],
    }


def _live(
    config: RunConfig,
    budget: Budget,
    part: float,
    place: Path,
    host: Host,
    should_stop: Callable[[], bool],
) -> bool:
    """Lives a run to a part of its budget; whether it got there. On the clock, a run stops by
    time."""
    loop, is_timed = budget.loop(part), budget.measure == "wall_clock_seconds"
    left = budget.amount * part - sum(_timings(place)) if is_timed else 0.0
    end = time.monotonic() + left

    def is_over() -> bool:
        """Told to stop, or out of time."""
        return should_stop() or (is_timed and time.monotonic() >= end)

    if is_timed and left <= 0:
        return True
    if (place / runs.CONFIG_FILE).exists():
        limits = {"run.train_flops": loop.train_flops, "run.train_tokens": loop.train_tokens}
        overrides = [f"{key}={limit}" for key, limit in limits.items() if limit is not None]
        finished = runs.resume(place, overrides=overrides, should_stop=is_over, host=host)
    else:
        finished = runs.start(
            config.model_copy(update={"run": loop}), place, should_stop=is_over, host=host
        )
    return finished.is_complete or (is_timed and not should_stop())


def _timings(folder: Path) -> list[float]:
    return [one["seconds"] for _, one in read_lines(folder / runs.TIMINGS_FILE)]

"""``sft``: compute-matched supervised fine-tuning, swept on selection items, as a PEFT adapter."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import (
    command_line,
    open_run,
    prepare,
    tell_facts,
    typed_again,
    write_json,
)
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.cli.suites import work_through
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.files import free_folder

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.experiments.protocol import Protocol
    from symbiont_ecology.experiments.sft import Budget, SweepPlan

ADAPTER, REPORT_FILE = "adapter", "sft.json"
"""Folder of the chosen adapter, and what was swept."""
RATES = (0.003, 0.006, 0.012)
"""Learning rates that suit the embedded host."""
_Number = TypeVar("_Number", int, float)


def sft(
    config: Annotated[str | None, argument("A preset or YAML file, instead of --match.")] = None,
    overrides: options.Overrides = None,
    match: Annotated[
        Path | None, option("A run: its tasks, its host and what it spent.", metavar="RUN")
    ] = None,
    budget: Annotated[
        str, option("train_flops, total_flops, train_tokens, total_tokens or wall_clock_seconds.")
    ] = "train_flops",
    amount: Annotated[float | None, option("Spend this, not what the run spent.")] = None,
    scale: Annotated[float, option("Spend so many times as much.")] = 1.0,
    data: Annotated[
        Path | None, option("JSONL, CSV or Parquet file to learn from, instead of the tasks.")
    ] = None,
    rates: Annotated[
        str | None,
        option(
            "Learning rates of the sweep.",
            default="half, once and twice strategy.learning_rate; "
            f"{','.join(map(str, RATES))} if the strategy has none",
        ),
    ] = None,
    ranks: Annotated[str | None, option("Ranks of the sweep.", default="the run's own")] = None,
    questions: Annotated[int, option("Answers per cell and step.", least=1)] = 1,
    per_cell: Annotated[int, option("Selection questions per cell of the sweep.", least=1)] = 20,
    out: Annotated[Path | None, options.resumable_folder("artifacts/sft-<n>")] = None,
    workers: options.WorkersOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Fine-tune one adapter on reference answers with a run's compute. With --out it goes on."""
    from symbiont_ecology.engine.living import CONFIG_FILE
    from symbiont_ecology.experiments import suite as suites
    from symbiont_ecology.experiments.sft import SweepPlan, sft_protocol, sweep_jobs

    if config is not None and "=" in config:  # with --match the first change stands there
        overrides, config = [config, *(overrides or [])], None
    if (config is None) == (match is None):
        raise ConfigError("sft: expected either a config or --match RUN")
    base = str(config) if match is None else str(match / CONFIG_FILE)
    changes = [*(overrides or []), *(_data_tasks(data) if data is not None else [])]
    resolved, spend = _resolved(base, changes, match, budget, amount, scale)
    plan = SweepPlan(
        _numbers(rates, float) if rates else _usual_rates(resolved),
        _numbers(ranks, int) if ranks else [resolved.host.rank],
        questions,
        per_cell,
    )
    protocol = sft_protocol(base, changes, resolved, spend, plan)
    suites.check_protocol(protocol, alike=("tasks",))
    folder = out or free_folder("sft")
    _tell_plan(resolved, spend, plan, folder)
    if dry_run:
        print("everything is fine; nothing was done")
        return
    prepare(folder / REPORT_FILE)
    suites.claim_folder(protocol, folder)
    jobs, count = sweep_jobs(protocol), workers or suites.usual_workers(protocol)
    work_through(
        lambda crew: suites.do_jobs([("sft", jobs)], protocol, folder, crew),
        folder,
        count,
        typed_again(folder, out),
    )
    _export_best(protocol, spend, plan, folder)
    words = ("evaluate", "--adapter", folder / ADAPTER, "--holdout", "FILE", "--host")
    print(f"next:   {command_line(*words, resolved.host.model)}")
    if match is not None:
        print(f"        {command_line('evaluate', match, '--sft', folder / ADAPTER)}")


def _usual_rates(config: RunConfig) -> Sequence[float]:
    """Half, once and twice the learning rate of the config's strategy, which suits its host."""
    from symbiont_ecology.strategies import strategies

    rate = getattr(strategies.build(config.strategy), "learning_rate", None)
    return RATES if rate is None else [rate / 2, rate, 2 * rate]


def _resolved(
    base: str,
    changes: list[str],
    match: Path | None,
    measure: str,
    amount: float | None,
    scale: float,
) -> tuple[RunConfig, Budget]:
    """The config with its changes, and the budget; every mistake is found here."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine.build import check
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.experiments.sft import BUDGET_KEYS, Budget, budget_of

    if match is not None:
        config, spend = read_config(match, changes), budget_of(match, measure)
    elif measure not in BUDGET_KEYS or amount is None:
        raise ConfigError(
            f"sft CONFIG: expected --amount N and --budget one of {', '.join(BUDGET_KEYS)}"
        )
    else:
        config, spend = load_config(base, changes), Budget(measure, amount)
    check(config)
    spend = Budget(measure, scale * (spend.amount if amount is None else amount))
    if not 0 < spend.amount < math.inf:
        raise ConfigError(
            f"sft: expected a budget above 0, got {spend.amount:g} {measure}: give another "
            "--amount or --scale"
        )
    return config, spend


def _data_tasks(data: Path) -> list[str]:
    """The changes that make a file the only task."""
    source = json.dumps({"kind": "file", "name": "data", "path": str(data)})
    return [f"tasks={{families: [{source}], depths: null, flip: null}}"]


def _export_best(protocol: Protocol, spend: Budget, plan: SweepPlan, folder: Path) -> None:
    """Writes the adapter that the sweep chose, and what was swept."""
    from symbiont_ecology.experiments.sft import best_point, sweep_points

    points = sweep_points(protocol, folder, plan)
    for point in points:
        print(
            f"rate {point.learning_rate:g}, rank {point.rank}, {point.part:g} of the budget: "
            f"{point.accuracy:.1%} of the selection questions right"
        )
    best = best_point(points)
    run = open_run(folder / best.folder)
    card = (
        f"# SFT adapter\n\nRank {best.rank}, learning rate {best.learning_rate:g}, "
        f"{best.train_flops:.3g} useful training FLOPs on `{run.kernel.name_or_path}`; "
        f"{best.accuracy:.0%} of the selection questions right.\n"
    )
    run.best.save_peft(folder / ADAPTER, card)
    report = {
        "schema": 2,
        "budget": asdict(spend),
        "is_exactly_resumable": spend.measure != "wall_clock_seconds",
        "chosen": asdict(best),
        "sweep": [asdict(point) for point in points],
    }
    write_json(folder / REPORT_FILE, report)
    print(
        f"chosen: rate {best.learning_rate:g}, rank {best.rank}, {best.part:g} of the budget "
        f"({best.folder}), {best.accuracy:.1%} of the selection questions right"
    )


def _numbers(text: str, kind: Callable[[str], _Number]) -> list[_Number]:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"expected numbers with commas between them, got {text!r}") from error
    if not all(number > 0 for number in numbers):
        raise ConfigError(f"expected numbers above 0, got {text!r}")
    return numbers


def _tell_plan(base: RunConfig, spend: Budget, plan: SweepPlan, folder: Path) -> None:
    """What is trained."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.experiments.sft import STOPS

    host, mix = base.host, mixture(base)
    depths = " ".join(dict.fromkeys(depth for _, depth in mix.cells))
    rates, ranks = (
        ", ".join(f"{value:g}" for value in values) for values in (plan.rates, plan.ranks)
    )
    answers = plan.questions * len(mix.cells)
    stops = ", ".join(map(str, STOPS))
    warning = "seconds depend on the machine: this cannot be repeated exactly"
    facts = {
        "host": f"{host.model} on {host.device} in {host.dtype}",
        "tasks": f"{len(mix.cells)} cells: {' '.join(mix.names)}, each {depths}",
        "sweep": f"rates {rates}; ranks {ranks}; {answers} gold answers per step",
        "budget": f"{spend.amount:.4g} {spend.measure} each; may stop at {stops} of it",
        **({"": warning} if spend.measure == "wall_clock_seconds" else {}),
        "selection": f"{plan.per_cell} questions per cell",
        "folder": str(folder),
    }
    tell_facts(facts)

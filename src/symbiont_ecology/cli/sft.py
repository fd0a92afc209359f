"""``sft``: compute-matched supervised fine-tuning, swept on selection questions, as a PEFT
adapter."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import prepare, write_json
from symbiont_ecology.cli.run import INTERRUPTED, Brake, free_folder, typed
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.runtime import Host
    from symbiont_ecology.experiments.sft import Budget, SweepPlan, SweepPoint
    from symbiont_ecology.weights import AdapterWeights

ADAPTER = "adapter"
"""Folder of the chosen adapter."""
RATES = (0.003, 0.006, 0.012)
"""Learning rates that suit the embedded host."""


def sft(
    config: Annotated[
        str | None,
        typer.Argument(help="A preset or YAML file, instead of --match.", show_default=False),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes.", show_default=False)
    ] = None,
    match: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run: its tasks, its host and what it spent."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="With --match: train_flops, total_flops, train_tokens, total_tokens or wall_clock_seconds."
        ),
    ] = "train_flops",
    amount: Annotated[
        float | None, typer.Option(help="That much of it, instead of what the run spent.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="JSONL or Parquet file to learn from, instead of the tasks.")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            help="Learning rates of the sweep.",
            show_default="half, once and twice strategy.learning_rate; "
            f"{','.join(map(str, RATES))} where the strategy has none",
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Ranks of the sweep.", show_default="the run's own")
    ] = None,
    questions: Annotated[int, typer.Option(min=1, help="Answers per cell and step.")] = 1,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Selection questions per cell of the sweep.")
    ] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Folder.", show_default="artifacts/sft-<n>")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say the plan, do nothing.")
    ] = False,
) -> None:
    """Fine-tune one adapter on gold answers with a run's compute. With --out the same command goes
    on."""
    from symbiont_ecology.engine.build import check
    from symbiont_ecology.experiments.sft import SweepPlan, claim_sweep, sft_config

    base, spend = _plan(config, overrides or [], match, budget, amount, data)
    learning_rates = _numbers(rates, float) if rates else usual_rates(base)
    plan = SweepPlan(
        learning_rates, _numbers(ranks or str(base.host.rank), int), questions, per_cell
    )
    for rank in plan.ranks:
        check(sft_config(base, plan.rates[0], rank, questions))
    folder = out or free_folder("sft")
    if dry_run:
        _tell_plan(base, spend, plan, folder)
        return
    prepare(folder / "sft.json")
    claim_sweep(folder, base, spend, plan)
    print(
        f"budget: {spend.amount:.4g} {spend.measure} for each of the sweep's configs, in {folder}"
    )
    if spend.measure == "wall_clock_seconds":
        print(
            "a budget in seconds depends on the machine: this cannot be repeated or resumed exactly"
        )
    _fine_tune(base, spend, plan, folder)
    print(f"next:   {typed()} evaluate --adapter {folder / ADAPTER} --holdout FILE")
    if match is not None:
        print(f"        {typed()} evaluate {match} --sft {folder / ADAPTER}")


def usual_rates(config: RunConfig) -> list[float]:
    """Half, once and twice the learning rate of the config's strategy, which says what suits its
    host."""
    from symbiont_ecology.strategies import strategies

    rate = getattr(strategies.build(config.strategy), "learning_rate", None)
    return list(RATES) if rate is None else [rate / 2, rate, 2 * rate]


def _fine_tune(base: RunConfig, spend: Budget, plan: SweepPlan, folder: Path) -> None:
    """The sweep, and the adapter that it chose. Leaves with 130 when it was interrupted."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.experiments.sft import best, report, sweep

    hosts: dict[str, Host] = {}

    def host_of(one: RunConfig) -> Host:
        """A host of that rank; one at a time, since it may be large."""
        key = one.host.model_dump_json()
        if key not in hosts:
            hosts.clear()
            hosts[key] = build_host(one)
        return hosts[key]

    found: list[SweepPoint] = []
    with Brake() as brake:
        for trial in sweep(
            base, spend, folder / "sweep", plan, host_of, _keep, lambda: brake.is_pulled
        ):
            found.append(trial)
            _tell(trial)
    if brake.is_pulled:
        typer.echo(f"interrupted; the same command with --out {folder} goes on", err=True)
        raise typer.Exit(INTERRUPTED)
    chosen = best(found)
    shutil.copytree(
        folder / "sweep" / chosen.folder,
        folder / ADAPTER,
        dirs_exist_ok=True,
        ignore=lambda *_: ["trial.json"],
    )
    write_json(folder / "sft.json", report(spend, found, chosen))
    print(f"chosen: {chosen.folder}, {chosen.accuracy:.1%} of the selection questions right")


def _plan(
    config: str | None,
    overrides: list[str],
    match: Path | None,
    measure: str,
    amount: float | None,
    data: Path | None,
) -> tuple[RunConfig, Budget]:
    """Tasks, host and budget; every mistake is found here."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.experiments.sft import BUDGET_UNITS, Budget, budget_of
    from symbiont_ecology.tasks import task_sources

    if (
        config is not None and "=" in config
    ):  # with --match, the first change stands in the config's place
        overrides, config = [config, *overrides], None
    if (config is None) == (match is None):
        raise ConfigError("sft: expected either a config or --match RUN")
    if match is not None:
        base, spend = read_config(match, overrides), budget_of(match, measure)
    else:
        base = load_config(str(config), overrides)
        if measure not in BUDGET_UNITS or amount is None:
            raise ConfigError(
                f"sft CONFIG: expected --amount N and --budget one of {', '.join(BUDGET_UNITS)}"
            )
        spend = Budget(measure, amount)
    if amount is not None:
        spend = Budget(measure, amount)
    if not 0 < spend.amount < math.inf:
        raise ConfigError(
            f"sft: expected a budget above 0, got {spend.amount:g} {measure}: give another --amount"
        )
    if data is not None:
        source = {"kind": "file", "name": "data", "path": str(data)}
        task_sources.build(source).task()  # says now what is wrong with the data
        tasks = {"families": ("data",), "sources": (source,), "depths": None, "flip": None}
        base = base.model_copy(update={"tasks": base.tasks.model_copy(update=tasks)})
    return base, spend


def _keep(host: Host, weights: AdapterWeights, trial: SweepPoint, folder: Path) -> None:
    """Writes an adapter as a PEFT folder."""
    from symbiont_ecology.host.kernel import HostKernel

    assert isinstance(host, HostKernel)
    host.place(0, weights)
    card = (
        f"# SFT adapter\n\nRank {trial.rank}, learning rate {trial.learning_rate:g}, "
        f"{trial.train_flops:.3g} useful training FLOPs on `{host.name_or_path}`; "
        f"{trial.accuracy:.0%} of the selection questions right.\n"
    )
    host.export(0, folder, model_card=card)


def _numbers(text: str, kind: type) -> list:  # type: ignore[type-arg]
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"expected numbers with commas between them, got {text!r}") from error
    if not all(number > 0 for number in found):
        raise ConfigError(f"expected numbers above 0, got {text!r}")
    return found


def _tell_plan(base: RunConfig, spend: Budget, plan: SweepPlan, folder: Path) -> None:
    """What would be trained."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.experiments.sft import STOPS

    host, cells = base.host, mixture(base).cells
    rates, ranks = (", ".join(f"{one:g}" for one in some) for some in (plan.rates, plan.ranks))
    print(f"host       {host.model} on {host.device} in {host.dtype}")
    print(
        f"tasks      {len(cells)} cells: {' '.join(base.tasks.families)}, each {' '.join(dict.fromkeys(one for _, one in cells))}"
    )
    print(
        f"sweep      rates {rates}; ranks {ranks}; {plan.questions * len(cells)} gold answers per step"
    )
    print(
        f"budget     {spend.amount:.4g} {spend.measure} each; may stop at {', '.join(map(str, STOPS))} of it"
    )
    print(f"selection  {plan.per_cell} questions per cell")
    print(f"folder     {folder}")
    print("everything is fine; nothing was done")


def _tell(trial: SweepPoint) -> None:
    print(
        f"rate {trial.learning_rate:g}, rank {trial.rank}, {trial.part:g} of the budget: "
        f"{trial.accuracy:.1%} of the selection questions right ({trial.seconds:.0f} s)",
        flush=True,
    )

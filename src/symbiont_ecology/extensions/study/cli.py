"""``suite``, ``ablate``, ``compare``, ``pack`` and ``sft``: comparisons from the command line."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.base.errors import INTERRUPTED, ConfigError, RunError
from symbiont_ecology.base.files import free_folder, write_whole
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.console import command_line, prepare, report, write_json
from symbiont_ecology.cli.options import argument, option

if TYPE_CHECKING:
    from symbiont_ecology.extensions.study.comparison import Summary
    from symbiont_ecology.extensions.study.jobs import Job
    from symbiont_ecology.extensions.study.protocol import Protocol
    from symbiont_ecology.run.config import RunConfig

ALL_SHIFTS = (
    *("in-distribution", "depth", "wording", "shared-families", "unrelated-families"),
    *("composition", "retention"),
)
"""What a pack of runs asks."""
ADAPTER, REPORT_FILE = "adapter", "sft.json"
"""Folder of the adapter that SFT chose, and what was swept."""
RATES = (0.003, 0.006, 0.012)
"""Learning rates that suit the embedded host."""
LIVES = ("train_flops", "rollouts", "roi", "births", "deaths", "coverage")
"""What a table shows of the lives of arms."""


def suite(
    words: Annotated[
        list[str] | None,
        argument(
            "A protocol (symbiont list protocols) or a YAML file; changes of it, such as "
            "seeds=[0].",
            "PROTOCOL [KEY=VALUE]…",
        ),
    ] = None,
    additions: Annotated[
        list[str] | None,
        option("A change for every arm, such as host.device=cpu.", "--set", metavar="KEY=VALUE"),
    ] = None,
    ci: Annotated[
        bool, option("The protocol ci: three arms in two minutes, with a table.", "--ci")
    ] = False,
    out: Annotated[Path | None, options.resumable_folder("artifacts/<name>")] = None,
    workers: options.WorkersOption = None,
    json_file: options.JsonOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Run the arms of a protocol over its seeds. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.extensions.study.protocol import load_protocol
    from symbiont_ecology.extensions.study.suite import Suite, check_protocol

    names, changes = options.split_words(words)
    names += ["ci"] * ci
    if len(names) != 1:
        raise ConfigError(f"suite: expected one protocol or --ci, got {' '.join(names) or 'none'}")
    plan = load_protocol(names[0], changes, additions or ())
    check_protocol(plan)
    folder = out or Path("artifacts") / plan.name
    with report(json_file, dry_run) as write:
        if not work_through(plan, folder, workers, out, dry_run=dry_run):
            return
        if (ci or json_file is not None) and not plan.worlds:
            summary = Suite(plan, folder).comparison.summary
            if ci:
                tell_comparison(summary)
            write(summary.dump())
        print(f"complete: {folder}\nnext:     {command_line('pack', folder)}")


def ablate(
    words: Annotated[
        list[str] | None,
        argument(
            "A YAML file of ablations; changes of it, such as seeds=[100,101].",
            "[FILE] [KEY=VALUE]…",
            default="config/ablations/default.yaml",
        ),
    ] = None,
    out: Annotated[Path | None, options.resumable_folder("artifacts/<name>")] = None,
    page: Annotated[
        Path | None,
        option("The page; beside it are its numbers, as JSON.", default="docs/results/<name>.md"),
    ] = None,
    workers: options.WorkersOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Measure what each mechanism adds to an ecology. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.base.shipped import config_folder
    from symbiont_ecology.extensions.study import ablation
    from symbiont_ecology.extensions.study.suite import Suite

    files, changes = options.split_words(words)
    if len(files) > 1:
        raise ConfigError(f"ablate: expected one file at most, got {' '.join(files)}")
    file = Path(files[0]) if files else config_folder() / "ablations" / "default.yaml"
    rows, plan = ablation.load_ablation(file, changes)
    folder = out or Path("artifacts") / plan.name
    target = page or Path("docs/results") / f"{plan.name}.md"
    if not dry_run:
        prepare(target)
        prepare(target.with_suffix(".json"))
    if not work_through(plan, folder, workers, out, dry_run=dry_run):
        return
    results = ablation.results_of(Suite(plan, folder).comparison.results, rows)
    write_json(target.with_suffix(".json"), results.model_dump(mode="json"))
    write_whole(target, ablation.render_ablation(results))
    for mechanism, reading in results.readings.items():
        print(f"{mechanism:15s} {reading}")
    print(f"{target} is written")


def compare(
    runs: Annotated[list[Path], argument("Folders of runs of one task mix.", "RUN…")],
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 40,
    json_file: options.JsonOption = None,
) -> None:
    """Ask any runs the same holdout questions and print what differs, with intervals and tests."""
    from symbiont_ecology.extensions.study.suite import Comparison

    with report(json_file) as write:
        with console.asking() as count:
            made = Comparison.of_runs(*runs, shifts=shift, per_cell=per_cell, progress=count)
        tell_comparison(made.summary)
        write(made.summary.dump())


def pack(
    folders: Annotated[
        list[Path], argument("A suite, or runs, or a pack to be made again.", "FOLDER…")
    ],
    out: Annotated[
        Path | None,
        option(
            "Folder of the pack; beside it an index is written.", default="docs/paper_packs/<name>"
        ),
    ] = None,
    per_cell: options.PerCellOption = 40,
) -> None:
    """Make a paper pack: tables, figures, outcomes and hashes. A pack is made again from its own
    outcomes."""
    from symbiont_ecology.extensions.study import pack as packs
    from symbiont_ecology.extensions.study.suite import PROTOCOL_FILE, Comparison, Suite

    first = folders[0]
    is_pack, is_suite = (first / packs.OUTCOMES).exists(), (first / PROTOCOL_FILE).exists()
    if (is_pack or is_suite) and len(folders) > 1:
        raise ConfigError(
            f"pack: expected one suite, one pack or runs, got {' '.join(map(str, folders))}: pack "
            "them one by one"
        )
    if is_pack:
        if out is not None:
            raise ConfigError("--out: a pack is made again where it is: leave it out")
        packs.rebuild(first)
        if (first.parent / packs.INDEX).exists():
            packs.write_index(first.parent)
        print(f"made again from its own outcomes: {first}")
        return
    if is_suite:
        made = Suite.open(first).comparison
        if missing := made.results.missing:
            print(
                f"the suite is not finished, {missing} of {made.protocol.planned_runs} runs are "
                f"missing: {command_line('suite')} goes on with it"
            )
    else:
        with console.asking() as count:
            name = (out or first).name
            made = Comparison.of_runs(
                *folders, shifts=ALL_SHIFTS, per_cell=per_cell, name=name, progress=count
            )
    target = out or Path("docs/paper_packs") / made.protocol.name
    path, facts = target / packs.PROTOCOL, made.protocol.model_dump(mode="json")
    if path.exists() and json.loads(path.read_text("utf-8")) != facts:  # changed, of the same name
        raise RunError(f"{target} holds the pack of another protocol: choose another --out")
    prepare(target / packs.SUMMARY)
    made.save_pack(target)
    print(f"{target / packs.PAGE} is written")


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
    from symbiont_ecology.extensions.study.sft import STOPS, sft_protocol, sweep_points
    from symbiont_ecology.extensions.study.suite import check_protocol, tuning_jobs
    from symbiont_ecology.run.open_run import CONFIG_FILE

    if config is not None and "=" in config:  # with --match the first change stands there
        overrides, config = [config, *(overrides or [])], None
    if (config is None) == (match is None):
        raise ConfigError("sft: expected either a config or --match RUN")
    base, changes = str(config) if match is None else str(match / CONFIG_FILE), [*(overrides or [])]
    if data is not None:
        source = json.dumps({"kind": "file", "name": "data", "path": str(data)})
        changes.append(f"tasks={{families: [{source}], depths: null, flip: null}}")
    resolved, spent = _resolved(base, changes, match, budget, amount)
    if not 0 < scale * spent < math.inf:
        raise ConfigError(
            f"sft: expected a budget above 0, got {scale * spent:g} {budget}: give another "
            "--amount or --scale"
        )
    swept = _numbers(rates, float) if rates else _usual_rates(resolved)
    tried = _numbers(ranks, int) if ranks else [resolved.host.rank]
    tries = list(itertools.product(tried, swept, STOPS))
    changes.append(f"strategy={{kind: single, samples: 0, questions: {questions}, aging: 0}}")
    protocol = sft_protocol(base, changes, resolved, budget, scale * spent, tries, per_cell)
    check_protocol(protocol)
    folder, host = out or free_folder("sft"), resolved.host
    if not dry_run:
        prepare(folder / REPORT_FILE)
    console.tell_facts({"host": f"{host.model} on {host.device} in {host.dtype}"})
    stages = [("sft", tuning_jobs(protocol))]
    if not work_through(protocol, folder, workers, out, dry_run=dry_run, stages=stages):
        return
    about = {"schema": 2, "budget": {"measure": budget, "amount": scale * spent}}
    found = _export_best(sweep_points(protocol, folder, tries), folder)
    write_json(folder / REPORT_FILE, {**about, **found})
    words = ("evaluate", "--adapter", folder / ADAPTER, "--holdout", "FILE", "--host")
    print(f"next:   {command_line(*words, host.model)}")
    if match is not None:
        print(f"        {command_line('baselines', match, '--sft', folder / ADAPTER)}")


def work_through(
    plan: Protocol,
    folder: Path,
    workers: int | None,
    out: Path | None,
    *,
    dry_run: bool,
    stages: Iterable[tuple[str, Sequence[Job]]] | None = None,
) -> bool:
    """Print a plan and do what is missing of it; return False in a dry run.

    Raises:
        typer.Exit: it was stopped.
    """
    from symbiont_ecology.extensions.study import suite as suites
    from symbiont_ecology.extensions.study.workers import STOP_FILE

    def pull(number: int, frame: object) -> None:
        """On Ctrl-C the generations in flight are finished and saved."""
        (folder / STOP_FILE).touch()
        os.write(2, b"\nfinishing the generations in flight\n")

    count = workers or suites.usual_workers(plan)
    if not dry_run:
        prepare(folder / suites.PROTOCOL_FILE)
        suites.claim_folder(plan, folder)
    budgets = ", ".join(f"{budget * plan.unit_flops:.3g} FLOPs" for budget in plan.budgets)
    facts = {
        "protocol": f"{plan.name} ({plan.digest}): {plan.question}",
        "arms": ", ".join(plan.arms),
        "worlds": ", ".join(plan.worlds) or f"one, for {budgets}",
        "runs": f"{len(suites.tuning_jobs(plan))} to tune, {plan.planned_runs} to report",
        "workers": f"{count} at a time",
        "folder": str(folder),
    }
    console.tell_facts(facts)
    if dry_run:
        print("everything is fine; nothing was done")
        return False
    brake = signal.signal(signal.SIGINT, pull)
    try:
        staged = stages or suites.stages(plan, folder)
        is_complete = suites.do_jobs(staged, plan, folder, count)
    finally:
        signal.signal(signal.SIGINT, brake)
    if not is_complete:
        again = console.typed_again(folder, out)
        typer.echo(f"stopped; nothing that was finished is lost. Go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    return True


def tell_comparison(summary: Summary) -> None:
    """Print what the arms did, how often they were right and how they differ, at the largest
    budget."""
    import pandas as pd

    from symbiont_ecology.extensions.study.pack import NO_VALUE, claim, least_q, spread

    largest, main = summary.largest, summary.protocol.main
    lives = {arm: own[largest] for arm, own in summary.arms.items() if largest in own}
    spent = pd.DataFrame(lives).T.reindex(columns=["runs", *LIVES])
    spent["runs"] = pd.Series(summary.seeds)
    shares, tests = summary.accuracy[largest], summary.differences[largest]
    rows = {
        "": spent.map("{:.3g}".format),
        "right, %": pd.DataFrame(shares).T.map(spread, na_action="ignore"),
        f"{main} minus, points": pd.DataFrame(tests).T.map(claim, na_action="ignore"),
    }
    for title, made in rows.items():
        print(made.fillna(NO_VALUE).rename_axis(columns=title).to_string())
    if min(summary.seeds.values()) < 2:
        print("one seed says nothing about others: intervals are over questions alone")
    if said := least_q(tests):
        print(said)


def _usual_rates(config: RunConfig) -> Sequence[float]:
    """Half, once and twice the learning rate of the config's strategy, which suits its host."""
    from symbiont_ecology.ecology.strategies import strategies

    rate = getattr(strategies.build(config.strategy), "learning_rate", None)
    return RATES if rate is None else [rate / 2, rate, 2 * rate]


def _resolved(
    base: str, changes: list[str], match: Path | None, measure: str, amount: float | None
) -> tuple[RunConfig, float]:
    """The config with its changes, and the budget; every mistake is found here."""
    from symbiont_ecology.extensions.study.sft import BUDGET_KEYS, spent_by
    from symbiont_ecology.run.build import check
    from symbiont_ecology.run.config import load_config
    from symbiont_ecology.run.open_run import read_config

    if (match is None and amount is None) or measure not in BUDGET_KEYS:
        known = ", ".join(BUDGET_KEYS)
        raise ConfigError(f"sft: expected --match RUN or --amount N, and --budget one of {known}")
    config = load_config(base, changes) if match is None else read_config(match, changes)
    check(config)
    return config, spent_by(match, measure) if match and amount is None else amount or 0.0


def _export_best(points: Sequence[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Write the adapter that the sweep chose; return what was swept. Of equals it is the cheapest,
    which stopped first."""
    best = min(points, key=lambda point: (-point["accuracy"], point["train_flops"]))
    said = "rate {learning_rate:g}, rank {rank}, {part:g} of the budget: {accuracy:.1%} of the "
    said += "selection questions right"
    for point in points:
        print(f"{'chosen: ' if point is best else ''}{said.format(**point)}")
    run = console.open_run(folder / best["folder"])
    about = f"useful training FLOPs on `{run.kernel.name_or_path}`; {said.format(**best)}"
    run.best.save_peft(folder / ADAPTER, f"# SFT adapter\n\n{best['train_flops']:.3g} {about}.\n")
    return {"chosen": best, "sweep": points}


def _numbers(text: str, kind: type[float]) -> list[Any]:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) <= 0:
        raise ConfigError(f"expected numbers above 0 with commas between them, got {text!r}")
    return numbers

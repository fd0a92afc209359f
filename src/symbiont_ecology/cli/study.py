"""``suite``, ``compare`` and ``pack``: arms over seeds, what came of them, and the paper pack of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.cli.live import typed
from symbiont_ecology.cli.measure import prepare, progress, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event

    from rich.progress import Progress

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.world import Host
    from symbiont_ecology.evaluation.jobs import Job
    from symbiont_ecology.evaluation.protocol import Protocol

INTERRUPTED = 130


def suite(
    protocol: Annotated[str, typer.Argument(help="A protocol of config/protocols, or a YAML file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the suite; one that exists goes on.", show_default="artifacts/<name>"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time.", show_default="one per core")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the protocol, say the plan, do nothing.")
    ] = False,
) -> None:
    """Run the arms of a protocol over its seeds. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.evaluation.protocol import load_protocol
    from symbiont_ecology.evaluation.suite import check_protocol, claim, run_suite

    plan = load_protocol(protocol)
    check_protocol(plan)
    folder = out or Path("artifacts") / plan.name
    count = workers or os.cpu_count() or 1
    if not dry_run:
        claim(plan, folder)
    tell_plan(plan, folder, count)
    if dry_run:
        print("the protocol is fine; nothing was done")
        return
    stop = multiprocessing.get_context("spawn").Event()
    with _progress() as progress, _brake(stop):
        is_complete = run_suite(plan, folder, count, lambda name, jobs: _watcher(progress, name, jobs), stop)
    again = f"{typed()} suite {protocol}" + (f" --out {out}" if out else "")
    if not is_complete:
        typer.echo(f"stopped; nothing that was finished is lost. Go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    print(f"complete: {folder}\nnext:     {typed()} pack {folder}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs of one task mix.")],
    shift: Annotated[
        list[str] | None, typer.Option(help="A shift to ask.", show_default="in-distribution")
    ] = None,
    per_cell: Annotated[int, typer.Option(min=1, help="Holdout questions per cell and shift.")] = 40,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the whole summary there.")] = None,
) -> None:
    """Ask any runs the same holdout questions and print what differs, with intervals and tests."""
    from symbiont_ecology.analysis.comparison import summarise
    from symbiont_ecology.analysis.outcomes import Outcomes
    from symbiont_ecology.analysis.terminal import tell_comparison

    if json_file is not None:
        prepare(json_file)
    protocol, rows = _gathered(runs, tuple(shift or ("in-distribution",)), per_cell, "comparison")
    outcomes = Outcomes(protocol.model_dump(mode="json"), rows)
    summary = summarise(outcomes)
    tell_comparison(outcomes, summary)
    if json_file is not None:
        write_json(json_file, summary)


def pack(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER…", help="A suite, or runs, or a pack to be made again.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the pack.", show_default="docs/paper_packs/<name>")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of a pack of runs.", show_default="the folder's")
    ] = None,
    per_cell: Annotated[int, typer.Option(min=1, help="Of runs: questions per cell and shift.")] = 40,
) -> None:
    """Make a paper pack: tables, figures, outcomes and hashes. A pack is made again from its own outcomes."""
    from symbiont_ecology.analysis.pack import OUTCOMES, rebuild, write_index, write_pack
    from symbiont_ecology.evaluation.protocol import Protocol
    from symbiont_ecology.evaluation.suite import PROTOCOL_FILE, TUNED_FILE, outcomes

    first = folders[0]
    if (first / OUTCOMES).exists():
        rebuild(first)
        print(f"made again from its own outcomes: {first}")
        return
    if (first / PROTOCOL_FILE).exists():
        protocol = Protocol.model_validate_json((first / PROTOCOL_FILE).read_text(encoding="utf-8"))
        rows = list(outcomes(protocol, first))
        tuned = json.loads((first / TUNED_FILE).read_text(encoding="utf-8"))
    else:
        protocol, rows = _gathered(folders, ALL_SHIFTS, per_cell, name or (out or first).name)
        tuned = {"chosen": {arm: {"1": 0} for arm in protocol.arms}, "sweep": []}
    target = out or Path("docs/paper_packs") / protocol.name
    prepare(target / "summary.json")
    write_pack(target, protocol.model_dump(mode="json"), rows, tuned)
    write_index(target.parent)
    print(f"{target / 'README.md'} is written")


ALL_SHIFTS = (
    *("in-distribution", "depth", "wording", "shared-families", "unrelated-families"),
    *("composition", "retention"),
)


def _gathered(
    runs: list[Path], shifts: tuple[str, ...], per_cell: int, name: str
) -> tuple[Protocol, list[dict[str, Any]]]:
    """The runs, asked; one host for those that share its config."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.gather import gather

    hosts: dict[str, Host] = {}

    def host_of(config: RunConfig) -> Host:
        """A host of that config, loaded once."""
        key = config.host.model_dump_json()
        if key not in hosts:
            hosts[key] = build_host(config)
        return hosts[key]

    with progress("asking") as watch:
        return gather(runs, shifts, per_cell, host_of, name, watch)


def tell_plan(plan: Protocol, folder: Path, workers: int) -> None:
    """What a suite would do."""
    from symbiont_ecology.evaluation.suite import tuning_jobs

    tuning = len(tuning_jobs(plan))
    runs = len(plan.own_arms) * len(plan.seeds) * (len(plan.budgets) + (plan.flip is not None))
    budgets = ", ".join(f"{budget * plan.unit_flops:.3g}" for budget in plan.budgets)
    print(f"protocol  {plan.name} ({plan.digest}): {plan.question}")
    print(f"arms      {', '.join(plan.arms)}")
    print(f"budgets   {budgets} useful training FLOPs")
    print(f"runs      {tuning} to tune, {runs} to report, {workers} at a time")
    print(f"folder    {folder}")


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("ETA"), TimeRemainingColumn(), console=Console(stderr=True))


def _watcher(progress: Progress, stage: str, jobs: int) -> Callable[[Job, float], None]:
    task = progress.add_task(stage, total=jobs)

    def advance(job: Job, seconds: float) -> None:
        """One more is done."""
        progress.update(task, advance=1, description=f"{stage}: {job.arm}")

    return advance


@contextmanager
def _brake(stop: Event) -> Iterator[None]:
    """Ctrl-C: the generations in flight are finished and saved."""

    def pull(number: int, frame: object) -> None:
        """Asks the workers to stop."""
        stop.set()
        os.write(2, b"\nfinishing the generations in flight\n")

    before = signal.signal(signal.SIGINT, pull)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

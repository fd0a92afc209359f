"""``suite``, ``compare`` and ``pack``: arms over seeds, what came of them, and the paper pack of
it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from symbiont_ecology.cli.console import ShiftOption, asking, prepare, text_stream, write_json
from symbiont_ecology.cli.progress import stages
from symbiont_ecology.cli.run import INTERRUPTED, typed
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.synchronize import Event

    from symbiont_ecology.experiments.adhoc_comparison import AdhocComparison
    from symbiont_ecology.experiments.jobs import Job
    from symbiont_ecology.experiments.protocol import Protocol
    from symbiont_ecology.suite import Comparison, Suite

CI = "ci"
"""The protocol of ``--ci``."""
ALL_SHIFTS = (
    *("in-distribution", "depth", "wording", "shared-families", "unrelated-families"),
    *("composition", "retention"),
)
"""What a pack of runs asks."""
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say the plan, do nothing.")
]


def suite(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROTOCOL [KEY=VALUE]…",
            help="A protocol (symbiont list protocols) or a YAML file; changes of it, such as "
            "seeds=[0].",
            show_default=False,
        ),
    ] = None,
    additions: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A change for every arm, such as host.device=cpu."
        ),
    ] = None,
    ci: Annotated[
        bool,
        typer.Option(
            "--ci", help="The protocol ci: the three controls in two minutes, with a table."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the suite; one that exists goes on.", show_default="artifacts/<name>"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time.", show_default="one per core, or per GPU"),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the summary there when complete; - is stdout."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Run the arms of a protocol over its seeds. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.experiments.protocol import load_protocol
    from symbiont_ecology.experiments.suite import check_protocol, claim_folder, usual_workers
    from symbiont_ecology.suite import Suite

    name, changes = _named(words or [], ci)
    plan = load_protocol(name, changes, additions or ())
    check_protocol(plan)
    folder, count = out or Path("artifacts") / plan.name, workers or usual_workers(plan)
    stream = text_stream(json_file)
    if not dry_run:
        if json_file is not None:
            prepare(json_file)
        claim_folder(plan, folder)
    tell_suite_plan(plan, folder, count, stream)
    if dry_run:
        print("the protocol is fine; nothing was done", file=stream)
        return
    work_through(plan, folder, count, stream)
    _tell_result(Suite(plan, folder), ci, json_file, stream)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Folders of runs of one task mix.")
    ],
    shift: ShiftOption = None,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Holdout questions per cell and shift.")
    ] = 40,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the whole summary there; - is stdout.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Ask any runs the same holdout questions and print what differs, with intervals and tests."""
    from rich.console import Console

    from symbiont_ecology.analysis.terminal import tell_comparison
    from symbiont_ecology.experiments.adhoc_comparison import adhoc_comparison

    stream = text_stream(json_file)
    gathered = adhoc_comparison(runs, tuple(shift or ("in-distribution",)), per_cell, "comparison")
    if dry_run:
        tell_gathered(gathered, stream)
        print("the runs can be compared; nothing was done", file=stream)
        return
    if json_file is not None:
        prepare(json_file)
    comparison = _asked(gathered)
    tell_comparison(comparison.summary, Console(file=stream))
    if json_file is not None:
        write_json(json_file, comparison.summary.dump())


def pack(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER…", help="A suite, or runs, or a pack to be made again."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the pack; beside it an index is written.",
            show_default="docs/paper_packs/<name>",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of a pack of runs.", show_default="the folder's")
    ] = None,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Of runs: questions per cell and shift.")
    ] = 40,
    dry_run: DryRun = False,
) -> None:
    """Make a paper pack: tables, figures, outcomes and hashes. A pack is made again from its own
    outcomes."""
    from symbiont_ecology.analysis.pack import OUTCOMES, read_pack, rebuild
    from symbiont_ecology.experiments.adhoc_comparison import adhoc_comparison
    from symbiont_ecology.experiments.suite import PROTOCOL_FILE
    from symbiont_ecology.suite import Suite

    first = folders[0]
    is_pack, is_suite = (first / OUTCOMES).exists(), (first / PROTOCOL_FILE).exists()
    if len(folders) > 1 and (is_pack or is_suite):
        found = " ".join(map(str, folders))
        raise ConfigError(
            f"pack: expected one suite, one pack or runs, got {found}: pack them one by one"
        )
    if is_pack:
        if dry_run:
            print(
                f"{len(read_pack(first)[0].outcomes)} outcomes in {first} are fine; nothing was "
                "done"
            )
            return
        rebuild(first)
        print(f"made again from its own outcomes: {first}")
        return
    if is_suite:
        comparison = Suite.open(first).comparison
        protocol = comparison.protocol
    else:
        gathered = adhoc_comparison(folders, ALL_SHIFTS, per_cell, name or (out or first).name)
        protocol = gathered.protocol
    target = out or Path("docs/paper_packs") / protocol.name
    _check_target(target, protocol)
    if dry_run:
        if is_suite:
            count = len(comparison.outcomes)
            print(f"outcomes  {count} of protocol {protocol.name} ({protocol.digest}) in {first}")
        else:
            tell_gathered(gathered, sys.stdout)
        print(f"pack      {target}\nnothing was done")
        return
    prepare(target / "summary.json")
    (comparison if is_suite else _asked(gathered)).save_pack(target)
    print(f"{target / 'README.md'} is written")


def work_through(
    plan: Protocol, folder: Path, count: int, stream: TextIO, jobs: Sequence[Job] | None = None
) -> None:
    """Does what is missing of a suite, or of some jobs; who stops it is told how to go on.

    Raises:
        typer.Exit: it was stopped.
    """
    from symbiont_ecology.experiments.jobs import OUTCOME_FILE
    from symbiont_ecology.experiments.suite import Workers, do_jobs, run_suite

    stop = multiprocessing.get_context("spawn").Event()
    before = len(list(folder.rglob(OUTCOME_FILE)))
    with stages() as watch, _brake(stop):
        workers = Workers(count, watch, stop)
        if jobs is None:
            is_complete = run_suite(plan, folder, workers)
        else:
            is_complete = do_jobs(plan.name, jobs, plan, folder, workers)
    if not is_complete:
        again = f"{typed()} {shlex.join(sys.argv[1:])}"
        typer.echo(f"stopped; nothing that was finished is lost. Go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    if len(list(folder.rglob(OUTCOME_FILE))) == before:
        print(
            f"all of it had been done before: to do it anew, choose another --out than {folder}",
            file=stream,
        )


def tell_suite_plan(plan: Protocol, folder: Path, workers: int, stream: TextIO) -> None:
    """What a suite would do."""
    from symbiont_ecology.experiments.suite import tuning_jobs

    tuning = len(tuning_jobs(plan))
    runs = len(plan.own_arms) * len(plan.seeds) * (len(plan.budgets) + (plan.flip is not None))
    budgets = ", ".join(f"{budget * plan.unit_flops:.3g}" for budget in plan.budgets)
    for label, value in (
        ("protocol", f"{plan.name} ({plan.digest}): {plan.question}"),
        ("arms", ", ".join(plan.arms)),
        ("budgets", f"{budgets} useful training FLOPs"),
        ("runs", f"{tuning} to tune, {runs} to report, {workers} at a time"),
        ("folder", str(folder)),
    ):
        print(f"{label:9s} {value}", file=stream)


def tell_gathered(gathered: AdhocComparison, stream: TextIO) -> None:
    """Which runs would be asked how much."""
    from symbiont_ecology.experiments.jobs import items_of

    protocol = gathered.protocol
    for arm, members in gathered.arms.items():
        seeds = ", ".join(str(gathered.runs[folder].config.seed) for folder in members)
        print(f"{arm:15s} seeds {seeds}: {' '.join(map(str, members))}", file=stream)
    questions = len(items_of(protocol, gathered.runs[gathered.first].config, protocol.shifts))
    print(
        f"{questions} questions to each and to the bare host: {', '.join(protocol.shifts)}",
        file=stream,
    )


def _named(words: Sequence[str], is_ci: bool) -> tuple[str, list[str]]:
    """The protocol that is meant, and the changes of it."""
    names = [word for word in words if "=" not in word] + [CI] * is_ci
    if len(names) != 1:
        raise ConfigError(f"suite: expected one protocol or --ci, got {' '.join(names) or 'none'}")
    return names[0], [word for word in words if "=" in word]


def _tell_result(suite: Suite, is_ci: bool, json_file: Path | None, stream: TextIO) -> None:
    """Where a complete suite is, and its summary as far as that was asked for."""
    from rich.console import Console

    from symbiont_ecology.analysis.terminal import tell_comparison

    if is_ci or json_file is not None:
        summary = suite.comparison.summary
        if is_ci:
            tell_comparison(summary, Console(file=stream))
        if json_file is not None:
            write_json(json_file, summary.dump())
    print(f"complete: {suite.folder}\nnext:     {typed()} pack {suite.folder}", file=stream)


def _check_target(target: Path, protocol: Protocol) -> None:
    """A changed protocol may bear the name of the one that it was made from: its pack may not."""
    from symbiont_ecology.analysis.pack import PROTOCOL

    path = target / PROTOCOL
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != protocol.model_dump(
        mode="json"
    ):
        raise RunError(f"{target} holds the pack of another protocol: choose another --out")


def _asked(gathered: AdhocComparison) -> Comparison:
    """The runs, asked."""
    from symbiont_ecology.experiments.adhoc_comparison import ask_runs
    from symbiont_ecology.experiments.suite import Tuning
    from symbiont_ecology.suite import Comparison

    with asking() as progress:
        outcomes = ask_runs(gathered, progress)
    return Comparison(gathered.protocol, outcomes, Tuning.untuned(gathered.protocol))


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

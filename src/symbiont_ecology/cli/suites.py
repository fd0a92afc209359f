"""``suite`` and ``ablate``: the arms of a protocol over seeds, in worker processes that can be
stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress
from rich.console import Console

from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import (
    command_line,
    prepare,
    report,
    tell_facts,
    typed_again,
    write_json,
)
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.errors import INTERRUPTED, ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.engine.executors import Executor
    from symbiont_ecology.experiments.ablation import Ablation
    from symbiont_ecology.experiments.job_pool import AnyJob, JobCallback, Workers
    from symbiont_ecology.experiments.suite import Plan

CI = "ci"
"""The protocol of ``--ci``."""
METHODS = "methods-v1"
"""The protocol of ``--methods``, if no other is named."""
PARTS = 20
"""Lines on the progress of a stage, at most."""


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
    methods: Annotated[
        str | None,
        option(f"Only these arms, such as ecology,es; of {METHODS} if no protocol is named."),
    ] = None,
    out: Annotated[Path | None, options.resumable_folder("artifacts/<name>")] = None,
    workers: options.WorkersOption = None,
    executor: Annotated[
        str, option("Who does the runs: local, ray, or such as '{kind: ray, address: auto}'.")
    ] = "local",
    json_file: options.JsonOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Run the arms of a protocol over its seeds. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology import Suite
    from symbiont_ecology.analysis.streams import check_measures
    from symbiont_ecology.analysis.terminal import tell_comparison
    from symbiont_ecology.cli.options import typed_spec
    from symbiont_ecology.engine.executors import executors
    from symbiont_ecology.experiments import suite as suites
    from symbiont_ecology.experiments.job_pool import jobs_at_a_time
    from symbiont_ecology.experiments.worlds import WorldsProtocol

    names, changes = options.split_words(words)
    names += [CI] * ci or [METHODS] * (methods is not None and not names)
    if len(names) != 1:
        raise ConfigError(f"suite: expected one protocol or --ci, got {' '.join(names) or 'none'}")
    plan = suites.load_plan(names[0], changes, additions or ())
    if methods is not None:
        plan = _of_methods(plan, methods)
    suites.check_plan(plan)
    if isinstance(plan, WorldsProtocol):
        check_measures(plan)
    doer = executors.build(typed_spec(executor, "--executor"))
    doer.check()
    folder = out or Path("artifacts") / plan.name
    default_count = suites.usual_workers(plan)
    count = workers or (default_count if dry_run else jobs_at_a_time(doer, default_count))
    with report(json_file, dry_run) as write_json:
        if not dry_run:
            suites.claim_folder(plan, folder)
        _tell_plan(plan, folder, count)
        if dry_run:
            print("the protocol is fine; nothing was done")
            return
        again = typed_again(folder, out)
        work_through(lambda crew: suites.run_suite(plan, folder, crew), folder, count, again, doer)
        if (ci or json_file is not None) and not isinstance(plan, WorldsProtocol):
            summary = Suite(plan, folder).comparison.summary
            if ci:
                tell_comparison(summary, Console())
            write_json(summary.dump())
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
        option("The page; its numbers go into results/ beside it.", default="docs/<name>.md"),
    ] = None,
    workers: options.WorkersOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Measure what each mechanism adds to an ecology. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology import Suite
    from symbiont_ecology.analysis import ablation as tables
    from symbiont_ecology.experiments import suite as suites
    from symbiont_ecology.experiments.ablation import check_ablation, load_ablation
    from symbiont_ecology.files import write_whole
    from symbiont_ecology.shipped import config_folder

    files, changes = options.split_words(words)
    if len(files) > 1:
        raise ConfigError(f"ablate: expected one file at most, got {' '.join(files)}")
    file = Path(files[0]) if files else config_folder() / "ablations" / "default.yaml"
    ablation = load_ablation(file, changes)
    check_ablation(ablation)
    plan = ablation.protocol
    folder, count = out or Path("artifacts") / plan.name, workers or suites.usual_workers(plan)
    target = page or Path("docs") / f"{plan.name}.md"
    if not dry_run:
        prepare(target)
        prepare(tables.results_file(target))
        suites.claim_folder(plan, folder)
    _tell_plan(plan, folder, count)
    _tell_rows(ablation)
    if dry_run:
        print("the ablations are fine; nothing was done")
        return
    again = typed_again(folder, out)
    work_through(lambda crew: suites.run_suite(plan, folder, crew), folder, count, again)
    answers = Suite(plan, folder).comparison.results
    results = tables.results_of(answers, ablation.rows)
    write_json(tables.results_file(target), results.model_dump(mode="json"))
    write_whole(target, tables.render_ablation(results))
    for mechanism, reading in tables.readings(results).items():
        print(f"{mechanism:15s} {reading}")
    print(f"{target} is written")


def work_through(
    work: Callable[[Workers], bool],
    folder: Path,
    count: int,
    again: str,
    executor: Executor | None = None,
) -> None:
    """Does what is missing in a suite's folder; who stops it is told to go on with ``again``.

    Raises:
        typer.Exit: it was stopped.
    """
    from symbiont_ecology.engine.executors import LocalExecutor
    from symbiont_ecology.experiments.job_pool import Workers
    from symbiont_ecology.experiments.jobs import OUTCOME_FILE

    stop = multiprocessing.get_context("spawn").Event()

    def pull(number: int, frame: object) -> None:
        """On Ctrl-C the generations in flight are finished and saved."""
        stop.set()
        os.write(2, b"\nfinishing the generations in flight\n")

    before, brake = len(list(folder.rglob(OUTCOME_FILE))), signal.signal(signal.SIGINT, pull)
    try:
        with _stages() as watch:
            is_complete = work(Workers(count, watch, stop, executor or LocalExecutor()))
    finally:
        signal.signal(signal.SIGINT, brake)
    if not is_complete:
        typer.echo(f"stopped; nothing that was finished is lost. Go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    if len(list(folder.rglob(OUTCOME_FILE))) == before:
        print(f"all of it had been done before: to do it anew, choose another --out than {folder}")


@contextmanager
def _stages() -> Iterator[Callable[[str, int], JobCallback]]:
    """How far a suite is: a bar for every stage on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_lines
        return
    columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
    with progress.Progress(*columns, console=console) as bars:

        def draw_bar(stage: str, jobs: int) -> JobCallback:
            """A bar that grows with every job."""
            task = bars.add_task(stage, total=jobs)
            return lambda job, seconds: bars.update(
                task, advance=1, description=f"{stage}: {job.arm}"
            )

        yield draw_bar


def print_lines(stage: str, jobs: int) -> JobCallback:
    """A line on stderr whenever another twentieth of the jobs is done, and one at the end.

    Jobs that were done before (in 0 seconds) do not count for the time that is left.
    """
    began, done, done_before, last_part = time.monotonic(), 0, 0, 0

    def advance(job: AnyJob, seconds: float) -> None:
        """Counts another job."""
        nonlocal done, done_before, last_part
        done, done_before = done + 1, done_before + (seconds == 0)
        part = done * PARTS // jobs
        if part == last_part or (seconds == 0 and done < jobs):
            return
        last_part, elapsed = part, time.monotonic() - began
        seconds_left = round(elapsed / max(done - done_before, 1) * (jobs - done))
        eta = f", about {timedelta(seconds=seconds_left)} to go" if done < jobs else ""
        count = f"{done} of {jobs} jobs ({100 * done // jobs} %)"
        print(
            f"{stage}: {count} after {timedelta(seconds=round(elapsed))}{eta}",
            file=sys.stderr,
            flush=True,
        )

    return advance


def _of_methods(plan: Plan, methods: str) -> Plan:
    """A protocol with some of its arms."""
    from symbiont_ecology.experiments.worlds import WorldsProtocol

    names = list(dict.fromkeys(name.strip() for name in methods.split(",")))
    if isinstance(plan, WorldsProtocol):
        raise ConfigError(
            f"suite --methods: expected a protocol whose arms share one world, got {plan.name!r}"
        )
    return plan.of_arms(names)


def _tell_plan(plan: Plan, folder: Path, workers: int) -> None:
    """What a suite would do."""
    from symbiont_ecology.experiments.suite import tuning_jobs
    from symbiont_ecology.experiments.world_jobs import tuning_runs
    from symbiont_ecology.experiments.worlds import WorldsProtocol

    facts = {"protocol": f"{plan.name} ({plan.digest}): {plan.question}"}
    if isinstance(plan, WorldsProtocol):
        arms = sum(len(world.arms) for world in plan.worlds.values())
        counts = f"{len(tuning_runs(plan))} to tune, {arms * len(plan.seeds)} to report"
        facts |= {
            "worlds": ", ".join(plan.worlds),
            "arms": ", ".join(plan.arms),
            "runs": f"{counts}, {workers} at a time",
            "folder": str(folder),
        }
        tell_facts(facts)
        return

    tuning = len(tuning_jobs(plan))
    runs = len(plan.own_arms) * len(plan.seeds) * (len(plan.budgets) + (plan.flip is not None))
    budgets = ", ".join(f"{budget * plan.unit_flops:.3g}" for budget in plan.budgets)
    facts |= {
        "arms": ", ".join(plan.arms),
        "budgets": f"{budgets} useful training FLOPs",
        "runs": f"{tuning} to tune, {runs} to report, {workers} at a time",
        "folder": str(folder),
    }
    tell_facts(facts)


def _tell_rows(ablation: Ablation) -> None:
    """What is left out or put in, and whether so many seeds can show anything."""
    from symbiont_ecology.analysis.ablation import MEASURES, smallest_q

    plan = ablation.protocol
    for row in ablation.rows:
        print(f"  {row.mechanism:15s} for {row.purpose:10s} {' '.join(row.set)}")
    hidden = {"resilience"} if plan.flip is None else set()
    hidden |= {"retention"} - set(plan.shifts)
    measures = [measure for measure in MEASURES.values() if measure.purpose not in hidden]
    tests = len(ablation.rows) * len(measures)
    best = smallest_q(tests, len(plan.seeds))
    verdict = "" if best < plan.level else ": too few seeds for an effect that stands alone"
    print(f"tests     {tests}, the q of one that stands alone is {best:.2g} at best{verdict}")

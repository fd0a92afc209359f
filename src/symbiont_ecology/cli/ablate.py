"""``ablate``: runs an ecology with and without each of its mechanisms, and makes the page of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.compare import DryRun, tell_suite_plan, work_through
from symbiont_ecology.cli.console import prepare, write_json
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.experiments.ablation import Ablation


def ablate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [KEY=VALUE]…",
            help="A YAML file of ablations; changes of it, such as seeds=[100,101].",
            show_default="config/ablations/default.yaml",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the runs; one that exists goes on.", show_default="artifacts/<name>"
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="The page; its numbers go into results/ beside it.", show_default="docs/<name>.md"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time.", show_default="one per core, or per GPU"),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Measure what each mechanism adds to an ecology. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.analysis.ablation import (
        readings,
        render_ablation,
        results_file,
        results_of,
    )
    from symbiont_ecology.config import config_folder
    from symbiont_ecology.experiments.ablation import check_ablation, load_ablation
    from symbiont_ecology.experiments.suite import claim_folder, usual_workers
    from symbiont_ecology.files import write_whole
    from symbiont_ecology.suite import Suite

    files, changes = (
        [word for word in words or [] if ("=" in word) == is_change] for is_change in (0, 1)
    )
    if len(files) > 1:
        raise ConfigError(f"ablate: expected one file at most, got {' '.join(files)}")
    ablation = load_ablation(
        Path(files[0]) if files else config_folder() / "ablations" / "default.yaml", changes
    )
    check_ablation(ablation)
    plan = ablation.protocol
    folder, count = out or Path("artifacts") / plan.name, workers or usual_workers(plan)
    target = page or Path("docs") / f"{plan.name}.md"
    if not dry_run:
        for file in (target, results_file(target)):
            prepare(file)
        claim_folder(plan, folder)
    tell_suite_plan(plan, folder, count, sys.stdout)
    _tell_rows(ablation)
    if dry_run:
        print("the ablations are fine; nothing was done")
        return
    work_through(plan, folder, count, sys.stdout)
    answers = Suite(plan, folder).comparison.results
    results = results_of(answers, [row.model_dump(mode="json") for row in ablation.rows])
    write_json(results_file(target), results.model_dump(mode="json"))
    write_whole(target, render_ablation(results))
    for mechanism, said in readings(results).items():
        print(f"{mechanism:15s} {said}")
    print(f"{target} is written")


def _tell_rows(ablation: Ablation) -> None:
    """What is left out or put in, and whether so many seeds can show anything."""
    from symbiont_ecology.analysis.ablation import MEASURES, smallest_q

    plan = ablation.protocol
    for row in ablation.rows:
        print(f"  {row.mechanism:15s} for {row.purpose:10s} {' '.join(row.set)}")
    hidden = {"resilience"} if plan.flip is None else set()
    hidden |= {"retention"} - set(plan.shifts)
    shown = [one for one in MEASURES.values() if one.purpose not in hidden]
    tests = len(ablation.rows) * len(shown)
    best = smallest_q(tests, len(plan.seeds))
    verdict = "" if best < plan.level else ": too few seeds for an effect that stands alone"
    print(f"tests     {tests}, the q of one that stands alone is {best:.2g} at best{verdict}")

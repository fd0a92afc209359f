"""``compare`` and ``pack``: what came of any runs or of a suite, and the paper pack of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import asking, command_line, prepare, report
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from symbiont_ecology.experiments.adhoc_comparison import AdhocComparison
    from symbiont_ecology.experiments.suite import Plan
    from symbiont_ecology.experiments.worlds import WorldsProtocol

ALL_SHIFTS = (
    *("in-distribution", "depth", "wording", "shared-families", "unrelated-families"),
    *("composition", "retention"),
)
"""What a pack of runs asks."""


def compare(
    runs: Annotated[list[Path], argument("Folders of runs of one task mix.", "RUN…")],
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 40,
    json_file: options.JsonOption = None,
    dry_run: options.DryRunOption = False,
) -> None:
    """Ask any runs the same holdout questions and print what differs, with intervals and tests."""
    from symbiont_ecology import Comparison
    from symbiont_ecology.analysis.terminal import tell_comparison
    from symbiont_ecology.experiments.adhoc_comparison import adhoc_comparison

    gathered = adhoc_comparison(runs, tuple(shift), per_cell, "comparison")
    with report(json_file, dry_run) as write_json:
        if dry_run:
            _tell_gathered(gathered)
            print("the runs can be compared; nothing was done")
            return
        with asking() as progress:
            summary = Comparison.of(gathered, progress).summary
        tell_comparison(summary, Console())
        write_json(summary.dump())


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
    name: Annotated[str | None, option("Name of a pack of runs.", default="the folder's")] = None,
    per_cell: options.PerCellOption = 40,
    dry_run: options.DryRunOption = False,
) -> None:
    """Make a paper pack: tables, figures, outcomes and hashes. A pack is made again from its own
    outcomes."""
    from symbiont_ecology import Comparison, Suite
    from symbiont_ecology.analysis import pack as packs
    from symbiont_ecology.experiments import suite as suites
    from symbiont_ecology.experiments.adhoc_comparison import adhoc_comparison
    from symbiont_ecology.experiments.suite import PROTOCOL_FILE
    from symbiont_ecology.experiments.worlds import WorldsProtocol

    first = folders[0]
    is_pack, is_suite = (first / packs.OUTCOMES).exists(), (first / PROTOCOL_FILE).exists()
    if len(folders) > 1 and (is_pack or is_suite):
        raise ConfigError(
            f"pack: expected one suite, one pack or runs, got {' '.join(map(str, folders))}: pack "
            "them one by one"
        )
    if is_pack and dry_run:
        read = packs.read_worlds_pack if packs.has_worlds(first) else packs.read_pack
        count = len(read(first)[0].outcomes)
        print(f"{count} outcomes in {first} are fine; nothing was done")
        return
    if is_pack:
        if out is not None:
            raise ConfigError("--out: a pack is made again where it is: leave it out")
        packs.rebuild(first)
        if (first.parent / packs.INDEX).exists():
            packs.write_index(first.parent)
        print(f"made again from its own outcomes: {first}")
        return
    if is_suite and isinstance(plan := suites.read_plan(first), WorldsProtocol):
        _pack_worlds(plan, first, out, dry_run=dry_run)
        return
    work = (
        Suite.open(first).comparison
        if is_suite
        else adhoc_comparison(folders, ALL_SHIFTS, per_cell, name or (out or first).name)
    )
    protocol = work.protocol
    target = _target(protocol, out)
    if dry_run:
        if isinstance(work, Comparison):
            count = len(work.outcomes)
            print(f"outcomes  {count} of protocol {protocol.name} ({protocol.digest}) in {first}")
        else:
            _tell_gathered(work)
        print(f"pack      {target}\nnothing was done")
        return
    prepare(target / "summary.json")
    if not isinstance(work, Comparison):
        with asking() as progress:
            work = Comparison.of(work, progress)
    work.save_pack(target)
    print(f"{target / 'README.md'} is written")


def _target(protocol: Plan, out: Path | None) -> Path:
    """The folder of a pack.

    Raises:
        RunError: it holds another one.
    """
    from symbiont_ecology.analysis import pack as packs

    target = out or Path("docs/paper_packs") / protocol.name
    path = target / packs.PROTOCOL  # a changed protocol may bear the name of the one before
    if path.exists() and json.loads(path.read_text("utf-8")) != protocol.model_dump(mode="json"):
        raise RunError(f"{target} holds the pack of another protocol: choose another --out")
    return target


def _pack_worlds(plan: WorldsProtocol, folder: Path, out: Path | None, *, dry_run: bool) -> None:
    """The pack of a suite of worlds."""
    from symbiont_ecology.analysis import pack as packs
    from symbiont_ecology.analysis.worlds import WorldResults
    from symbiont_ecology.experiments import suite as suites

    target, results = _target(plan, out), WorldResults(plan, suites.streams(plan, folder))
    if results.missing:
        missing = f"{results.missing} of {results.planned} runs are missing"
        print(f"the suite is not finished, {missing}: {command_line('suite')} goes on with it")
    if dry_run:
        count = len(results.outcomes)
        print(f"outcomes  {count} of protocol {plan.name} ({plan.digest}) in {folder}")
        print(f"pack      {target}\nnothing was done")
        return
    prepare(target / "summary.json")
    packs.write_worlds_pack(target, results, suites.read_tuning(folder))
    packs.write_index(target.parent)
    print(f"{target / 'README.md'} is written")


def _tell_gathered(gathered: AdhocComparison) -> None:
    """Which runs would be asked how much."""
    from symbiont_ecology.experiments.jobs import items_of

    protocol = gathered.protocol
    for arm, members in gathered.arms.items():
        seeds = ", ".join(str(gathered.runs[folder].config.seed) for folder in members)
        print(f"{arm:15s} seeds {seeds}: {' '.join(map(str, members))}")
    questions = len(items_of(protocol, gathered.runs[gathered.first].config, protocol.shifts))
    print(f"{questions} questions to each and to the bare host: {', '.join(protocol.shifts)}")

"""``report`` and ``diff``: what a run, a suite or a pair of runs comes to, in words and tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.options import JsonOption, RunFolder, argument, option

if TYPE_CHECKING:
    from rich.table import Table

    from symbiont_ecology.analysis.run_diff import ComparedValue

RUN_REPORT_FILE = "report.md"
WIDEST_CELL = 200
"""Characters of a value that a table shows."""


def report_command(
    folder: Annotated[Path, argument("Folder of a run, or of a suite.", "DIR")],
    out: Annotated[Path | None, option("The file.", default="DIR/report.md")] = None,
) -> None:
    """Write a report: figures with their queries, what happened, what looks wrong."""
    from symbiont_ecology.extension import commands

    if (folder / "protocol.json").exists() and (pack := commands().get("pack")):
        pack.load()([folder], out=out or folder / "report")
        return
    from symbiont_ecology.analysis.run_report import RunReport
    from symbiont_ecology.files import write_whole

    target = out or folder / RUN_REPORT_FILE
    write_whole(target, RunReport.of(folder).page())
    print(f"report: {target}")


def diff(
    one: RunFolder,
    other: Annotated[Path, argument("Folder of another run.", "DIR")],
    json_file: JsonOption = None,
) -> None:
    """Compare two runs: their configs, the first event that differs, and their results."""
    from rich.console import Console

    from symbiont_ecology.analysis.run_diff import RunDiff
    from symbiont_ecology.cli.console import report as reporting

    difference = RunDiff.of(one, other)
    with reporting(json_file) as write:
        console = Console(soft_wrap=True, highlight=False)
        names = difference.names
        if difference.config:
            console.print(_table("config", names, difference.config))
        else:
            print("their configs are equal")
        if (parting := difference.parting) is None:
            print("their histories are equal, event by event")
        else:
            print(
                f"their histories part in generation {parting.generation}, at event "
                f"{parting.number}: {parting.kinds[0]} and {parting.kinds[1]}"
            )
            console.print(_table("outcome", names, difference.outcome))
            console.print(_table("solved since", names, difference.solved))
        if difference.agreement is not None:
            print(f"who shares an adapter: adjusted Rand index {difference.agreement:.2f}")
        write(asdict(difference))


def _table(title: str, names: tuple[str, str], rows: tuple[ComparedValue, ...]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from symbiont_ecology.transcripts import plain

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (title, *names):
        table.add_column(escape(plain(name, WIDEST_CELL)), overflow="fold")
    for row in rows:
        cells = (plain(text, WIDEST_CELL) for text in (row.name, row.one, row.other))
        table.add_row(*map(escape, cells))
    return table

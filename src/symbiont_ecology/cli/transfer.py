"""``transfer``: what the best organelle of one family makes of another family's questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.cli.evaluate import (
    HostOption,
    ShiftOption,
    on_host,
    prepare,
    progress,
    text_stream,
    write_json,
)


def transfer(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")],
    per_cell: Annotated[int, typer.Option(min=1, help="Holdout questions per cell.")] = 20,
    shift: ShiftOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything there; - is stdout.")
    ] = None,
    host: HostOption = None,
) -> None:
    """Ask every family's best organelle the questions of all families."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.evaluation.transfer import transfer_matrix as ask_everyone

    if json_file is not None:
        prepare(json_file)
    candidates = LoadedRun.of_run(folder)
    questions = candidates.questions(per_cell, tuple(shift or ("in-distribution",)))
    with progress("asking") as watch:
        kernel = build_host(on_host(candidates.config, host))
        found = ask_everyone(candidates, questions, kernel, watch)
    names = list(found["host"])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("right, %: best in", *map(str, range(1, len(names) + 1))):
        table.add_column(column, justify="right" if column.isdigit() else "left", no_wrap=True)
    for owner, row in {"(host)": found["host"], **found["accuracy"]}.items():
        label = f"{names.index(owner) + 1:2d} {owner}" if owner in names else f"   {owner}"
        table.add_row(escape(label), *(f"{100 * row[name]:.0f}" for name in names))
    stream = text_stream(json_file)
    Console(file=stream).print(table)
    gains = {kind: gain for kind, gain in found["gain"].items() if gain is not None}
    shown = ", ".join(f"{kind} {100 * gain:+.1f}" for kind, gain in gains.items())
    print(f"gain over the host: {shown}", file=stream)
    if json_file is not None:
        write_json(json_file, found)

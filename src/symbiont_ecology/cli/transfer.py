"""``transfer``: what the best organelle of one family makes of another family's questions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.cli.console import (
    HostOption,
    ShiftOption,
    asking,
    on_host,
    prepare,
    table,
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

    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.evaluation.transfer import transfer_matrix

    if json_file is not None:
        prepare(json_file)
    run = LoadedRun.of_run(folder)
    items = run.items(per_cell, tuple(shift or ("in-distribution",)))
    with asking() as progress:
        model = build_host(on_host(run.config, host))
        matrix = transfer_matrix(run, items, model, progress)
    names = list(matrix.host)
    rows = table("right, %: best in", *map(str, range(1, len(names) + 1)))
    for owner, row in {"(host)": matrix.host, **matrix.accuracy}.items():
        label = f"{names.index(owner) + 1:2d} {owner}" if owner in names else f"   {owner}"
        rows.add_row(escape(label), *(f"{100 * row[name]:.0f}" for name in names))
    stream = text_stream(json_file)
    Console(file=stream).print(rows)
    gains = {kind: gain for kind, gain in matrix.gain.items() if gain is not None}
    shown = ", ".join(f"{kind} {100 * gain:+.1f}" for kind, gain in gains.items())
    print(f"gain over the host: {shown}", file=stream)
    write_json(json_file, asdict(matrix))

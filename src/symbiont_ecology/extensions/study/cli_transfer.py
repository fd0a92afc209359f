"""``transfer``: how the best organelle of one family does on the others."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.markup import escape

from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import option


def transfer(
    folder: options.RunFolder,
    holdout: Annotated[
        Path | None, option("JSONL file of questions, instead of those that are drawn.")
    ] = None,
    per_cell: options.PerCellOption = 20,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
) -> None:
    """Ask every family's best organelle the questions of all families."""
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.extensions.study.transfer import transfer_matrix

    file = None if holdout is None else str(holdout)
    spec = EvaluationSpec(holdout=file, per_cell=per_cell, shifts=tuple(shift))
    with console.report(json_file) as write_json:
        run = console.open_run(folder, host)
        loaded = run.loaded
        items = spec.items(loaded)
        with console.asking() as progress:
            matrix = transfer_matrix(loaded, items, run.host, progress)
        names = list(matrix.host)
        rows = console.table("right, %: best in", *map(str, range(1, len(names) + 1)))
        for owner, row in {"(host)": matrix.host, **matrix.accuracy}.items():
            label = f"{names.index(owner) + 1:2d} {owner}" if owner in names else f"   {owner}"
            rows.add_row(escape(label), *(f"{100 * row[name]:.0f}" for name in names))
        console.print_table(rows)
        gains = {kind: gain for kind, gain in matrix.gain.items() if gain is not None}
        listed = ", ".join(f"{kind} {100 * gain:+.1f}" for kind, gain in gains.items())
        print(f"gain over the host: {listed}")
        write_json(asdict(matrix))

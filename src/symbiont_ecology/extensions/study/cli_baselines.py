"""``baselines`` and ``transfer``: a run beside SFT, and what the best of each family know of the
other families."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.evaluate import tell_systems
from symbiont_ecology.cli.options import option


def baselines(
    context: typer.Context,
    folder: options.RunFolder,
    sft: Annotated[Path | None, option("A PEFT folder to compare the run with.")] = None,
    holdout: options.HoldoutOption = None,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 20,
    max_samples: options.MaxSamplesOption = None,
    routing: options.RoutingOption = "learned",
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
) -> None:
    """Ask a run what evaluate asks, and beside it an SFT adapter. Its evaluations.jsonl gets new
    lines."""
    from symbiont_ecology.adapters.peft_files import stated_rank, warn_of_base
    from symbiont_ecology.evaluate.measure import LoadedRun
    from symbiont_ecology.evaluate.routings import routings
    from symbiont_ecology.extensions.study.baselines import BaselineSpec, compare_with_baselines

    options.check_drawn(context, holdout, max_samples)
    spec = BaselineSpec(
        holdout=holdout,
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        routing=routings.present_name(routing),
        adapter=None if sft is None else str(sft),
    )
    with console.report(json_file) as write_json:
        run = LoadedRun.of_run(folder)
        items = spec.items(run)
        routings.build(spec.routing)
        if sft is not None:
            warn_of_base(sft, host or run.config.host.model)
        model = console.open_run(folder, host, 0 if sft is None else stated_rank(sft)).host
        with console.asking() as progress:
            found = compare_with_baselines(run, spec, items, model, progress)
        tell_systems(found)
        write_json(found.record())


def transfer(
    folder: options.RunFolder,
    holdout: options.HoldoutOption = None,
    per_cell: options.PerCellOption = 20,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
) -> None:
    """Ask every family's best organelle the questions of all families."""
    import pandas as pd

    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.extensions.study.baselines import transfer_matrix

    spec = EvaluationSpec(holdout=holdout, per_cell=per_cell, shifts=tuple(shift))
    with console.report(json_file) as write:
        run = console.open_run(folder, host)
        with console.asking() as progress:
            matrix = transfer_matrix(run.loaded, spec.items(run.loaded), run.host, progress)
        table = pd.DataFrame({"(host)": matrix["host"], **matrix["accuracy"]}).T
        print((100 * table.rename_axis(index="best in, right %")).round().astype(int).to_string())
        listed = ", ".join(f"{kind} {100 * gain:+.1f}" for kind, gain in matrix["gain"].items())
        print(f"gain over the host: {listed}")
        write(matrix)

"""``baselines`` and ``general``: a run beside SFT and its candidates chosen anew, and what plain
English is to its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.evaluate import tell_systems
from symbiont_ecology.cli.options import option

if TYPE_CHECKING:
    from symbiont_ecology.extensions.study.general import GeneralAbility

NEEDS = {"selection_max_samples": "selection", "max_samples": "holdout"}
REFUSES = {"holdout": ("shift", "per_cell")}


def baselines(
    context: typer.Context,
    folder: options.RunFolder,
    sft: Annotated[Path | None, option("A PEFT folder to compare the run with.")] = None,
    selection: Annotated[Path | None, option("Other questions, by which to choose.")] = None,
    selection_max_samples: Annotated[int | None, option("At most so many.", least=1)] = None,
    holdout: options.HoldoutOption = None,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 20,
    max_samples: options.MaxSamplesOption = None,
    routing: options.RoutingOption = "learned",
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
) -> None:
    """Ask a run what evaluate asks, and beside it an SFT adapter, and its candidates as selection
    questions chose them. Its evaluations.jsonl gets new lines."""
    from symbiont_ecology.adapters.peft_files import stated_rank
    from symbiont_ecology.evaluate.measure import LoadedRun
    from symbiont_ecology.evaluate.routings import routings
    from symbiont_ecology.extensions.study.baselines import (
        BaselineSpec,
        compare_with_baselines,
        robustness,
    )

    options.check_together(context, NEEDS, REFUSES)
    spec = BaselineSpec(
        holdout=holdout,
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        routing=options.typed_spec(routing, "--routing"),
        selection=None if selection is None else str(selection),
        most=selection_max_samples,
        adapter=None if sft is None else str(sft),
    )
    with console.report(json_file) as write_json:
        run = LoadedRun.of_run(folder)
        items, judges = spec.items(run), spec.selection_items(run)
        routings.build(spec.routing)
        if overlap := {item.prompt for item in items} & {item.prompt for item in judges}:
            raise ConfigError(
                "--selection: expected other questions than those that are asked, got "
                f"{len(overlap)} of them, such as {min(overlap)!r:.60}: take them out of one of "
                "the two"
            )
        model = console.open_run(folder, host, 0 if sft is None else stated_rank(sft)).host
        with console.asking() as progress:
            found = compare_with_baselines(
                run, spec, items, model, selection=judges, progress=progress
            )
        found.log(run)
        tell_systems(found)
        if brittle := robustness(found.systems[found.main].rollouts).get("brittle"):
            share = console.percent(brittle)
            print(f"brittle: {share} of right answers do not survive another way of writing")
        if judges:
            cost = f"{found.selection.flops:.3g} useful FLOPs"
            print(f"* candidates judged on selection questions, which took {cost}")
        write_json(found.record())


def general(
    context: typer.Context,
    folder: Annotated[Path | None, options.argument("Folder of a run.", "DIR")] = None,
    adapter: Annotated[Path | None, option("A PEFT folder, instead of a run.")] = None,
    chat: Annotated[bool, option("With --adapter: use the chat template.", "--chat")] = False,
    routing: options.RoutingOption = "learned",
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
) -> None:
    """Say what plain English and conversation are to whoever answers, and to the adapters that
    serve, beside the bare host. The host must know more than letters."""
    from symbiont_ecology.extensions.study.general import abilities_of_adapter, abilities_of_run

    if (folder is None) == (adapter is None):
        raise ConfigError("general: expected either a run folder or --adapter FOLDER")
    options.check_together(context, {"chat": "adapter"}, {"adapter": ("routing",)})
    with console.report(json_file) as write_json:
        if folder is not None:
            run = console.open_run(folder, host)
            way = options.typed_spec(routing, "--routing")
            abilities = abilities_of_run(run.loaded, run.host, way)
        elif adapter is not None:
            abilities = abilities_of_adapter(adapter, host or "embedded", is_chat=chat)
        _tell(abilities)
        write_json({name: ability.summary() for name, ability in abilities.items()})


def _tell(abilities: dict[str, GeneralAbility]) -> None:
    """Print the perplexity of plain English and conversation, beside the bare host."""
    rows = console.table("nats a token", "English", "− host", "chat", "− host", "to host")
    for name, ability in abilities.items():
        cells = []
        for part in (ability.english, ability.chat):
            half = (part.change.high - part.change.low) / 2
            cells.append(f"{part.nats:.2f} ({part.perplexity:.0f})")
            cells.append(f"{part.change.estimate:+.2f} ± {half:.2f}")
        rows.add_row(escape(name), *cells, f"{ability.left_to_host:.0%}")
    console.print_table(rows)
    print("what is left alone: plain English and conversation (perplexity), beside the bare host")

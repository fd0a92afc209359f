"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from symbiont_ecology.cli.console import (
    DryRunOption,
    HostOption,
    JsonOption,
    RoutingOption,
    ShiftOption,
    asking,
    on_host,
    prepare,
    tell_comparison_with_baselines,
    tell_evaluation,
    text_stream,
    write_json,
)
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.baselines import BaselineComparison
    from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
    from symbiont_ecology.evaluation.spec import EvaluationSpec
    from symbiont_ecology.types import Item

GOES_WITH = {
    "adapter": ("holdout", "routing", "json_file", "host", "chat", "dry_run"),
    "again": ("folder", "host"),
}
"""What ``evaluate`` heeds beside an option; all else would be ignored, so it is refused."""
INSTEAD_OF = {"holdout": ("shift", "per_cell"), "routing_map": ("routing",)}
"""What an option leaves without meaning."""


def evaluate(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of a run.", show_default=False)
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="A PEFT folder, instead of a run.")] = None,
    sft: Annotated[Path | None, typer.Option(help="A PEFT folder to compare the run with.")] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="JSONL file of questions with prompt, target, family, depth."),
    ] = None,
    shift: ShiftOption = None,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Without a file: holdout questions per cell of the run.")
    ] = 20,
    selection: Annotated[
        Path | None, typer.Option(help="JSONL file of questions that judge the candidates anew.")
    ] = None,
    selection_max_samples: Annotated[
        int | None, typer.Option(min=1, help="Use so many of them, drawn at random.")
    ] = None,
    routing: RoutingOption = "learned",
    routing_map: Annotated[
        Path | None,
        typer.Option(help='JSON file {"family" or "family/depth": "candidate"}; else the host.'),
    ] = None,
    json_file: JsonOption = None,
    host: HostOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Make every evaluation of the run again and compare.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="With --adapter: use the host's chat template.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Ask holdout questions. The run itself is not changed, its evaluations.jsonl gets a line."""
    from symbiont_ecology.evaluation.spec import EvaluationSpec

    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    _check_together(context)
    stream = text_stream(json_file)
    if not dry_run:
        prepare(json_file)  # now, not when everything has been computed
    spec = EvaluationSpec(
        holdout=_text(holdout),
        shifts=tuple(shift or ("in-distribution",)),
        per_cell=per_cell,
        selection=_text(selection),
        most=selection_max_samples,
        routing=routing,
        routing_map=_text(routing_map),
    )
    if folder is not None and dry_run:
        _rehearse(folder, spec, sft, host, stream)
    elif folder is not None and again:
        _make_again(folder, host)
    elif folder is not None:
        comparison = _compare(folder, spec, sft, host)
        tell_comparison_with_baselines(comparison, stream)
        main = comparison.systems[comparison.main]
        write_json(json_file, main.record() | comparison.summary())
    elif adapter is not None and dry_run:
        _rehearse_adapter(adapter, spec, host, stream)
    elif adapter is not None:
        evaluation = _evaluate_adapter(adapter, spec, host, chat)
        tell_evaluation(evaluation, stream)
        write_json(json_file, evaluation.record())


def _check_together(context: typer.Context) -> None:
    """Refuses options that another one leaves without meaning."""
    flags = {str(option.name): option.opts[0] for option in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in flags}
    given = [
        name
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]
    for option, heeded in GOES_WITH.items():
        ignored = [flags[name] for name in given if name not in (option, *heeded)]
        if option in given and ignored:
            fine = ", ".join(flags[name] for name in heeded if name != "folder")
            raise ConfigError(
                f"evaluate {flags[option]}: expected nothing but {fine}, got "
                f"{', '.join(ignored)}: leave it out"
            )
    for option, pointless in INSTEAD_OF.items():
        ignored = [flags[name] for name in given if name in pointless]
        if option in given and ignored:
            raise ConfigError(
                f"evaluate {flags[option]}: expected no {' or '.join(ignored)} beside it: "
                "leave it out"
            )
    if "selection_max_samples" in given and "selection" not in given:
        raise ConfigError("evaluate --selection-max-samples: expected --selection FILE beside it")


def _checked_items(run: LoadedRun, spec: EvaluationSpec) -> tuple[list[Item], list[Item]]:
    """What is asked, and what selects. A wrong word or file costs no time: no host is loaded yet.

    Raises:
        ConfigError: an item is in both, so candidates would be chosen by what they are tested on.
    """
    items, selection = spec.items(run), spec.selection_items(run)
    if both := {item.prompt for item in items} & {item.prompt for item in selection}:
        raise ConfigError(
            "evaluate --selection: expected other questions than those that are asked, got "
            f"{len(both)} of them, such as {min(both)!r:.60}: take them out of one of the two"
        )
    spec.find_routing(run)
    return items, selection


def _compare(
    folder: Path, spec: EvaluationSpec, sft: Path | None, host: str | None
) -> BaselineComparison:
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.baselines import compare_with_baselines
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.weights.peft_files import stated_rank

    run = LoadedRun.of_run(folder, is_kept=True)
    items, selection = _checked_items(run, spec)
    config = _as_wide(on_host(run.config, host), stated_rank(sft) if sft else 0)
    model = build_host(config)
    with asking() as progress:
        comparison = compare_with_baselines(
            run, spec, items, model, selection=selection, sft=sft, progress=progress
        )
    for name, evaluation in comparison.systems.items():
        log_evaluation(evaluation, run, comparison.specs[name])
    return comparison


def _as_wide(config: RunConfig, rank: int) -> RunConfig:
    """The config with room for an adapter that may be wider than anyone in the run."""
    rank = max(config.host.rank, rank)
    return config.model_copy(update={"host": config.host.model_copy(update={"rank": rank})})


def _make_again(folder: Path, host: str | None) -> None:
    """Makes every evaluation of a run again; exit code 1 if one is not what it was."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.evaluation.evaluation_log import repeat_evaluations, widest_rank

    config = _as_wide(on_host(read_config(folder), host), widest_rank(folder))
    different = 0
    for repeated in repeat_evaluations(folder, build_host(config)):
        different += not repeated.is_same
        same = "the same" if repeated.is_same else "DIFFERENT"
        now = repeated.problem or f"{100 * repeated.now:.1f} % now, {same}"
        print(
            f"evaluation {repeated.line}: generation {repeated.generation}, {repeated.name}: "
            f"{100 * repeated.then:.1f} % then, {now}"
        )
    if different:
        raise RunError(f"{different} evaluations of {folder} are not what they were")


def _evaluate_adapter(
    adapter: Path, spec: EvaluationSpec, host: str | None, is_chat: bool
) -> Evaluation:
    from symbiont_ecology.evaluation.measure import evaluate_adapter
    from symbiont_ecology.host.kernel import HostKernel

    items, rank = _adapter_items(adapter, spec)
    kernel = HostKernel.from_pretrained(host or "embedded", slots=1, rank=rank, is_chat=is_chat)
    return evaluate_adapter(adapter, items, kernel, is_bare=spec.routing == "host")


def _adapter_items(adapter: Path, spec: EvaluationSpec) -> tuple[list[Item], int]:
    """What an adapter would be asked, and its rank."""
    from symbiont_ecology.evaluation.items import read_items
    from symbiont_ecology.weights.peft_files import stated_rank

    if spec.holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    if spec.routing not in ("learned", "single", "host"):  # there is one candidate
        raise ConfigError(
            f"evaluate --adapter: expected --routing single or host, got {spec.routing!r}"
        )
    return read_items(Path(spec.holdout)), stated_rank(adapter)


def _rehearse(
    folder: Path, spec: EvaluationSpec, sft: Path | None, host: str | None, stream: TextIO
) -> None:
    """Everything that comes before the host, and what would be asked of whom."""
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.weights.peft_files import stated_rank

    run = LoadedRun.of_run(folder)
    items, selection = _checked_items(run, spec)
    if sft is not None:
        stated_rank(sft)
    systems = dict.fromkeys(("host", "single", *(["sft"] if sft else []), spec.name))
    judges = f"{len(selection)} selection questions" if selection else "practice"
    source = spec.holdout or f"{spec.per_cell} per cell, {', '.join(spec.shifts)}"
    lines = {
        "host": on_host(run.config, host).host.model,
        "asked": f"{', '.join(systems)} of {folder}, generation {run.pool.state.generation}",
        "candidates": f"{len(run.pool.elites)}, judged by {judges}",
        "questions": f"{len(items)} ({source})",
    }
    _tell_rehearsal(lines, stream)


def _rehearse_adapter(
    adapter: Path, spec: EvaluationSpec, host: str | None, stream: TextIO
) -> None:
    items, rank = _adapter_items(adapter, spec)
    lines = {
        "host": host or "embedded",
        "asked": f"{adapter} of rank {rank}",
        "questions": f"{len(items)} ({spec.holdout})",
    }
    _tell_rehearsal(lines, stream)


def _tell_rehearsal(lines: dict[str, str], stream: TextIO) -> None:
    for label, value in lines.items():
        print(f"{label:11s} {value}", file=stream)
    print("everything but the host is fine; nothing was done", file=stream)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)

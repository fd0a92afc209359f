"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.evaluate_adapter import AdapterExam, examine_adapter
from symbiont_ecology.cli.options import argument, option

if TYPE_CHECKING:
    from symbiont_ecology.evaluate.baselines import BaselineComparison
    from symbiont_ecology.evaluate.measure import Record
    from symbiont_ecology.evaluate.spec import EvaluationSpec

GOES_WITH = {
    "adapter": (
        *("holdout", "max_samples", "trained_on", "compare", "json_file"),
        *("routing", "style", "chat", "host", "dry_run"),
    ),
    "again": ("folder", "host"),
}
"""Options that ``evaluate`` heeds beside one; all others would be ignored, so they are refused."""
ONLY_WITH = {
    "selection_max_samples": "selection",
    "max_samples": "holdout",
    **dict.fromkeys(("trained_on", "compare", "style", "chat"), "adapter"),
}
"""Option that another one needs beside it."""
INSTEAD_OF = {
    "holdout": ("shift", "per_cell"),
    "routing_map": ("routing",),
    "compare": ("routing",),
}
"""Options that another one leaves without meaning."""
_MAX_SAMPLES = "--max-samples", "--num-samples"
CompareOption = Annotated[
    bool, option("With --adapter: ask the bare host, too, and compare.", "--compare")
]
TrainedOnOption = Annotated[
    Path | None, option("With --adapter: refuse questions whose prompts are in that file.")
]
StyleOption = Annotated[
    str | None,
    option("With --adapter: ask in a style, by name or {kind: …}.", default="as in the file"),
]
ChatOption = Annotated[bool, option("With --adapter: use the host's chat template.", "--chat")]


def evaluate(
    context: typer.Context,
    folder: Annotated[Path | None, argument("Folder of a run.", "DIR")] = None,
    adapter: Annotated[Path | None, option("A PEFT folder, instead of a run.")] = None,
    sft: Annotated[Path | None, option("A PEFT folder to compare the run with.")] = None,
    holdout: Annotated[Path | None, option("JSONL file of questions to ask.")] = None,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 20,
    selection: Annotated[Path | None, option("Other questions, by which to choose.")] = None,
    max_samples: Annotated[int | None, option("At most so many.", *_MAX_SAMPLES, least=1)] = None,
    selection_max_samples: Annotated[int | None, option("At most so many.", least=1)] = None,
    routing: options.RoutingOption = "learned",
    routing_map: Annotated[Path | None, option('JSON: {"family": "candidate"}.')] = None,
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
    again: Annotated[bool, option("Make all evaluations again and compare.", "--again")] = False,
    compare: CompareOption = False,
    trained_on: TrainedOnOption = None,
    style: StyleOption = None,
    chat: ChatOption = False,
    dry_run: options.DryRunOption = False,
) -> None:
    """Ask a run or an adapter holdout questions. The run itself is not changed; its
    evaluations.jsonl gets new lines."""
    from symbiont_ecology.evaluate.spec import EvaluationSpec

    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    _check_together(context)
    spec = EvaluationSpec(
        holdout=_text(holdout),
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        selection=_text(selection),
        most=selection_max_samples,
        routing=routing,
        routing_map=_text(routing_map),
    )
    with console.report(json_file, dry_run) as write_json:
        if adapter is not None:
            asked = (adapter, holdout, host or "embedded", max_samples, routing)
            exam = AdapterExam(*asked, style, chat, compare, trained_on)
            record = examine_adapter(exam, dry_run=dry_run)
        elif folder is not None and again:
            _make_again(folder, host)
            return
        elif folder is not None:
            record = _evaluate_run(folder, spec, sft, host, dry_run)
        if dry_run:
            print("everything but the host is fine; nothing was done")
        else:
            write_json(record)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _check_together(context: typer.Context) -> None:
    """Refuse options that another one leaves without meaning."""
    flags = {str(param.name): param.opts[0] for param in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in flags}
    typed = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    for name in typed:
        needed, heeded = ONLY_WITH.get(name), GOES_WITH.get(name)
        if needed and needed not in typed:
            raise ConfigError(f"evaluate {flags[name]}: expected {flags[needed]} beside it")
        ignored = [other for other in typed if other in INSTEAD_OF.get(name, ())]
        if heeded:
            ignored = [other for other in typed if other not in (name, *heeded)]
        if ignored:
            words = ", ".join(flags[other] for other in ignored)
            raise ConfigError(
                f"evaluate {flags[name]}: expected no {words} beside it: leave it out"
            )


def _evaluate_run(
    folder: Path, spec: EvaluationSpec, sft: Path | None, host: str | None, dry_run: bool
) -> Record:
    """Ask the run and its baselines, or says what would be asked of whom.

    A wrong word or file costs no time: no host is loaded before all is known to fit.

    Raises:
        ConfigError: an item is among both the questions and the selection, so candidates would be
            chosen by what they are tested on.
    """
    from symbiont_ecology.adapters.peft_files import stated_rank
    from symbiont_ecology.evaluate.baselines import compare_with_baselines
    from symbiont_ecology.evaluate.evaluation_log import log_evaluation
    from symbiont_ecology.evaluate.measure import LoadedRun

    run = LoadedRun.of_run(folder, is_kept=not dry_run)
    items, selection = spec.items(run), spec.selection_items(run)
    if overlap := {item.prompt for item in items} & {item.prompt for item in selection}:
        raise ConfigError(
            "evaluate --selection: expected other questions than those that are asked, got "
            f"{len(overlap)} of them, such as {min(overlap)!r:.60}: take them out of one of the two"
        )
    spec.find_routing(run)
    rank = 0 if sft is None else stated_rank(sft)
    if dry_run:
        systems = dict.fromkeys(("host", "single", *(["sft"] if sft else []), spec.name))
        judges = f"{len(selection)} selection questions" if selection else "practice"
        source = spec.holdout or f"{spec.per_cell} per cell, {', '.join(spec.shifts)}"
        facts = {
            "host": host or run.config.host.model,
            "asked": f"{', '.join(systems)} of {folder}, generation {run.pool.state.generation}",
            "candidates": f"{len(run.pool.elites)}, judged by {judges}",
            "questions": f"{len(items)} ({source})",
        }
        console.tell_facts(facts)
        return {}
    model = console.open_run(folder, host, rank).host
    with console.asking() as progress:
        comparison = compare_with_baselines(
            run, spec, items, model, selection=selection, sft=sft, progress=progress
        )
    for name, evaluation in comparison.systems.items():
        log_evaluation(evaluation, run, comparison.specs[name])
    _tell_systems(comparison)
    return comparison.systems[comparison.main].record() | comparison.summary()


def _make_again(folder: Path, host: str | None) -> None:
    """Make every evaluation of a run again; exit code 1 if one is not what it was."""
    from symbiont_ecology.evaluate.evaluation_log import (
        EVALUATIONS_FILE,
        repeat_evaluations,
        widest_rank,
    )

    model, different = console.open_run(folder, host, widest_rank(folder)).host, 0
    count, damaged = 0, list[int]()
    for repeated in repeat_evaluations(folder, model, damaged.append):
        count += 1
        different += not repeated.is_same
        mark = "the same" if repeated.is_same else "DIFFERENT"
        outcome = repeated.problem or f"{100 * repeated.now:.1f} % now, {mark}"
        print(
            f"evaluation {repeated.line}: generation {repeated.generation}, {repeated.name}: "
            f"{100 * repeated.then:.1f} % then, {outcome}"
        )
    if damaged:
        lines = ", ".join(map(str, damaged))
        print(f"skipped, damaged: line {lines} of {folder / EVALUATIONS_FILE}")
    if damaged and not count:
        raise RunError(f"every line of {folder / EVALUATIONS_FILE} is damaged: nothing was asked")
    if different:
        raise RunError(f"{different} evaluations of {folder} are not what they were")


def _tell_systems(comparison: BaselineComparison) -> None:
    """Print accuracies by family and system, how the main one differs, and what it costs."""
    main = comparison.systems[comparison.main]
    console.print_table(console.accuracy_table(comparison.systems))
    for name, difference in comparison.differences.items():
        test = f"{difference.test} p = {difference.p:.2g}"
        print(f"{comparison.main} - {name}: {console.points(difference)}, {test}")
    if brittle := comparison.robustness.get("brittle"):
        share = console.percent(brittle)
        print(f"brittle: {share} of right answers do not survive another way of writing")
    if main.judged_by == "selection":
        cost = f"{main.selection.flops:.3g} useful FLOPs"
        print(f"* candidates judged on selection questions, which took {cost}")
    else:
        hint = "--selection FILE chooses on other questions"
        print(f"single is chosen by practice; {hint}")
    console.tell_answerers(main)
    general = {name: e.general for name, e in comparison.systems.items() if e.general}
    if general:
        console.tell_general(general | dict(comparison.servers))

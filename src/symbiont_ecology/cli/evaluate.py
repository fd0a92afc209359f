"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option

if TYPE_CHECKING:
    from symbiont_ecology.base.types import Item
    from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.evaluate.measure import Record, SystemComparison

OF_ADAPTERS = ("compare", "trained_on", "style", "chat")
NEEDS = {"max_samples": "holdout", **dict.fromkeys(OF_ADAPTERS, "adapter")}
"""Option that another one needs beside it."""
REFUSES = {
    "adapter": ("shift", "per_cell"),
    "holdout": ("shift", "per_cell"),
    "compare": ("routing",),
}
"""Options that would be ignored beside another one."""
MAX_EXAMPLES, MAX_TEXT_CHARS = 3, 60
"""Examples of every kind on a terminal, and characters of each text."""
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
    holdout: options.HoldoutOption = None,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 20,
    max_samples: options.MaxSamplesOption = None,
    routing: options.RoutingOption = "learned",
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
    compare: CompareOption = False,
    trained_on: TrainedOnOption = None,
    style: StyleOption = None,
    chat: ChatOption = False,
    dry_run: options.DryRunOption = False,
) -> None:
    """Ask a run or an adapter holdout questions. The run itself is not changed; its
    evaluations.jsonl gets new lines."""
    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    options.check_together(context, NEEDS, REFUSES)
    with console.report(json_file, dry_run) as write_json:
        if folder is not None:
            spec = evaluation_spec(holdout, max_samples, shift, per_cell, routing)
            record = _evaluate_run(folder, spec, host, dry_run)
        elif adapter is not None:
            items, is_chat, stops = _questions(holdout, max_samples, trained_on, style)
            exam = (adapter, host or "embedded", items, is_chat or chat, stops)
            record = _evaluate_adapter(*exam, routing, compare, dry_run)
        if dry_run:
            print("everything but the host is fine; nothing was done")
        else:
            write_json(record)


def evaluation_spec(
    holdout: Path | None, max_samples: int | None, shift: list[str], per_cell: int, routing: str
) -> EvaluationSpec:
    """Return what these options ask, and who answers."""
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec

    return EvaluationSpec(
        holdout=None if holdout is None else str(holdout),
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        routing=options.typed_spec(routing, "--routing"),
    )


def _evaluate_run(folder: Path, spec: EvaluationSpec, host: str | None, dry_run: bool) -> Record:
    """Ask the run, its best organelle and the bare host, or say what would be asked.

    A wrong word or file costs no time: no host is loaded before all is known to fit.
    """
    from symbiont_ecology.base.registry import kind_of
    from symbiont_ecology.evaluate.evaluation_log import log_evaluation
    from symbiont_ecology.evaluate.measure import LoadedRun, SystemComparison
    from symbiont_ecology.evaluate.routings import routings

    run = LoadedRun.of_run(folder)
    items, main = spec.items(run), kind_of(spec.routing)
    routings.build(spec.routing)
    specs = {name: spec.model_copy(update={"routing": name}) for name in ("host", "single")}
    specs[main] = spec
    if dry_run:
        source = spec.holdout or f"{spec.per_cell} per cell, {', '.join(spec.shifts)}"
        facts = {
            "host": host or run.config.host.model,
            "asked": f"{', '.join(specs)} of {folder}, generation {run.pool.state.generation}",
            "candidates": f"{len(run.pool.elites)}, judged by practice",
            "questions": f"{len(items)} ({source})",
        }
        console.tell_facts(facts)
        return {}
    model = console.open_run(folder, host).host
    with console.asking() as progress:
        systems = {
            name: run.evaluate(items, model, one.routing, progress=progress)
            for name, one in specs.items()
        }
    for name, evaluation in systems.items():
        log_evaluation(evaluation, folder, specs[name])
    comparison = SystemComparison(systems, main, run.pool.state.spent.flops)
    tell_systems(comparison)
    return comparison.record()


def tell_systems(comparison: SystemComparison) -> None:
    """Print accuracies by family and system, how the main one differs, and what it costs."""
    console.print_table(console.accuracy_table(comparison.systems))
    for name, gap in comparison.differences.items():
        print(f"{comparison.main} - {name}: {console.points(gap)}, {gap.test} p = {gap.p:.2g}")
    console.tell_answerers(comparison.systems[comparison.main])


def _questions(
    holdout: Path | None, max_samples: int | None, trained_on: Path | None, style: str | None
) -> tuple[list[Item], bool, tuple[str, ...]]:
    """Return questions for an adapter, whether their style is a chat, and what ends an answer."""
    from symbiont_ecology.evaluate.items import check_not_learned, in_style, read_items, some_of
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    if holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    items = read_items(holdout)
    built = None if style is None else prompt_styles.build(options.typed_spec(style))
    if trained_on is not None:
        check_not_learned(items, trained_on)
    items = some_of(items, max_samples)
    return (
        (items, False, ())
        if built is None
        else (in_style(items, built), built.is_chat, built.stops)
    )


def _evaluate_adapter(
    adapter: Path,
    host: str,
    items: list[Item],
    is_chat: bool,
    stops: tuple[str, ...],
    routing: str,
    is_compared: bool,
    dry_run: bool,
) -> Record:
    """Ask an adapter, or say what it would be asked. All files are checked before the host is
    loaded."""
    from symbiont_ecology.adapters.peft_files import adapter_modules, stated_rank
    from symbiont_ecology.evaluate.adapter_comparison import compare_with_host
    from symbiont_ecology.evaluate.measure import evaluate_adapter
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.model.locating import check_is_here

    if routing not in ("learned", "single", "host"):  # there is one candidate
        raise ConfigError(f"evaluate --adapter: expected --routing single or host, got {routing!r}")
    adapter_modules(adapter)  # a damaged adapter shows before the host is loaded
    check_is_here(host)
    rank = stated_rank(adapter)
    if dry_run:
        asked = f"{'the bare host, and ' * is_compared}{adapter} of rank {rank}"
        console.tell_facts({"host": host, "asked": asked, "questions": str(len(items))})
        return {}
    kernel = HostKernel.from_pretrained(host, slots=1, rank=rank, is_chat=is_chat)
    with console.asking() as progress:
        if is_compared:
            pair = compare_with_host(adapter, items, kernel, progress=progress, stops=stops)
        else:
            is_bare = routing == "host"
            found = evaluate_adapter(
                adapter, items, kernel, is_bare=is_bare, progress=progress, stops=stops
            )
    if is_compared:
        _tell_pair(pair)
        return pair.record()
    console.tell_evaluation(found)
    return found.record()


def _tell_pair(pair: AdapterComparison) -> None:
    """Print accuracy by category, what changed, how likely the reference answers are, and a few
    replies of every kind."""
    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import last_turn
    from symbiont_ecology.evaluate.adapter_comparison import CHANGES

    rows = console.table("right, with 95 % interval", "questions", "host", "adapter", "+", "−")
    for name, part in {**pair.categories, "all": pair}.items():
        shares = (console.percent(side.accuracy()) for side in (part.host, part.adapter))
        gained, lost, *_ = map(str, part.counts.values())
        rows.add_row(escape(name), str(len(part.changes)), *shares, gained, lost)
    console.print_table(rows)
    gap = pair.difference
    print(f"adapter - host: {console.points(gap)}, {gap.test} p = {gap.p:.2g}")
    print(", ".join(f"{change} {count}" for change, count in pair.counts.items()))
    if answers := pair.answers:
        nats = answers.change
        print(
            f"perplexity of the reference answers: host {answers.host_perplexity:.3g}, adapter "
            f"{answers.perplexity:.3g} ({nats.estimate:+.2f} nats a token "
            f"[{nats.low:+.2f}, {nats.high:+.2f}])"
        )
    for change in CHANGES.values():
        places = [place for place, kind in enumerate(pair.changes) if kind == change]
        step = max(len(places) // MAX_EXAMPLES, 1)  # from all over
        for place in places[::step][:MAX_EXAMPLES]:
            bare, adapted = pair.host.rollouts[place], pair.adapter.rollouts[place]
            texts = (last_turn(bare.item.prompt), bare.item.answer, bare.text, adapted.text)
            question, answer, host, adapter = (plain(text, MAX_TEXT_CHARS) for text in texts)
            if place == places[0]:
                print(f"\n{change}:")
            print(f"  {question} (wanted: {answer})\n    host: {host}\n    adapter: {adapter}")
    print("next: --json FILE writes all replies")

"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from symbiont_ecology.base.errors import AdapterError, ConfigError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option

if TYPE_CHECKING:
    from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.evaluate.measure import Record, SystemComparison

NEEDS = {"max_samples": "holdout", "compare": "adapter", "style": "adapter"}
"""Option that another one needs beside it."""
REFUSES = {
    "adapter": ("shift", "per_cell"),
    "holdout": ("shift", "per_cell"),
    "compare": ("routing",),
}
"""Options that would be ignored beside another one."""
MAX_EXAMPLES, MAX_TEXT_CHARS = 3, 60
"""Examples of every kind on a terminal, and characters of each text."""


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
    compare: Annotated[
        bool, option("With --adapter: ask the bare host, too, and compare.", "--compare")
    ] = False,
    style: Annotated[
        str | None,
        option("With --adapter: ask in a style, by name or {kind: …}.", default="as in the file"),
    ] = None,
) -> None:
    """Ask a run or an adapter holdout questions. The run itself is not changed; its
    evaluations.jsonl gets new lines."""
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec

    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    options.check_together(context, NEEDS, REFUSES)
    spec = EvaluationSpec(
        holdout=holdout,
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        routing=options.typed_spec(routing, "--routing"),
    )
    with console.report(json_file) as write_json:
        if folder is not None:
            write_json(_evaluate_run(folder, spec, host))
        elif adapter is not None:
            write_json(_evaluate_adapter(adapter, spec, host or "embedded", style, compare))


def _evaluate_run(folder: Path, spec: EvaluationSpec, host: str | None) -> Record:
    """Ask the run, its best organelle and the bare host.

    A wrong word or file costs no time: no host is loaded before all is known to fit.
    """
    from symbiont_ecology.base.registry import kind_of
    from symbiont_ecology.evaluate.evaluation_log import log_evaluation
    from symbiont_ecology.evaluate.measure import LoadedRun, SystemComparison
    from symbiont_ecology.evaluate.routings import routings

    run = LoadedRun.of_run(folder)
    items, main = spec.items(run), kind_of(spec.routing)
    routings.build(spec.routing)
    ways = {"host": "host", "single": "single", main: spec.routing}
    model = console.open_run(folder, host).host
    with console.asking() as progress:
        systems = {
            name: run.evaluate(items, model, way, progress=progress) for name, way in ways.items()
        }
    for name, evaluation in systems.items():
        log_evaluation(evaluation, folder, spec.model_copy(update={"routing": ways[name]}))
    comparison = SystemComparison(systems, main, run.pool.state.spent.flops)
    tell_systems(comparison)
    return comparison.record()


def tell_systems(comparison: SystemComparison) -> None:
    """Print accuracies by family and system, how the main one differs, and what it costs."""
    console.print_table(console.accuracy_table(comparison.systems))
    for name, gap in comparison.differences.items():
        print(f"{comparison.main} - {name}: {console.points(gap)}")
    console.tell_answerers(comparison.systems[comparison.main])


def _evaluate_adapter(
    adapter: Path, spec: EvaluationSpec, host: str, style: str | None, is_compared: bool
) -> Record:
    """Ask an adapter, and its bare host beside it. All files are checked before the host is
    loaded."""
    from symbiont_ecology.adapters.peft_files import stated_rank
    from symbiont_ecology.evaluate.adapter_comparison import compare_with_host
    from symbiont_ecology.evaluate.items import in_style, read_items, some_of
    from symbiont_ecology.evaluate.measure import evaluate_adapter
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    if spec.routing not in ("learned", "single", "host"):  # there is one candidate
        raise ConfigError("evaluate --adapter: expected --routing single or host")
    if spec.holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    items = some_of(read_items(spec.holdout), spec.most_asked)
    built = None if style is None else prompt_styles.build(options.typed_spec(style))
    items, stops = (in_style(items, built), built.stops) if built else (items, ())
    _check_fit(adapter, host)
    is_chat, rank = built is not None and built.is_chat, stated_rank(adapter)
    kernel = HostKernel.from_pretrained(host, slots=1, rank=rank, is_chat=is_chat)
    with console.asking() as progress:
        if not is_compared:
            is_bare = spec.routing == "host"
            found = evaluate_adapter(
                adapter, items, kernel, is_bare=is_bare, progress=progress, stops=stops
            )
        else:
            pair = compare_with_host(adapter, items, kernel, progress=progress, stops=stops)
    if not is_compared:
        console.tell_evaluation(found)
        return found.record()
    _tell_pair(pair)
    return pair.record()


def _check_fit(adapter: Path, host: str) -> None:
    """Refuse an adapter that is damaged or made for a host of another width, before it is loaded.

    Raises:
        AdapterError: it is one of these.
        HostError: the host is not on this machine.
    """
    from symbiont_ecology.adapters.peft_files import GROUPS, adapter_modules, ending_of
    from symbiont_ecology.model.locating import check_is_here, local_folder, read_json

    modules = adapter_modules(adapter)
    check_is_here(host)
    if (place := local_folder(host)) is None:
        return
    width = read_json(place / "config.json").get("hidden_size")
    for module, (d_in, _) in modules.items() if width else ():
        if d_in != width and ending_of(module) in chain(*GROUPS):
            raise AdapterError(
                f"expected an adapter for a host of width {width}, got {d_in} for {module} in "
                f"{adapter}: name the host that it was made for, --host MODEL"
            )


def _tell_pair(pair: AdapterComparison) -> None:
    """Print accuracy by family, what changed, and a few replies of every kind."""
    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import last_turn
    from symbiont_ecology.evaluate.adapter_comparison import CHANGES

    rows = console.table("right, with 95 % interval", "questions", "host", "adapter", "+", "−")
    for name, part in {**pair.categories, "all": pair}.items():
        shares = (console.percent(side.accuracy()) for side in (part.host, part.adapter))
        gained, lost, *_ = map(str, part.counts.values())
        rows.add_row(escape(name), str(len(part.changes)), *shares, gained, lost)
    console.print_table(rows)
    print(f"adapter - host: {console.points(pair.difference)}")
    print(", ".join(f"{change} {count}" for change, count in pair.counts.items()))
    replies = list(zip(pair.changes, pair.host.rollouts, pair.adapter.rollouts, strict=True))
    for change in CHANGES.values():
        examples = [two for kind, *two in replies if kind == change]
        for bare, adapted in examples[:: max(len(examples) // MAX_EXAMPLES, 1)][:MAX_EXAMPLES]:
            texts = (last_turn(bare.item.prompt), bare.item.answer, bare.text, adapted.text)
            question, answer, host, adapter = (plain(text, MAX_TEXT_CHARS) for text in texts)
            print(f"{change}: {question} (wanted: {answer})\n  host: {host}\n  adapter: {adapter}")

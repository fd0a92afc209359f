"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.answers import Progress
    from symbiont_ecology.evaluation.baselines import BaselineComparison
    from symbiont_ecology.evaluation.measure import Evaluation
    from symbiont_ecology.evaluation.questions import Question
    from symbiont_ecology.evaluation.spec import EvaluationSpec
    from symbiont_ecology.statistics import Interval

RoutingOption = Annotated[
    str,
    typer.Option(
        help="Who answers: host (bare), single (the best organelle), family or cell (oracles), "
        "learned (the label-free router), committed (the same, never the host), vote, cascade, "
        "surest (of everyone)."
    ),
]
ShiftOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What questions are drawn from: in-distribution, depth, wording, shared-families, "
        "unrelated-families, composition, retention, ceiling, perturbed; repeat it for several.",
        show_default="in-distribution",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(help="Folder or name of the host.", show_default="the run's own, or embedded"),
]
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
        typer.Option(
            help='JSON file {"family" or "family/depth": "candidate"}; the rest is the host\'s.'
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write everything there, each answer included; - is stdout."),
    ] = None,
    host: HostOption = None,
    repeat_evaluations: Annotated[
        bool, typer.Option("--again", help="Make every evaluation of the run again and compare.")
    ] = False,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="With --adapter: put questions into the host's chat template."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything but the host, say the plan, do nothing."),
    ] = False,
) -> None:
    """Ask holdout questions. The run itself is not changed, its evaluations.jsonl gets a line."""
    from symbiont_ecology.evaluation.spec import EvaluationSpec

    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    _check_together(context)
    stream = text_stream(json_file)
    if json_file is not None and not dry_run:
        prepare(json_file)  # now, not when everything has been computed
    asked = EvaluationSpec(
        holdout=_text(holdout),
        shifts=tuple(shift or ("in-distribution",)),
        per_cell=per_cell,
        selection=_text(selection),
        most=selection_max_samples,
        routing=routing,
        routing_map=_text(routing_map),
    )
    if dry_run:
        _rehearse(folder, adapter, asked, sft, host, stream)
    elif folder is not None and repeat_evaluations:
        _make_again(folder, host)
    elif folder is not None:
        exam = _examine(folder, asked, sft, host)
        tell_exam(exam, stream)
        _save(json_file, exam.systems[exam.main].record() | exam.summary())
    elif adapter is not None:
        evaluation = _evaluate_adapter(adapter, holdout, routing, host, chat)
        tell_evaluation(evaluation, stream)
        _save(json_file, evaluation.record())


def _check_together(context: typer.Context) -> None:
    """Refuses options that another one leaves without meaning."""
    flags = {str(option.name): option.opts[0] for option in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in flags}
    given = [
        name
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]
    for one, heeded in GOES_WITH.items():
        ignored = [flags[name] for name in given if name not in (one, *heeded)]
        if one in given and ignored:
            fine = ", ".join(flags[name] for name in heeded if name != "folder")
            raise ConfigError(
                f"evaluate {flags[one]}: expected nothing but {fine}, got {', '.join(ignored)}: leave it out"
            )
    for one, pointless in INSTEAD_OF.items():
        if one in given and (ignored := [flags[name] for name in given if name in pointless]):
            raise ConfigError(
                f"evaluate {flags[one]}: expected no {' or '.join(ignored)} beside it: leave it out"
            )
    if "selection_max_samples" in given and "selection" not in given:
        raise ConfigError("evaluate --selection-max-samples: expected --selection FILE beside it")


def _save(json_file: Path | None, record: dict[str, Any]) -> None:
    if json_file is not None:
        write_json(json_file, record)


def _examine(
    folder: Path, asked: EvaluationSpec, sft: Path | None, host: str | None
) -> BaselineComparison:
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.baselines import compare_with_baselines
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.weights.peft_files import stated_rank

    candidates = LoadedRun.of_run(folder, is_kept=True)
    # Before the host is loaded: a wrong word or file costs no time.
    questions, selection = asked.questions(candidates), asked.selected(candidates)
    _check_apart(questions, selection)
    asked.way(candidates)
    config = _as_wide(on_host(candidates.config, host), stated_rank(sft) if sft else 0)
    world = build_host(config)
    with progress("asking") as watch:
        exam = compare_with_baselines(
            candidates, asked, questions, world, selection=selection, sft=sft, watch=watch
        )
    for name, evaluation in exam.systems.items():
        log_evaluation(evaluation, candidates, exam.asked[name])
    return exam


def _check_apart(questions: list[Question], selection: list[Question]) -> None:
    """Who is chosen on the very questions that it is examined on looks better than it is."""
    if both := {one.prompt for one in questions} & {one.prompt for one in selection}:
        raise ConfigError(
            f"evaluate --selection: expected other questions than those that are asked, got {len(both)} of "
            f"them, such as {min(both)!r:.60}: take them out of one of the two"
        )


def _as_wide(config: RunConfig, rank: int) -> RunConfig:
    """The config with room for an adapter that may be wider than anyone in the run."""
    rank = max(config.host.rank, rank)
    return config.model_copy(update={"host": config.host.model_copy(update={"rank": rank})})


def _make_again(folder: Path, host: str | None) -> None:
    """Makes every evaluation of a run again; exit code 1 where one is not what it was."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.evaluation.evaluation_log import repeat_evaluations, widest_rank

    config = _as_wide(on_host(read_config(folder), host), widest_rank(folder))
    different = 0
    for one in repeat_evaluations(folder, build_host(config)):
        different += not one.is_same
        verdict = (
            one.problem
            or f"{100 * one.now:.1f} % now, {'the same' if one.is_same else 'DIFFERENT'}"
        )
        print(
            f"evaluation {one.line}: generation {one.generation}, {one.name}: {100 * one.then:.1f} % then, "
            f"{verdict}"
        )
    if different:
        raise RunError(f"{different} evaluations of {folder} are not what they were")


def _evaluate_adapter(
    adapter: Path, holdout: Path | None, routing: str, host: str | None, is_chat: bool
) -> Evaluation:
    from symbiont_ecology.evaluation.measure import evaluate_adapter
    from symbiont_ecology.host.kernel import HostKernel

    questions, rank = _adapter_questions(adapter, holdout, routing)
    kernel = HostKernel.from_pretrained(host or "embedded", slots=1, rank=rank, is_chat=is_chat)
    return evaluate_adapter(adapter, questions, kernel, is_bare=routing == "host")


def _adapter_questions(
    adapter: Path, holdout: Path | None, routing: str
) -> tuple[list[Question], int]:
    """What an adapter would be asked, and its rank."""
    from symbiont_ecology.evaluation.questions import read_questions
    from symbiont_ecology.weights.peft_files import stated_rank

    if holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    if routing not in (
        "learned",
        "single",
        "host",
    ):  # there is one candidate, whatever would find it
        raise ConfigError(f"evaluate --adapter: expected --routing single or host, got {routing!r}")
    return read_questions(holdout), stated_rank(adapter)


def _rehearse(
    folder: Path | None,
    adapter: Path | None,
    asked: EvaluationSpec,
    sft: Path | None,
    host: str | None,
    stream: TextIO,
) -> None:
    """Everything that comes before the host, and what would be asked of whom."""
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.weights.peft_files import stated_rank

    source = asked.holdout or f"{asked.per_cell} per cell, {', '.join(asked.shifts)}"
    if folder is None:
        assert adapter is not None
        holdout = None if asked.holdout is None else Path(asked.holdout)
        questions, rank = _adapter_questions(adapter, holdout, asked.routing)
        lines = {"host": host or "embedded", "asked": f"{adapter} of rank {rank}"}
    else:
        candidates = LoadedRun.of_run(folder)
        questions, selection = asked.questions(candidates), asked.selected(candidates)
        _check_apart(questions, selection)
        asked.way(candidates)
        if sft is not None:
            stated_rank(sft)
        systems = dict.fromkeys(("host", "single", *(["sft"] if sft else []), asked.name))
        judges = f"{len(selection)} selection questions" if selection else "practice"
        lines = {
            "host": on_host(candidates.config, host).host.model,
            "asked": f"{', '.join(systems)} of {folder}, generation {candidates.portfolio.state.generation}",
            "candidates": f"{len(candidates.portfolio.elites)}, judged by {judges}",
        }
    for label, value in {**lines, "questions": f"{len(questions)} ({source})"}.items():
        print(f"{label:11s} {value}", file=stream)
    print("everything but the host is fine; nothing was done", file=stream)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A count of what was done, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed:.0f} questions"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.advance(task, done)


def tell_exam(exam: BaselineComparison, stream: TextIO) -> None:
    """A table of accuracies by family and system, differences, and what it costs."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    main, console = exam.systems[exam.main], Console(file=stream)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("family", "questions", *exam.systems):
        table.add_column(column, justify="left" if column == "family" else "right", no_wrap=True)
    shares = {name: one.by_family() for name, one in exam.systems.items()}
    counts = main.summary()["families"]
    for family in counts:
        found = (f"{100 * shares[name][family].estimate:.0f} %" for name in exam.systems)
        table.add_row(escape(family), str(counts[family]["questions"]), *found)
    totals = {name: one.accuracy() for name, one in exam.systems.items()}
    shown = (f"{100 * one.estimate:.1f} %" for one in totals.values())
    table.add_row("all", str(len(main.answers)), *shown, style="bold")
    console.print(table)
    limits = (f"{name} {percent(one)}" for name, one in totals.items())
    console.print(
        f"with 95 % intervals: {', '.join(limits)}", highlight=False, markup=False, soft_wrap=True
    )
    summary = exam.summary()
    for name, values in summary["differences"].items():
        estimate, low, high = (100 * values[key] for key in ("estimate", "low", "high"))
        line = f"{exam.main} - {name}: {estimate:+.1f} points [{low:+.1f}, {high:+.1f}]"
        line += f", McNemar p = {values['mcnemar_p']:.2g}"
        console.print(line, highlight=False, soft_wrap=True)
    if brittle := summary["robustness"].get("brittle"):
        share = f"{100 * brittle['estimate']:.1f} % [{100 * brittle['low']:.0f}, {100 * brittle['high']:.0f}]"
        console.print(
            f"brittle: {share} of right answers do not survive another way of writing", markup=False
        )
    if main.judged_by == "selection":
        cost = f"{main.selection.flops:.3g} useful FLOPs"
        console.print(
            f"* candidates judged on selection questions, which took {cost}", highlight=False
        )
    else:
        console.print(
            "single is chosen by practice (a fallback); --selection FILE chooses on other questions"
        )
    tell_answerers(main, console)


def tell_evaluation(evaluation: Evaluation, stream: TextIO) -> None:
    """A table of accuracies and one line on who answered."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    summary = evaluation.summary()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family")
    table.add_column("questions", justify="right")
    table.add_column("right, with 95 % interval", justify="right")
    for family, share in evaluation.by_family().items():
        table.add_row(escape(family), str(summary["families"][family]["questions"]), percent(share))
    table.add_row("all", str(summary["questions"]), percent(evaluation.accuracy()), style="bold")
    console = Console(file=stream)
    console.print(table)
    tell_answerers(evaluation, console)


def tell_answerers(evaluation: Evaluation, console: Console) -> None:
    """Who answered, and what it cost."""
    summary = evaluation.summary()
    organelle_id = sorted(summary["choices"].items(), key=lambda entry: -entry[1])
    shown = ", ".join(f"{name} {count}" for name, count in organelle_id[:8]) + (
        " …" if len(organelle_id) > 8 else ""
    )
    console.print(
        f"answered by: {shown}; {evaluation.flops:.3g} useful FLOPs, "
        f"{summary['flops_per_solved']:.3g} per right answer",
        highlight=False,
        soft_wrap=True,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def percent(interval: Interval) -> str:
    """An interval of shares in percent: ``43 % [37, 50]``."""
    return f"{100 * interval.estimate:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def on_host(config: RunConfig, host: str | None) -> RunConfig:
    """The config with the host at another place; its fingerprint decides whether it is the same."""
    if host is None:
        return config
    return config.model_copy(update={"host": config.host.model_copy(update={"model": host})})


def text_stream(json_file: Path | None) -> TextIO:
    """Where text goes: not to stdout where that is for JSON alone."""
    return sys.stderr if str(json_file) == "-" else sys.stdout


def prepare(path: Path) -> None:
    """Makes the folder of a file, and sure that the file can be written; ``-`` can.

    Raises:
        RunError: it cannot.
    """
    if str(path) == "-":
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RunError(f"cannot write {path}: choose another place")


def write_json(path: Path, data: object) -> None:
    """Writes plain values as JSON to a file, or to stdout for ``-``.

    Raises:
        RunError: the file cannot be written.
    """
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error

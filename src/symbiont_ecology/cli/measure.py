"""``evaluate``: how good a run or an adapter is on questions that no learner met."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.measure import Evaluation
    from symbiont_ecology.statistics import Interval

RoutingOption = Annotated[
    str,
    typer.Option(
        help="Who answers: host (bare), single (the best organelle), cell (an oracle that reads labels), "
        "learned (the label-free router)."
    ),
]
HostOption = Annotated[
    str | None, typer.Option(help="Folder or name of the host.", show_default="the run's own, or embedded")
]


def evaluate(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of a run.", show_default=False)
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="A PEFT folder, instead of a run.")] = None,
    holdout: Annotated[
        Path | None, typer.Option(help="JSONL file of questions with prompt, target, family, depth.")
    ] = None,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Without a file: holdout questions per cell of the run.")
    ] = 20,
    routing: RoutingOption = "learned",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything there, each answer included; - is stdout.")
    ] = None,
    host: HostOption = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="With --adapter: put questions into the host's chat template.")
    ] = False,
) -> None:
    """Ask holdout questions. The run itself is not changed, its evaluations.jsonl gets a line."""
    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    to_stdout = str(json_file) == "-"
    if json_file is not None and not to_stdout:
        prepare(json_file)  # now, not when everything has been computed
    if folder is not None:
        evaluation = _evaluate_run(folder, holdout, per_cell, routing, host)
    else:
        assert adapter is not None
        evaluation = _evaluate_adapter(adapter, holdout, routing, host, chat)
    tell_evaluation(evaluation, sys.stderr if to_stdout else sys.stdout)
    if json_file is not None:
        write_json(json_file, evaluation.record())


def _evaluate_run(
    folder: Path, holdout: Path | None, per_cell: int, routing: str, host: str | None
) -> Evaluation:
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.measure import Candidates, note
    from symbiont_ecology.evaluation.questions import read_questions

    candidates = Candidates.of_run(folder)
    if holdout is None:
        questions = candidates.questions(per_cell)
    else:
        questions = [replace(one, prompt=candidates.finished(one.prompt)) for one in read_questions(holdout)]
    choices = candidates.portfolio.choose(questions, routing)  # before the host: a wrong word costs no time
    evaluation = candidates.evaluate(
        questions, choices, build_host(on_host(candidates.config, host)), routing
    )
    note(evaluation, folder, f"{per_cell} per cell" if holdout is None else str(holdout))
    return evaluation


def _evaluate_adapter(
    adapter: Path, holdout: Path | None, routing: str, host: str | None, is_chat: bool
) -> Evaluation:
    from symbiont_ecology.evaluation.measure import evaluate_adapter
    from symbiont_ecology.evaluation.questions import read_questions
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.weights.peft_files import stated_rank

    if holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    if routing not in ("learned", "single", "host"):  # there is one candidate, whatever would find it
        raise ConfigError(f"evaluate --adapter: expected --routing single or host, got {routing!r}")
    questions = read_questions(holdout)
    kernel = HostKernel.from_pretrained(
        host or "embedded", slots=1, rank=stated_rank(adapter), is_chat=is_chat
    )
    return evaluate_adapter(adapter, questions, kernel, is_bare=routing == "host")


def on_host(config: RunConfig, host: str | None) -> RunConfig:
    """The config with the host at another place; its fingerprint decides whether it is the same."""
    if host is None:
        return config
    return config.model_copy(update={"host": config.host.model_copy(update={"model": host})})


def tell_evaluation(evaluation: Evaluation, stream: TextIO) -> None:
    """A table of accuracies and one line on who answered."""
    from rich.console import Console
    from rich.table import Table

    summary = evaluation.summary()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family")
    table.add_column("questions", justify="right")
    table.add_column("right, with 95 % interval", justify="right")
    for family, share in evaluation.by_family().items():
        table.add_row(family, str(summary["families"][family]["questions"]), percent(share))
    table.add_row("all", str(summary["questions"]), percent(evaluation.accuracy()), style="bold")
    console = Console(file=stream)
    console.print(table)
    who = sorted(summary["choices"].items(), key=lambda entry: -entry[1])
    shown = ", ".join(f"{name} {count}" for name, count in who[:8]) + (" …" if len(who) > 8 else "")
    console.print(
        f"answered by: {shown}; {evaluation.flops:.3g} useful FLOPs", highlight=False, soft_wrap=True
    )


def percent(interval: Interval) -> str:
    """An interval of shares in percent: ``43 % [37, 50]``."""
    return f"{100 * interval.estimate:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def prepare(path: Path) -> None:
    """Makes the folder of a file, and sure that the file can be written.

    Raises:
        RunError: it cannot.
    """
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

"""``demo``: an ecology and a single adapter of equal compute, live, and then a table that compares
them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.cli.evaluate import percent, write_json
from symbiont_ecology.cli.run import live, typed
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.run import Finished, GenerationCallback
    from symbiont_ecology.evaluation.measure import Evaluation

ARMS = {"ecology": "demo", "single": "demo_single"}
"""Folder of each arm below the demo's, and its preset."""
PER_CELL = 40
"""Holdout questions per cell, unless told otherwise."""
TOLERANCE = 0.02
"""Part by which the arms' useful FLOPs may differ: the last generation's overshoot."""


def demo(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes for both arms.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the demo; one that exists goes on.",
            show_default="artifacts/comparison-<n>",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of both arms.")] = 0,
    per_cell: Annotated[
        int, typer.Option(min=1, help="Holdout questions per cell at the end.")
    ] = PER_CELL,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show nothing while it runs.")
    ] = False,
) -> None:
    """Watch an ecology live beside a single adapter, then compare both with the bare host."""
    began = time.monotonic()
    changes = [f"seed={seed}", *(overrides or [])]
    configs = _configs(changes)
    folder = out or _folder(configs)
    if not _can_go_on(folder, configs):
        raise ConfigError(
            f"{folder} holds a run or a demo with another config: choose another --out"
        )
    with _other_core(folder, changes) as wait_for_single:
        words = [*changes, "--out", str(folder)]
        words += ["--per-cell", str(per_cell)] if per_cell != PER_CELL else []
        _live_ecology(folder, configs["ecology"], quiet, f"{typed()} demo {shlex.join(words)}")
        wait_for_single(quiet)
    summary = _compare(folder, per_cell)
    summary["seconds"] = round(time.monotonic() - began, 1)
    write_json(folder / "summary.json", summary)
    _tell_next(folder, summary)


def _configs(changes: list[str]) -> dict[str, RunConfig]:
    """The config of each arm, or one line about what is wrong with the changes, before anything
    starts."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine.build import check

    configs = {arm: load_config(preset, changes) for arm, preset in ARMS.items()}
    for config in configs.values():
        check(config)
    return configs


def _can_go_on(folder: Path, configs: dict[str, RunConfig]) -> bool:
    """Whether the folder is free, or holds this very demo."""
    from symbiont_ecology.engine.run import CONFIG_FILE, read_config

    if (folder / CONFIG_FILE).exists():  # a plain run
        return False
    arms = [(folder / arm, config) for arm, config in configs.items()]
    return all(read_config(arm) == config for arm, config in arms if (arm / CONFIG_FILE).exists())


def _folder(configs: dict[str, RunConfig]) -> Path:
    """``artifacts/comparison-<n>`` with the first n that can go on."""
    number = 1
    while not _can_go_on(folder := Path("artifacts") / f"comparison-{number}", configs):
        number += 1
    return folder


def _live_ecology(folder: Path, config: RunConfig, quiet: bool, again: str) -> None:
    from symbiont_ecology.engine import run as runs

    arm = folder / "ecology"

    def begin(watch: GenerationCallback | None, should_stop: Callable[[], bool]) -> Finished:
        """Founds the ecology, or goes on with it."""
        if (arm / runs.CONFIG_FILE).exists():
            return runs.resume(arm, watch=watch, should_stop=should_stop)
        return runs.start(config, arm, watch=watch, should_stop=should_stop)

    live(begin, config, arm, quiet, again)


@contextmanager
def _other_core(folder: Path, changes: list[str]) -> Iterator[Callable[[bool], None]]:
    """The single adapter in a process of its own, which is stopped when this one leaves early."""
    arm, log = folder / "single", folder / "single.log"
    exists = (arm / "config.yaml").exists()
    words = ["resume", str(arm)] if exists else ["run", ARMS["single"], *changes, "--out", str(arm)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = log.open("a", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {log}: {error.strerror}") from error
    with file:
        command = [sys.executable, "-m", "symbiont_ecology.cli", *words]
        # A session of its own: Ctrl-C reaches it through us, so that it hears of it once.
        child = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(quiet: bool) -> None:
        """Returns when the single adapter is done."""
        if child.poll() is None and not quiet:
            print("waiting for the single adapter on the other core …", flush=True)
        if child.wait() != 0:
            raise RunError(f"the single adapter's run failed: {_last_line(log)} (see {log})")

    try:
        yield wait
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGINT)  # it finishes its generation and checkpoints
            child.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"


def _compare(folder: Path, per_cell: int) -> dict[str, Any]:
    """Puts the same holdout questions to all three systems, prints the tables and returns the
    numbers."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.measure import LoadedRun, difference
    from symbiont_ecology.evaluation.questions import write_questions
    from symbiont_ecology.evaluation.run_summary import run_summary
    from symbiont_ecology.evaluation.spec import EvaluationSpec
    from symbiont_ecology.events import read_events

    ecology, single = (LoadedRun.of_run(folder / arm) for arm in ARMS)
    questions = ecology.questions(per_cell, seed=ecology.config.seed)
    write_questions(questions, folder / "holdout.jsonl")
    host = build_host(ecology.config)

    def ask(candidates: LoadedRun, routing: str) -> Evaluation:
        """Answers the questions and keeps the evaluation beside the run."""
        evaluation = candidates.evaluate(questions, host, routing)
        asked = EvaluationSpec(per_cell=per_cell, seed=ecology.config.seed, routing=routing)
        log_evaluation(evaluation, candidates, asked)
        return evaluation

    found = {
        "host": ask(ecology, "host"),
        "single": ask(single, "single"),
        "ecology": ask(ecology, "learned"),
    }
    lives = {arm: run_summary(read_events(folder / arm / "events.jsonl")) for arm in ARMS}
    differences = {
        f"ecology - {other}": difference(found["ecology"], found[other])
        for other in ("host", "single")
    }
    summary = {
        "schema": 1,
        "seed": ecology.config.seed,
        "questions": Counter(one.cell for one in questions),
        "arms": {name: evaluation.summary() for name, evaluation in found.items()},
        "differences": differences,
        "lives": {arm: vars(life) for arm, life in lives.items()},
    }
    _tell_accuracy(found, differences)
    _tell_lives({arm: vars(life) for arm, life in lives.items()})
    return summary


def _tell_accuracy(found: dict[str, Evaluation], differences: dict[str, dict[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = "right answers on the holdout, with 95 % intervals"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("family", "bare host", "single adapter", "ecology, routed"):
        table.add_column(column, justify="left" if column == "family" else "right", no_wrap=True)
    shares = {name: evaluation.by_family() for name, evaluation in found.items()}
    for family in shares["host"]:
        table.add_row(family, *(percent(shares[name][family]) for name in found))
    table.add_row(
        "all", *(percent(evaluation.accuracy()) for evaluation in found.values()), style="bold"
    )
    console.print()
    console.print(table)
    for name, values in differences.items():
        estimate, low, high = (100 * values[key] for key in ("estimate", "low", "high"))
        console.print(f"{name}: {estimate:+.1f} points [{low:+.1f}, {high:+.1f}]", highlight=False)
    routed = found["ecology"].summary()["choices"]
    abstained = routed.get("host", 0)
    asked = len(routed) - ("host" in routed)
    console.print(
        f"the router asked {asked} organelles and left {abstained} questions to the host",
        highlight=False,
    )


def _tell_lives(lives: dict[str, dict[str, int]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="what it took", title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column in ("", "single adapter", "ecology"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    arms = lives["single"], lives["ecology"]
    for label, key in (
        ("generations", "generations"),
        ("founded", "founders"),
        ("births", "births"),
        ("deaths", "deaths"),
        ("alive", "alive"),
    ):
        table.add_row(label, *(str(arm[key]) for arm in arms))
    for label, key in (
        ("energy earned, ATP", "earned"),
        ("compute, rent and tickets, ATP", "spent"),
        ("energy held, ATP", "held"),
    ):
        table.add_row(label, *(f"{arm[key] / 1000:.0f}" for arm in arms))
    table.add_row("rollouts", *(str(arm["rollouts"]) for arm in arms))
    table.add_row("useful training FLOPs", *(f"{arm['train_flops']:.3e}" for arm in arms))
    console = Console()
    console.print()
    console.print(table)
    flops = [arm["train_flops"] for arm in arms]
    apart = abs(flops[0] - flops[1]) / max(flops)
    if apart > TOLERANCE:
        console.print(
            f"warning: the arms' FLOPs differ by {apart:.1%}, so they are not to be compared",
            style="red",
        )


def _tell_next(folder: Path, summary: dict[str, Any]) -> None:
    print(
        f"\nEverything is in {folder} ({summary['seconds']:.0f} s, seed {summary['seed']}). Next:"
    )
    for command in (
        f'infer {folder / "ecology"} "math.add: 47+8"',
        f"evaluate {folder / 'ecology'} --holdout {folder / 'holdout.jsonl'} --routing single",
        f"export {folder / 'ecology'}",
        "explain strategies ecology",
    ):
        print(f"  {typed()} {command}")

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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import write_json
from symbiont_ecology.cli.run import live, typed
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.run import Finished, GenerationCallback
    from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
    from symbiont_ecology.evaluation.run_summary import RunSummary

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
    seconds = round(time.monotonic() - began, 1)
    write_json(folder / "summary.json", {**summary, "seconds": seconds})
    _tell_next(folder, seconds, seed)


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


def _compare(folder: Path, per_cell: int) -> dict[str, object]:
    """Asks all three systems the same holdout items, prints the tables, returns the numbers."""
    from rich.console import Console

    from symbiont_ecology.cli.console import accuracy_table, points, tell
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.items import write_items
    from symbiont_ecology.evaluation.measure import LoadedRun, difference
    from symbiont_ecology.evaluation.run_summary import run_summary
    from symbiont_ecology.evaluation.spec import EvaluationSpec
    from symbiont_ecology.events import read_events

    ecology, single = (LoadedRun.of_run(folder / arm) for arm in ARMS)
    items = ecology.items(per_cell, seed=ecology.config.seed)
    write_items(items, folder / "holdout.jsonl")
    host = build_host(ecology.config)

    def ask(run: LoadedRun, routing: str) -> Evaluation:
        """Answers the items and keeps the evaluation beside the run."""
        evaluation = run.evaluate(items, host, routing)
        spec = EvaluationSpec(per_cell=per_cell, seed=ecology.config.seed, routing=routing)
        log_evaluation(evaluation, run, spec)
        return evaluation

    arms = {
        "host": ask(ecology, "host"),
        "single": ask(single, "single"),
        "ecology": ask(ecology, "learned"),
    }
    lives = {arm: run_summary(read_events(folder / arm / "events.jsonl")) for arm in ARMS}
    differences = {
        f"ecology - {other}": difference(arms["ecology"], arms[other])
        for other in ("host", "single")
    }
    console = Console()
    title = "\nright answers on the holdout, with 95 % intervals"
    columns = ("bare host", "single adapter", "ecology, routed")
    console.print(accuracy_table(list(arms.values()), *columns, title=title))
    for name, apart in differences.items():
        tell(console, f"{name}: {points(apart)}")
    choices = arms["ecology"].choices
    asked = len(set(choices) - {"host"})
    tell(
        console, f"the router asked {asked} organelles and left {choices['host']} items to the host"
    )
    _tell_lives(lives["single"], lives["ecology"], console)
    return {
        "schema": 1,
        "seed": ecology.config.seed,
        "questions": Counter("/".join(item.cell) for item in items),
        "arms": {name: evaluation.summary() for name, evaluation in arms.items()},
        "differences": {name: asdict(apart) for name, apart in differences.items()},
        "lives": {arm: asdict(life) for arm, life in lives.items()},
    }


def _tell_lives(single: RunSummary, ecology: RunSummary, console: Console) -> None:
    from symbiont_ecology.cli.console import table

    rows = table("", "single adapter", "ecology", title="\nwhat it took")
    shown: dict[str, Callable[[RunSummary], str]] = {
        "generations": lambda life: str(life.generations),
        "founded": lambda life: str(life.founders),
        "births": lambda life: str(life.births),
        "deaths": lambda life: str(life.deaths),
        "alive": lambda life: str(life.alive),
        "energy earned, ATP": lambda life: f"{life.earned / 1000:.0f}",
        "compute, rent and tickets, ATP": lambda life: f"{life.spent / 1000:.0f}",
        "energy held, ATP": lambda life: f"{life.held / 1000:.0f}",
        "rollouts": lambda life: str(life.rollouts),
        "useful training FLOPs": lambda life: f"{life.train_flops:.3e}",
    }
    for label, show in shown.items():
        rows.add_row(label, show(single), show(ecology))
    console.print(rows)
    flops = single.train_flops, ecology.train_flops
    apart = abs(flops[0] - flops[1]) / max(flops)
    if apart > TOLERANCE:
        console.print(
            f"warning: the arms' FLOPs differ by {apart:.1%}, so they are not to be compared",
            style="red",
        )


def _tell_next(folder: Path, seconds: float, seed: int) -> None:
    print(f"\nEverything is in {folder} ({seconds:.0f} s, seed {seed}). Next:")
    for command in (
        f'infer {folder / "ecology"} "math.add: 47+8"',
        f"evaluate {folder / 'ecology'} --holdout {folder / 'holdout.jsonl'} --routing single",
        f"export {folder / 'ecology'}",
        "explain strategies ecology",
    ):
        print(f"  {typed()} {command}")

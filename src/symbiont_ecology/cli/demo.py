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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli import console
from symbiont_ecology.cli.calibrate import folder_for, is_free_for
from symbiont_ecology.cli.options import Overrides, PerCellOption, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import checked_config, live
from symbiont_ecology.errors import RunError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.run_summary import RunSummary

ARMS = {"ecology": "demo", "single": "demo_single"}
"""Folder of each arm below the demo's, and its preset."""
PER_CELL = 40
"""Holdout questions per cell, unless told otherwise."""
TOLERANCE = 0.02
"""Part by which the arms' useful FLOPs may differ: the last generation's overshoot."""


def demo(
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/comparison-<n>")] = None,
    seed: Annotated[int, option("Seed of both arms.")] = 0,
    per_cell: PerCellOption = PER_CELL,
    quiet: Quiet = False,
) -> None:
    """Watch an ecology live beside a single adapter, then compare both with the bare host."""
    from symbiont_ecology import Run

    began = time.monotonic()
    changes = [f"seed={seed}", *(overrides or [])]
    configs = {arm: checked_config(preset, changes) for arm, preset in ARMS.items()}
    folder = folder_for("comparison", out, lambda place: _can_go_on(place, configs))
    ecology = Run(folder / "ecology", configs["ecology"])
    with _other_core(folder, changes) as wait_for_single:
        words = [*changes, "--out", str(folder)]
        words += ["--per-cell", str(per_cell)] if per_cell != PER_CELL else []
        live(ecology, quiet, f"{console.typed()} demo {shlex.join(words)}")
        wait_for_single(quiet)
    summary = _compare(ecology, per_cell)
    seconds = round(time.monotonic() - began, 1)
    console.write_json(folder / "summary.json", {**summary, "seconds": seconds})
    print(f"\nEverything is in {folder} ({seconds:.0f} s, seed {seed}). Next:")
    for command in (
        f'infer {ecology.folder} "math.add: 47+8"',
        f"evaluate {ecology.folder} --holdout {folder / 'holdout.jsonl'} --routing single",
        f"export {ecology.folder}",
        "explain strategies ecology",
    ):
        print(f"  {console.typed()} {command}")


def _can_go_on(folder: Path, configs: Mapping[str, RunConfig]) -> bool:
    """Whether the folder is free, or holds this very demo."""
    is_plain_run = (folder / "config.yaml").exists()
    return not is_plain_run and all(is_free_for(folder / arm, configs[arm]) for arm in configs)


@contextmanager
def _other_core(folder: Path, changes: list[str]) -> Iterator[Callable[[bool], None]]:
    """The single adapter in a process of its own, which is stopped when this one leaves early."""
    arm, log = folder / "single", folder / "single.log"
    exists = (arm / "config.yaml").exists()
    words = ["resume", str(arm)] if exists else ["run", ARMS["single"], *changes, "--out", str(arm)]
    console.prepare(log)
    with log.open("a", encoding="utf-8") as file:
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
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = lines[-1].removeprefix("error: ") if lines else "it said nothing"
            raise RunError(f"the single adapter's run failed: {last} (see {log})")

    try:
        yield wait
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGINT)  # it finishes its generation and checkpoints
            child.wait()


def _compare(ecology: Run, per_cell: int) -> dict[str, object]:
    """Asks all three systems the same holdout items, prints the tables, returns the numbers."""
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.items import write_items
    from symbiont_ecology.evaluation.measure import LoadedRun, difference
    from symbiont_ecology.evaluation.run_summary import run_summary
    from symbiont_ecology.evaluation.spec import EvaluationSpec
    from symbiont_ecology.events import read_events

    folder, seed, pool = ecology.folder.parent, ecology.config.seed, ecology.loaded
    items = pool.items(per_cell, seed=seed)
    write_items(items, folder / "holdout.jsonl")
    single = LoadedRun.of_run(folder / "single")
    arms = {}
    for arm, run, routing in (
        ("host", pool, "host"),
        ("single", single, "single"),
        ("ecology", pool, "learned"),
    ):
        arms[arm] = run.evaluate(items, ecology.host, routing)
        spec = EvaluationSpec(per_cell=per_cell, seed=seed, routing=routing)
        log_evaluation(arms[arm], run, spec)
    lives = {arm: run_summary(read_events(folder / arm / "events.jsonl")) for arm in ARMS}
    differences = {
        f"ecology - {other}": difference(arms["ecology"], arms[other])
        for other in ("host", "single")
    }
    columns = ("bare host", "single adapter", "ecology, routed")
    title = "\nright answers on the holdout, with 95 % intervals"
    console.show(console.accuracy_table(dict(zip(columns, arms.values(), strict=True)), title))
    for name, apart in differences.items():
        print(f"{name}: {console.points(apart)}")
    choices = arms["ecology"].choices
    asked = len(set(choices) - {"host"})
    print(f"the router asked {asked} organelles and left {choices['host']} items to the host")
    _tell_lives(lives["single"], lives["ecology"])
    return {
        "schema": 1,
        "seed": seed,
        "questions": Counter("/".join(item.cell) for item in items),
        "arms": {name: evaluation.summary() for name, evaluation in arms.items()},
        "differences": {name: asdict(apart) for name, apart in differences.items()},
        "lives": {arm: asdict(life) for arm, life in lives.items()},
    }


def _tell_lives(single: RunSummary, ecology: RunSummary) -> None:
    rows = console.table("", "single adapter", "ecology", title="\nwhat it took")
    for label, key, unit in (
        ("generations", "generations", 1),
        ("founded", "founders", 1),
        ("births", "births", 1),
        ("deaths", "deaths", 1),
        ("alive", "alive", 1),
        ("energy earned, ATP", "earned", 1000),
        ("compute, rent and tickets, ATP", "spent", 1000),
        ("energy held, ATP", "held", 1000),
        ("rollouts", "rollouts", 1),
    ):
        rows.add_row(label, *(f"{getattr(life, key) / unit:.0f}" for life in (single, ecology)))
    flops = single.train_flops, ecology.train_flops
    rows.add_row("useful training FLOPs", *(f"{spent:.3e}" for spent in flops))
    console.show(rows)
    if (apart := abs(flops[0] - flops[1]) / max(flops)) > TOLERANCE:
        typer.secho(
            f"warning: the arms' FLOPs differ by {apart:.1%}, so they are not to be compared",
            fg="red",
        )

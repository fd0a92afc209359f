"""``run`` and ``resume``: a run that is watched, can be interrupted, and says what to type next."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import (
    command_line,
    tell_evaluation,
    tell_facts,
    tell_general,
    tell_loading,
)
from symbiont_ecology.cli.controls import Brake, Controls
from symbiont_ecology.cli.options import option
from symbiont_ecology.config_layers import config_name
from symbiont_ecology.errors import INTERRUPTED, HostError
from symbiont_ecology.files import free_folder

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.analysis.narrator import RunView
    from symbiont_ecology.config import RunConfig

BUDGET_ENDS = {
    "train_flops": "until {:.3g} useful FLOPs are spent",
    "train_tokens": "until training took {:.3g} tokens",
    "train_seconds": "until it lived {:.3g} seconds",
    "train_rollouts": "until it spent {:.3g} mean rollouts of the host",
}
"""What ends a run beside its generations, by key of ``run``."""


def run(
    config: options.ConfigName,
    overrides: options.Overrides = None,
    out: Annotated[
        Path | None, option("Folder of the run.", default="artifacts/<config>-<n>")
    ] = None,
    dry_run: options.DryRunOption = False,
    quiet: options.Quiet = False,
) -> None:
    """Start a run. Ctrl-C ends it after the generation; symbiont resume goes on."""
    tell_loading(quiet or dry_run)
    from symbiont_ecology import Run

    resolved = checked_config(config, overrides)
    folder = out or free_folder(config_name(config))
    if dry_run:
        tell_run_plan(resolved, folder)
    else:
        _live_to_the_end(Run.start(resolved, folder=folder), quiet)


def resume_command(
    folder: options.RunFolder, overrides: options.Overrides = None, quiet: options.Quiet = False
) -> None:
    """Go on with a run; run.generations=N or run.train_flops=N makes it longer."""
    tell_loading(quiet)
    from symbiont_ecology import Run

    opened = Run.open(folder, *(overrides or ()))
    check_final_holdout(opened.config)
    _live_to_the_end(opened, quiet)


def _live_to_the_end(lived: Run, quiet: bool) -> None:
    live(lived, quiet)
    if not quiet:
        tell_next(lived)
    evaluate_at_end(lived)
    if not quiet:
        tell_left_alone(lived)


def live_unless_complete(
    lived: Run, quiet: bool, again: str = "", *, goes_on: bool = False
) -> None:
    """``live``; of a run that is complete, what a kill left behind it is deleted."""
    if lived.is_complete:
        lived.tidy()
    else:
        live(lived, quiet, again, goes_on=goes_on)


def live(lived: Run, quiet: bool, again: str = "", *, goes_on: bool = False) -> None:
    """Lives a run on the screen; ``again`` is what to type where that is not resume.

    Ctrl-C in the last generation counts only where more is to follow (``goes_on``).

    Raises:
        typer.Exit: it was interrupted.
    """
    from symbiont_ecology.host.locating import find_folder

    view = _view(lived, quiet)
    with Brake(is_silent=view.is_screen) as brake, view, _controls(brake, view) as controls:
        view.tell("importing torch …")
        import torch  # noqa: F401

        model = lived.config.host.model
        find_folder(model, view.tell)
        view.tell(f"loading the host {model} …")
        lived.tell = view.tell
        with closing(iter(lived)) as generations:
            view.tell("going on …" if lived.is_started else "founding the population …")
            for generation in generations:
                view(generation.state, generation.summary, generation.seconds)
                if controls is not None and controls.is_paused:
                    view.pause()
                    controls.wait()
                    view.go_on()
                if brake.is_pulled:
                    break
    if not lived.is_complete or (goes_on and brake.is_pulled):
        print(
            f"interrupted after generation {lived.state.generation - 1}; "
            f"go on with: {again or command_line('resume', lived.folder)}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)


def tell_next(lived: Run) -> None:
    """Where a complete run is and what can be done with it."""
    state, loop = lived.state, lived.config.run
    longer = [f"run.generations={2 * max(loop.generations, 1)}"]
    longer += [f"run.{key}={2 * getattr(loop, key):.3g}" for key in lived.config.train_budgets]
    asked = ["--shift", "habitats"] * bool(state.habitats)
    asked += ["--routing", "habitat" if state.habitats else "learned"]
    print(
        f"complete: {state.generation} generations, {state.spent.flops:.3g} FLOPs, "
        f"run in {lived.folder}\n"
        f"next:     {command_line('evaluate', lived.folder, *asked)}\n"
        f"          {command_line('evoscope', lived.folder, '--open')}\n"
        f"          {command_line('resume', lived.folder, *longer)}"
    )


def checked_config(name: str, overrides: list[str] | None) -> RunConfig:
    """The config of a preset or file with changes; every mistake in it is found here.

    Raises:
        ConfigError: it does not fit together.
        DataError: the file of ``run.final_holdout`` cannot be used.
        HostError: the host is not on this machine.
    """
    from symbiont_ecology import load_config
    from symbiont_ecology.engine.build import check
    from symbiont_ecology.host.locating import check_is_here

    config = load_config(name, overrides or ())
    check(config)
    check_is_here(config.host.model)
    check_final_holdout(config)
    return config


def check_final_holdout(config: RunConfig) -> None:
    """Reads ``run.final_holdout`` before the run, so that a bad file costs nothing."""
    from symbiont_ecology.evaluation.items import read_items

    if config.run.final_holdout is not None:
        read_items(Path(config.run.final_holdout))


def evaluate_at_end(lived: Run) -> None:
    """Answers ``run.final_holdout``, if there is one."""
    if (evaluation := lived.evaluate_final_holdout()) is not None:
        tell_evaluation(evaluation)


def tell_left_alone(lived: Run) -> None:
    """What the run did to plain English, on a host that knows some."""
    from symbiont_ecology.evaluation.general import general_at_end

    if general := general_at_end(lived.config, lived.loaded.pool, lived.host):
        tell_general(general)


def tell_run_plan(config: RunConfig, folder: Path) -> None:
    """Print what a run would do, and what it would take, but on the embedded host: that needs
    little, and its plan no torch."""
    from symbiont_ecology.ecology.state import STATE_FILE
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.engine.warm import PASSES
    from symbiont_ecology.registry import kind_of, knobs
    from symbiont_ecology.strategies import strategies
    from symbiont_ecology.tasks.logs import learns_from_log

    strategy, mix = strategies.build(config.strategy), mixture(config)
    host, loop, cells = config.host, config.run, mix.cells
    names = [knob.name for knob in knobs(type(strategy)) if knob.name != "mechanisms"]
    settings = ", ".join(f"{name}={getattr(strategy, name)}" for name in names)
    mechanisms = ", ".join(strategy.mechanism_names)
    ends = (BUDGET_ENDS[key].format(getattr(loop, key)) for key in config.train_budgets)
    examples = strategy.warm * len(cells)
    warm = f"at most {examples} gold examples, {examples * PASSES} lessons"
    unit = "rollouts" if strategy.samples else "examples read"
    unit = "rows of the log" if learns_from_log(config) else unit
    is_taken = (folder / STATE_FILE).exists()
    depths = " ".join(dict.fromkeys(depth for _, depth in cells))
    facts = {
        "host": f"{host.model} on {host.device} in {host.dtype}, {host.slots} slots of rank "
        f"{host.rank}",
        "tasks": f"{len(cells)} cells: {' '.join(mix.names)}, each {depths}",
        "strategy": f"{kind_of(config.strategy)}: {settings}",
        **({"mechanisms": mechanisms} if mechanisms else {}),
        **({"warm start": warm} if examples else {}),
        "work": f"at most {strategy.max_rows(mix)} {unit} per generation",
        "length": ", or ".join([f"{loop.generations} generations", *ends]),
        "checkpoint": f"every {loop.checkpoint_every} generations",
        **({"reports to": ", ".join(loop.report_to)} if loop.report_to else {}),
        **({"copied to": loop.mirror} if loop.mirror else {}),
        "seed": str(config.seed),
        "folder": f"{folder}{' (holds a run already)' if is_taken else ''}",
    }
    if host.model != "embedded":
        facts |= _estimate(config)
    tell_facts(facts)
    print("the config is fine; nothing was done")


def _estimate(config: RunConfig) -> dict[str, str]:
    """Return memory and hours of a run, from a few seconds of its own work on its host; nothing of
    one whose weights are not on this machine."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.forecast import estimate_run
    from symbiont_ecology.host.loading import find_device, weight_files
    from symbiont_ecology.host.locating import weights_folder
    from symbiont_ecology.host.memory import MemoryNeed, total_memory

    host = config.host
    if (folder := weights_folder(host.model)) is None:
        return {"memory and time": "not known: the host would be fetched first"}
    need = MemoryNeed.of(weight_files(folder), host.dtype, host.rank)
    facts = {
        "memory": f"{need.weights / 1e6:.0f} MB for the host in {host.dtype}, at most "
        f"{host.memory_mb:.0f} MB for a batch, and for each living adapter at most "
        f"{3 * need.adapter / 1e6:.3g} MB with its optimizer"
    }
    print(f"timing {host.model} for some seconds …", file=sys.stderr, flush=True)
    try:
        facts["memory"] += f"; {total_memory(find_device(host.device)) / 1e9:.1f} GB are here"
        eta = estimate_run(config, build_host(config))
    except HostError as error:  # a plan may be made on another machine than the run
        return facts | {"time": f"not measured: {error}"}
    lessons = f" and {1 / eta.lesson:.3g} lessons" if eta.lesson else ""
    facts["time"] = (
        f"{1 / eta.rollout:.3g} answers{lessons} a second here: a generation takes at most "
        f"{eta.generation:.3g} s, the run about {eta.run / 3600:.2g} hours"
    )
    return facts


def _view(lived: Run, quiet: bool) -> RunView:
    """What shows the run: a screen on a terminal, lines elsewhere, nothing when quiet."""
    from symbiont_ecology.analysis.dashboard import Dashboard
    from symbiont_ecology.analysis.narrator import ACCEPTED, ACCEPTED_IN_LOG, Narrator, RunView
    from symbiont_ecology.analysis.pace import RunLength
    from symbiont_ecology.engine.living import lived_seconds
    from symbiont_ecology.tasks.logs import learns_from_log
    from symbiont_ecology.transcripts import TRANSCRIPTS_FILE

    if quiet:
        return RunView()
    plan, console = RunLength(lived.config.run, lived_seconds(lived.folder)), Console()
    accepted = ACCEPTED_IN_LOG if learns_from_log(lived.config) else ACCEPTED
    if console.is_terminal and not console.is_dumb_terminal:
        replies = lived.folder / TRANSCRIPTS_FILE if lived.config.run.transcripts else None
        return Dashboard(plan, console, str(lived.folder), replies, accepted)
    return Narrator(plan, console, Console(stderr=True), accepted)


def _controls(brake: Brake, view: RunView) -> Controls | nullcontext[None]:
    """Keys are read only where a screen shows what they do."""
    return Controls(brake, view.hint) if view.is_screen else nullcontext()

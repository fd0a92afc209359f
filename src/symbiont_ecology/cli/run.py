"""``run`` and ``resume``: a run that is watched, can be interrupted, and says what to type next."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.files import free_folder

if TYPE_CHECKING:
    from symbiont_ecology.analysis.dashboard import Dashboard, Narrator
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.run import Finished, GenerationCallback

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes, such as seed=1.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while it runs.")]


def run(
    config: Annotated[str, typer.Argument(help="A preset (symbiont list presets) or a YAML file.")],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="artifacts/<config>-<n>")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the config, say the plan, do nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Start a run. Ctrl-C ends it after the generation; symbiont resume goes on."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine import run as runs
    from symbiont_ecology.engine.build import check

    resolved = load_config(config, overrides or ())
    check(resolved)
    check_final_holdout(resolved)
    folder = out or free_folder(Path(config).name.removesuffix(".yaml"))
    if dry_run:
        tell_run_plan(resolved, folder)
        return

    def begin(watch: GenerationCallback | None, should_stop: Callable[[], bool]) -> Finished:
        """Founds the run."""
        return runs.start(resolved, folder, watch=watch, should_stop=should_stop)

    finished = live(begin, resolved, folder, quiet)
    if not quiet:
        tell_next(finished, resolved, folder)
    evaluate_at_end(folder)


def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the run.")],
    overrides: Overrides = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run; run.generations=N or run.train_flops=N makes it longer."""
    from symbiont_ecology.engine import run as runs

    resolved = runs.extended(folder, overrides or ())
    check_final_holdout(resolved)

    def begin(watch: GenerationCallback | None, should_stop: Callable[[], bool]) -> Finished:
        """Goes on with the run."""
        return runs.resume(folder, overrides=overrides or (), watch=watch, should_stop=should_stop)

    finished = live(begin, resolved, folder, quiet)
    if not quiet:
        tell_next(finished, resolved, folder)
    evaluate_at_end(folder)


class Brake:
    """Ctrl-C: once, and the run stops behind this generation; twice, and it stops at once."""

    def __init__(self) -> None:
        self.is_pulled = False

    def __enter__(self) -> Brake:
        self._before = signal.signal(signal.SIGINT, self._pull)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _pull(self, number: int, frame: FrameType | None) -> None:
        if self.is_pulled:
            raise KeyboardInterrupt
        self.is_pulled = True
        # Not print: a signal may come while the stream is being written to.
        os.write(sys.stderr.fileno(), b"\nfinishing this generation (Ctrl-C again stops at once)\n")


def live(
    begin: Callable[[GenerationCallback | None, Callable[[], bool]], Finished],
    config: RunConfig,
    folder: Path,
    quiet: bool,
    again: str | None = None,
) -> Finished:
    """Lives a run on the screen. Leaves with 130 when it was interrupted; ``again`` is how it goes
    on."""
    with Brake() as brake, view(config, folder, quiet) as watch:
        finished = begin(watch, lambda: brake.is_pulled)
    state = finished.state
    if not finished.is_complete:
        what = again or f"{typed()} resume {folder}"
        print(
            f"interrupted after generation {state.generation - 1}; go on with: {what}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)
    return finished


def typed() -> str:
    """How this command was reached, so that a printed command can be typed as it is."""
    program = Path(sys.argv[0])
    if shutil.which("symbiont") or program.name != "symbiont":
        return "symbiont"
    near = os.path.relpath(program)
    return str(program) if near.startswith("..") else near


def tell_next(finished: Finished, config: RunConfig, folder: Path) -> None:
    """Where a complete run is and what can be done with it."""
    state, budget = finished.state, config.run.train_flops
    longer = f"run.generations={2 * max(config.run.generations, 1)}"
    if budget is not None:
        longer += f" run.train_flops={2 * budget:.3g}"
    if config.run.train_tokens is not None:
        longer += f" run.train_tokens={2 * config.run.train_tokens:.3g}"
    print(
        f"complete: {state.generation} generations, {state.spent.flops:.3g} FLOPs, run in {folder}"
    )
    print(f"next:     {typed()} evaluate {folder} --routing learned")
    print(f"          {typed()} resume {folder} {longer}")


def view(config: RunConfig, folder: Path, quiet: bool) -> Dashboard | Narrator | Any:
    """What shows the run: a screen on a terminal, lines elsewhere, nothing when quiet."""
    from contextlib import nullcontext

    from rich.console import Console

    from symbiont_ecology.analysis.dashboard import Dashboard, Narrator, RunLength

    if quiet:
        return nullcontext(None)
    plan, console = RunLength(config.run.generations, config.run.train_flops), Console()
    return Dashboard(plan, console, str(folder)) if console.is_terminal else Narrator(plan, console)


def tell_run_plan(config: RunConfig, folder: Path) -> None:
    """What a run would do, from its config alone."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.registry import kind_of, knobs
    from symbiont_ecology.strategies import strategies

    strategy, mix = strategies.build(config.strategy), mixture(config)
    cells = mix.cells
    names = [knob.name for knob in knobs(type(strategy)) if knob.name != "mechanisms"]
    kind = kind_of(config.strategy)
    host, loop = config.host, config.run
    length = f"{loop.generations} generations"
    if loop.train_flops is not None:
        length += f", or until {loop.train_flops:.3g} useful FLOPs are spent"
    if loop.train_tokens is not None:
        length += f", or until training took {loop.train_tokens:.3g} tokens"
    rows = strategy.questions * strategy.samples * len(cells)
    is_taken = (folder / "state.json").exists()
    families = " ".join(mix.names)
    depths = " ".join(dict.fromkeys(depth for _, depth in cells))
    print(
        f"host        {host.model} on {host.device} in {host.dtype}, {host.slots} slots of rank "
        f"{host.rank}"
    )
    print(f"tasks       {len(cells)} cells: {families}, each {depths}")
    print(f"strategy    {kind}: {', '.join(f'{name}={getattr(strategy, name)}' for name in names)}")
    if strategy.mechanism_names:
        print(f"mechanisms  {', '.join(strategy.mechanism_names)}")
    print(f"work        at most {rows:.0f} practice rollouts per generation")
    print(f"length      {length}")
    print(f"checkpoint  every {loop.checkpoint_every} generations")
    print(f"seed        {config.seed}")
    print(f"folder      {folder}" + (" (holds a run already)" if is_taken else ""))
    print("the config is fine; nothing was done")


def check_final_holdout(config: RunConfig) -> None:
    """Reads ``run.final_holdout`` before the run, so that a bad file costs nothing."""
    if config.run.final_holdout is not None:
        from symbiont_ecology.evaluation.items import read_items

        read_items(Path(config.run.final_holdout))


def evaluate_at_end(folder: Path) -> None:
    """Answers ``run.final_holdout``, if there is one, with the run's router."""
    from symbiont_ecology.cli.console import tell_evaluation
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.evaluation.evaluation_log import log_evaluation
    from symbiont_ecology.evaluation.measure import LoadedRun
    from symbiont_ecology.evaluation.spec import EvaluationSpec

    config = read_config(folder)
    if config.run.final_holdout is None:
        return
    run, spec = LoadedRun.of_run(folder), EvaluationSpec(holdout=config.run.final_holdout)
    evaluation = spec.evaluate(run, spec.items(run), build_host(config))
    log_evaluation(evaluation, run, spec)
    tell_evaluation(evaluation, sys.stdout)

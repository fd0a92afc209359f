"""``calibrate``: a short run, a verdict on its health in words, then the rest of the run if it is
well. Before that, if asked to, a sweep for the learning rate that suits the rule and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import Progress

from symbiont_ecology.cli.console import (
    command_line,
    percent,
    print_table,
    table,
    tell_facts,
    tell_loading,
    typed_again,
    write_json,
)
from symbiont_ecology.cli.look import warn_if_silent
from symbiont_ecology.cli.options import ConfigName, Overrides, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import (
    checked_config,
    evaluate_at_end,
    live_unless_complete,
    tell_next,
)
from symbiont_ecology.config_layers import config_name
from symbiont_ecology.errors import ConfigError, RunError, SickError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.analysis.health import Health
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.runtime import Host

HEALTH_FILE = "health.json"


def calibrate(
    config: ConfigName,
    overrides: Overrides = None,
    generations: Annotated[int, option("Generations of the calibration.", least=1)] = 30,
    full: Annotated[int, option("Generations of the whole run.", least=1)] = 50,
    sweep: Annotated[
        bool, option("First try a few learning rates, and take the best one.", "--sweep")
    ] = False,
    out: Annotated[Path | None, resumable_folder("artifacts/<config>-calibrated-<n>")] = None,
    quiet: Quiet = False,
) -> None:
    """Run a few generations, check the health of the run, and go on if it is healthy.

    Exit code 4 means that the run is sick. Typed again, the command goes on where it was.
    """
    tell_loading(quiet)
    from symbiont_ecology import Run

    for override in overrides or ():
        if (key := override.partition("=")[0].strip()) in ("run.generations", "run.train_flops"):
            raise ConfigError(
                f"{key}: calibrate counts generations, set them with --generations and --full"
            )
    if generations > full:
        raise ConfigError(
            f"--generations: expected at most --full, which is {full}, got {generations}"
        )
    run_config = checked_config(config, overrides)
    name = config_name(config)
    full_config = _ended(run_config, full)
    lengths = ("generations", "checkpoint_every")
    kinds = _with_learning_rates(full_config) if sweep else [full_config]
    folder = folder_for(
        f"{name}-calibrated",
        out,
        lambda place: (
            any(is_free_for(place, kind, *lengths) for kind in kinds)
            and (not sweep or _is_free_for_sweep(place, full_config))
        ),
    )
    host = None
    if sweep:
        run_config, host = _swept(run_config, folder, quiet)
    if not quiet:
        print(f"calibrating for {generations} generations, on to {full} if it is healthy: {folder}")
        for key in run_config.train_budgets:
            print(f"run.{key}={getattr(run_config.run, key):.3g} is lifted: generations count here")
    again = typed_again(folder, out)
    run = Run(folder, _ended(run_config, generations), host)
    if not (quiet or run.is_started):
        warn_if_silent(run)
    live_unless_complete(run, quiet, again, goes_on=generations < full)
    health = _examine(run)
    if not quiet:
        _tell_health(health, full, run_config.run.train_flops)
    if health.is_sick:
        names = ", ".join(finding.name for finding in health.findings if finding.severity == "sick")
        onward = command_line("resume", folder, f"run.generations={full}")
        raise SickError(
            f"sick after {health.generations} generations ({names}): mend the config and calibrate "
            f"again, or go on all the same with: {onward}"
        )
    run.config = _ended(run_config, max(full, run.state.generation))  # on the same host
    live_unless_complete(run, quiet, again)
    if not quiet:
        tell_next(run)
    if not _is_answered(run):
        evaluate_at_end(run)


def _with_learning_rates(config: RunConfig) -> list[RunConfig]:
    """The config with every learning rate of the sweep.

    Raises:
        ConfigError: the strategy has none, or nothing would choose among them.
    """
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.experiments import learning_rates

    learning_rates.sweep_items(mixture(config), config.seed)
    return [learning_rates.with_learning_rate(config, lr) for lr in learning_rates.LEARNING_RATES]


def _is_free_for_sweep(folder: Path, config: RunConfig) -> bool:
    """Whether a folder holds no sweep, or that of this config."""
    from symbiont_ecology.experiments.learning_rates import swept_runs

    return all(is_free_for(place, short) for place, short in swept_runs(config, folder).values())


def _swept(config: RunConfig, folder: Path, quiet: bool) -> tuple[RunConfig, Host]:
    """The config with the best learning rate, and the host, which is loaded. A table says what came
    of each."""
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.experiments import learning_rates

    count = len(learning_rates.LEARNING_RATES)
    if not quiet:
        print(
            f"trying {count} learning rates, {learning_rates.SWEPT_GENERATIONS} generations each: "
            f"{folder / learning_rates.SWEEP_FOLDER}"
        )
    host = build_host(config)
    with _progress(count * learning_rates.SWEPT_GENERATIONS, quiet) as advance:
        scores = list(learning_rates.sweep_learning_rates(config, folder, host, advance))
    best = learning_rates.best_learning_rate(scores)
    if not quiet:
        rows = table("learning rate", "right", "of", "FLOPs")
        for score in scores:
            style = "bold" if score is best else None
            right = f"{score.share:.1%}"
            rows.add_row(
                f"{score.learning_rate:g}", right, f"{score.asked}", f"{score.train_flops:.2g}",
                style=style,
            )  # fmt: skip
        print_table(rows)
        print(f"taken: strategy.learning_rate={best.learning_rate:g}")
        if best in (scores[0], scores[-1]):
            print("it is at the end of those tried: one beyond it may be better")
    return learning_rates.with_learning_rate(config, best.learning_rate), host


@contextmanager
def _progress(steps: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """A bar with the time that is left on a terminal; nothing elsewhere, or when quiet."""
    with Progress(
        *Progress.get_default_columns(), console=Console(stderr=True), disable=quiet
    ) as bar:
        task = bar.add_task("founding", total=steps)
        yield lambda description, steps: bar.update(task, advance=steps, description=description)


def folder_for(name: str, out: Path | None, can_go_on: Callable[[Path], bool]) -> Path:
    """The folder that was asked for, or the first ``artifacts/<name>-<n>`` that can be used.

    Raises:
        ConfigError: the folder that was asked for holds something else.
    """
    folders = (Path("artifacts") / f"{name}-{number}" for number in count(1))
    for folder in folders if out is None else [out]:
        if can_go_on(folder):
            return folder
    raise ConfigError(f"{out} holds a run with another config or other data: choose another --out")


def is_free_for(folder: Path, config: RunConfig, *may_differ: str) -> bool:
    """Whether a folder holds no run, or the one with this config, but for some keys of ``run``, and
    with the data as they are."""
    from symbiont_ecology.engine.living import CONFIG_FILE
    from symbiont_ecology.engine.provenance import check_data
    from symbiont_ecology.engine.run import read_config

    if not (folder / CONFIG_FILE).exists():
        return True
    existing, fields = read_config(folder), config.run.model_dump(include=set(may_differ))
    if existing.model_copy(update={"run": existing.run.model_copy(update=fields)}) != config:
        return False
    try:
        check_data(config, folder)
    except RunError:
        return False
    return True


def _ended(config: RunConfig, generations: int) -> RunConfig:
    """The config of a run with that end and no other."""
    ends = {"generations": generations, **dict.fromkeys(config.train_budgets)}
    return config.model_copy(update={"run": config.run.model_copy(update=ends)})


def _examine(run: Run) -> Health:
    """Writes and returns the health of the first generations, however many were lived since."""
    from symbiont_ecology.analysis.health import design_of, examine
    from symbiont_ecology.engine.living import EVENTS_FILE
    from symbiont_ecology.event_log import read_events

    config, events = run.config, read_events(run.folder / EVENTS_FILE)
    first = takewhile(lambda event: event.generation < config.run.generations, events)
    health = examine(first, design_of(config))
    write_json(run.folder / HEALTH_FILE, health.record())
    return health


def _tell_health(health: Health, full: int, lifted: float | None) -> None:
    measured, before = health.measured, health.measured.right_before_learning
    right = f"{percent(before)} of questions" if before else "nobody answered"
    if measured.right_after_learning:
        right += f" before a first update, {percent(measured.right_after_learning)} after it"
    of_all = f"of {len(measured.families)} had a right answer, in {measured.rollouts} rollouts"
    energy = f"{measured.earned / 1000:.0f} ATP earned, {measured.spent / 1000:.0f} spent"
    lives = f"{measured.founders} founded, {measured.births} born, {measured.bankrupt} bankrupt"
    print(f"\n{'sick' if health.is_sick else 'healthy'} after {health.generations} generations")
    facts = {
        "right": right,
        "families": f"{measured.solved} {of_all}",
        "energy": energy,
        "lives": lives,
    }
    tell_facts({f"  {label}": fact for label, fact in facts.items()})
    for finding in health.findings:
        print(
            f"\n{finding.severity}: {finding.name}\n  seen  {finding.seen}\n  mend  {finding.mend}"
        )
    if health.is_sick:
        return
    pace = measured.train_flops / max(health.generations, 1)
    print(f"\non to {full} generations, at this pace about {full * pace:.2g} useful FLOPs")
    if lifted is not None and full * pace > lifted:
        print(f"run.train_flops={lifted:.3g} would have ended it after about {lifted / pace:.0f}")


def _is_answered(run: Run) -> bool:
    """Whether the final holdout, as it is now, was answered at this age already."""
    from symbiont_ecology.evaluation.evaluation_log import logged
    from symbiont_ecology.evaluation.spec import EvaluationRecord, EvaluationSpec

    loop = run.config.run
    spec = EvaluationSpec(holdout=loop.final_holdout, most_asked=loop.final_holdout_samples)
    record = EvaluationRecord.of(spec)
    answered = [(line.generation, line.asked) for _, line in logged(run.folder)]
    return (run.state.generation, record) in answered

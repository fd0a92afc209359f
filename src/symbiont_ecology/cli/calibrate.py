"""``calibrate``: a short run, a verdict on its health in words, then the rest of the run if it is
well."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache, partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli import run as watched
from symbiont_ecology.cli.console import percent, write_json
from symbiont_ecology.errors import ConfigError, SickError

if TYPE_CHECKING:
    from symbiont_ecology.analysis.health import Design, Health
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.run import Finished, GenerationCallback

HEALTH_FILE = "health.json"


def calibrate(
    config: Annotated[str, typer.Argument(help="A preset (symbiont list presets) or a YAML file.")],
    overrides: watched.Overrides = None,
    generations: Annotated[int, typer.Option(min=1, help="Generations of the calibration.")] = 30,
    full: Annotated[int, typer.Option(min=1, help="Generations of the whole run.")] = 50,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; one that exists goes on.",
            show_default="artifacts/<config>-calibrated-<n>",
        ),
    ] = None,
    quiet: watched.Quiet = False,
) -> None:
    """Calibrate, then go on. Exit code 4 says that the run is sick; typed again, it goes on where
    it was."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine.build import check

    for override in overrides or ():
        if (key := override.partition("=")[0].strip()) in ("run.generations", "run.train_flops"):
            raise ConfigError(
                f"{key}: calibrate counts generations, set them with --generations and --full"
            )
    if generations > full:
        raise ConfigError(
            f"--generations: expected at most --full, which is {full}, got {generations}"
        )
    asked = load_config(config, overrides or ())
    check(asked)
    whole, lifted = _ended(asked, full), asked.run.train_flops
    folder = _folder(Path(config).stem, out, whole)
    watched.check_final_holdout(whole)
    if not quiet:
        print(f"calibrating for {generations} generations, on to {full} if it is healthy: {folder}")
        for key in asked.train_budgets:
            print(f"run.{key}={getattr(asked.run, key):.3g} is lifted: generations count here")
    words = ["calibrate", config, *(overrides or ()), "--generations", str(generations)]
    again = shlex.join([*words, "--full", str(full), "--out", str(folder)])
    live = _living(whole, folder, quiet, f"{watched.typed()} {again}")
    live(generations)
    health = _examine(whole, folder, generations)
    if not quiet:
        _tell_health(health, full, lifted)
    if health.is_sick:
        names = ", ".join(finding.name for finding in health.findings if finding.severity == "sick")
        onward = f"{watched.typed()} resume {shlex.quote(str(folder))} run.generations={full}"
        raise SickError(
            f"sick after {health.generations} generations ({names}): mend the config and calibrate "
            f"again, or go on all the same with: {onward}"
        )
    finished = live(full)
    lived = finished.state.generation
    if not quiet:
        watched.tell_next(finished, _ended(whole, max(full, lived)), folder)
    if not _is_answered(folder, whole.run.final_holdout, lived):
        watched.evaluate_at_end(folder)


def _ended(config: RunConfig, generations: int) -> RunConfig:
    """The config of a run with that end and no other."""
    ends = {"generations": generations, **dict.fromkeys(config.train_budgets)}
    return config.model_copy(update={"run": config.run.model_copy(update=ends)})


def _folder(name: str, out: Path | None, config: RunConfig) -> Path:
    """The folder that was asked for, or the first of its kind that is free or holds this very run,
    whatever its length and however often it is saved."""
    from symbiont_ecology.engine.run import CONFIG_FILE, read_config

    may_differ = config.run.model_dump(include={"generations", "checkpoint_every"})
    folders = (Path("artifacts") / f"{name}-calibrated-{number}" for number in count(1))
    for folder in folders if out is None else [out]:
        if not (folder / CONFIG_FILE).exists():
            return folder
        there = read_config(folder)
        if there.model_copy(update={"run": there.run.model_copy(update=may_differ)}) == config:
            return folder
    raise ConfigError(f"{out} holds a run with another config: choose another --out")


def _living(config: RunConfig, folder: Path, quiet: bool, again: str) -> Callable[[int], Finished]:
    """A function that lives the run until some generation, on one host that is loaded when it is
    first needed."""
    from symbiont_ecology.ecology import state as checkpoint
    from symbiont_ecology.engine import run as runs
    from symbiont_ecology.engine.build import build_host

    host = cache(lambda: build_host(config))

    def live(generations: int) -> Finished:
        """Founds the run, or goes on with it, unless it is as old as that."""
        part = _ended(config, generations)
        keys = ("generations", "checkpoint_every")
        changes = [f"run.{key}={getattr(part.run, key)}" for key in keys]

        def begin(watch: GenerationCallback | None, should_stop: Callable[[], bool]) -> Finished:
            """Ctrl-C in the last generation of the calibration stops what follows, too."""
            enter = partial(runs.start, part, folder)
            if (folder / runs.CONFIG_FILE).exists():
                enter = partial(runs.resume, folder, overrides=changes)
            life = enter(watch=watch, should_stop=should_stop, host=host())
            is_last = generations == config.run.generations
            return runs.Finished(life.state, life.is_complete and (is_last or not should_stop()))

        if (folder / checkpoint.STATE_FILE).exists():
            state = checkpoint.load_state(folder)
            if state.generation >= generations:
                return runs.Finished(state, True)
        return watched.live(begin, part, folder, quiet, again)

    return live


def _examine(config: RunConfig, folder: Path, generations: int) -> Health:
    """Writes and returns the health of the first generations, however many were lived since."""
    from symbiont_ecology.analysis.health import examine
    from symbiont_ecology.engine.run import EVENTS_FILE
    from symbiont_ecology.events import read_events

    events = read_events(folder / EVENTS_FILE)
    first = takewhile(lambda event: event.generation < generations, events)
    health = examine(first, design_of(config))
    write_json(folder / HEALTH_FILE, health.record())
    return health


def design_of(config: RunConfig) -> Design:
    """What a config means a run to do, as the examination needs to know it."""
    from symbiont_ecology.analysis.health import Design
    from symbiont_ecology.learning import learning_rules
    from symbiont_ecology.learning.imitation import NoLearning
    from symbiont_ecology.strategies import strategies

    rule, flip = learning_rules.build(config.learning_rule), config.tasks.flip
    return Design(
        prices=config.economy,
        learns=not isinstance(rule, NoLearning),
        sees_gold=rule.sees_gold,
        is_mortal=strategies.build(config.strategy).is_mortal,
        flip_at=None if flip is None else flip.at_flops,
    )


def _tell_health(health: Health, full: int, lifted: float | None) -> None:
    measured, before = health.measured, health.measured.right_before_learning
    right = f"{percent(before)} of questions" if before else "nobody answered"
    if measured.right_after_learning:
        right += f" before a first update, {percent(measured.right_after_learning)} after it"
    solved = sum(share.estimate > 0 for share in measured.families.values())
    families = f"{solved} of {len(measured.families)} are solved, in {measured.rollouts} rollouts"
    print(
        f"\n{'sick' if health.is_sick else 'healthy'} after {health.generations} generations\n"
        f"  right     {right}\n"
        f"  families  {families}\n"
        f"  energy    {measured.earned / 1000:.0f} ATP earned, {measured.spent / 1000:.0f} spent\n"
        f"  lives     {measured.founders} founded, {measured.births} born, "
        f"{measured.bankrupt} bankrupt"
    )
    for finding in health.findings:
        print(
            f"\n{finding.severity}: {finding.name}\n  seen  {finding.seen}\n  mend  {finding.mend}"
        )
    if health.is_sick:
        return
    each = measured.train_flops / max(health.generations, 1)
    print(f"\non to {full} generations, at this pace about {full * each:.2g} useful FLOPs")
    if lifted is not None and full * each > lifted:
        print(f"run.train_flops={lifted:.3g} would have ended it after about {lifted / each:.0f}")


def _is_answered(folder: Path, holdout: str | None, generation: int) -> bool:
    """Whether a file of questions, as it is now, was answered at this age already."""
    from symbiont_ecology.evaluation.evaluation_log import logged
    from symbiont_ecology.evaluation.spec import EvaluationRecord, EvaluationSpec

    asked = EvaluationRecord.of(EvaluationSpec(holdout=holdout))
    return (generation, asked) in ((line.generation, line.asked) for _, line in logged(folder))

"""``calibrate``: a short run, a verdict on its health in words, then the rest of the run if it is
well."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import write_json
from symbiont_ecology.cli.run import (
    Overrides,
    Quiet,
    check_final_holdout,
    evaluate_at_end,
    live,
    tell_next,
    typed,
)
from symbiont_ecology.errors import ConfigError, SickError

if TYPE_CHECKING:
    from symbiont_ecology.analysis.evidence import Design
    from symbiont_ecology.analysis.health import Health
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.run import Finished, GenerationCallback
    from symbiont_ecology.engine.runtime import Host

HEALTH_FILE = "health.json"
OURS = ("run.generations", "run.train_flops")
"""Keys that the options of this command decide."""


def calibrate(
    config: Annotated[str, typer.Argument(help="A preset (symbiont list presets) or a YAML file.")],
    overrides: Overrides = None,
    generations: Annotated[int, typer.Option(min=1, help="Generations of the calibration.")] = 30,
    full: Annotated[int, typer.Option(min=1, help="Generations of the whole run.")] = 50,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; one that exists goes on.",
            show_default="artifacts/<config>-calibrated-<n>",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Calibrate, then go on. Exit code 4 says that the run is sick; typed again, it goes on where
    it was."""
    plan = _plan(config, overrides or (), generations, full, out)
    check_final_holdout(plan.config)
    if not quiet:
        _tell_plan(plan)
    finished = _live(plan, quiet)
    if not quiet:
        tell_next(finished, plan.until(max(full, finished.state.generation)), plan.folder)
    if not _is_answered(plan, finished.state.generation):
        evaluate_at_end(plan.folder)


@dataclass(frozen=True)
class _Plan:
    """What was asked for. ``config`` has no ``run.train_flops``: generations count here."""

    config: RunConfig
    folder: Path
    short: int
    full: int
    lifted: float | None
    again: str

    def until(self, generations: int) -> RunConfig:
        """The config of the run with that end."""
        return _ended(self.config, generations)

    @property
    def lived(self) -> int:
        """Generations up to the last checkpoint."""
        from symbiont_ecology.ecology import state as checkpoint

        if not (self.folder / checkpoint.STATE_FILE).exists():
            return 0
        return checkpoint.load_state(self.folder).generation


def _plan(
    name: str, overrides: Sequence[str], generations: int, full: int, out: Path | None
) -> _Plan:
    from symbiont_ecology.config import load_config
    from symbiont_ecology.engine.build import check

    for override in overrides:
        if (key := override.partition("=")[0].strip()) in OURS:
            raise ConfigError(
                f"{key}: calibrate counts generations, set them with --generations and --full"
            )
    if generations > full:
        raise ConfigError(
            f"--generations: expected at most --full, which is {full}, got {generations}"
        )
    asked = load_config(name, overrides)
    check(asked)
    config = _ended(asked, full)
    folder = out or _folder(Path(name).stem, config)
    if not _can_go_on(folder, config):
        raise ConfigError(f"{folder} holds a run with another config: choose another --out")
    words = ["calibrate", name, *overrides, "--generations", str(generations), "--full", str(full)]
    again = f"{typed()} {shlex.join([*words, '--out', str(folder)])}"
    return _Plan(config, folder, generations, full, asked.run.train_flops, again)


def _ended(config: RunConfig, generations: int) -> RunConfig:
    ends = {"generations": generations, "train_flops": None, "train_tokens": None}
    loop = config.run.model_copy(update=ends)
    return config.model_copy(update={"run": loop})


def _can_go_on(folder: Path, config: RunConfig) -> bool:
    """Whether the folder is free, or holds this very run, however far it came and however often it
    saves."""
    from symbiont_ecology.engine.run import CONFIG_FILE, read_config

    if not (folder / CONFIG_FILE).exists():
        return True
    there = read_config(folder)
    loop = there.run.model_copy(
        update=config.run.model_dump(include={"generations", "checkpoint_every"})
    )
    return there.model_copy(update={"run": loop}) == config


def _folder(name: str, config: RunConfig) -> Path:
    """``artifacts/<name>-calibrated-<n>`` with the first n that is free or holds this very run."""
    number = 1
    while not _can_go_on(folder := Path("artifacts") / f"{name}-calibrated-{number}", config):
        number += 1
    return folder


def _live(plan: _Plan, quiet: bool) -> Finished:
    """The calibration, the verdict and the rest, on one host that is loaded when it is first
    needed."""
    from symbiont_ecology.ecology import state as checkpoint
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.engine.run import Finished

    host = cache(lambda: build_host(plan.config))
    if plan.lived < plan.short:
        _live_until(plan.short, plan, quiet, host)
    health = _examine(plan)
    write_json(plan.folder / HEALTH_FILE, health.record())
    if not quiet:
        _tell_health(health, plan)
    if health.is_sick:
        names = ", ".join(finding.name for finding in health.findings if finding.severity == "sick")
        again = f"{typed()} resume {shlex.quote(str(plan.folder))} run.generations={plan.full}"
        raise SickError(
            f"sick after {health.generations} generations ({names}): mend the config and calibrate again, or "
            f"go on all the same with: {again}"
        )
    if plan.lived < plan.full:
        return _live_until(plan.full, plan, quiet, host)
    return Finished(checkpoint.load_state(plan.folder), True)


def _live_until(generations: int, plan: _Plan, quiet: bool, host: Callable[[], Host]) -> Finished:
    from symbiont_ecology.engine import run as runs

    config, folder = plan.until(generations), plan.folder
    changes = [
        f"run.{key}={getattr(config.run, key)}" for key in ("generations", "checkpoint_every")
    ]

    def begin(watch: GenerationCallback | None, should_stop: Callable[[], bool]) -> Finished:
        """Founds the run, or goes on with it. Who stops in the last generation stops what follows,
        too."""
        if (folder / runs.CONFIG_FILE).exists():
            lived = runs.resume(
                folder, overrides=changes, watch=watch, should_stop=should_stop, host=host()
            )
        else:
            lived = runs.start(config, folder, watch=watch, should_stop=should_stop, host=host())
        return runs.Finished(
            lived.state, lived.is_complete and (generations == plan.full or not should_stop())
        )

    return live(begin, config, folder, quiet, plan.again)


def _examine(plan: _Plan) -> Health:
    """The health of the calibration's generations, however many were lived since."""
    from symbiont_ecology.analysis.health import examine
    from symbiont_ecology.engine.run import EVENTS_FILE
    from symbiont_ecology.events import read_events

    events = read_events(plan.folder / EVENTS_FILE)
    return examine(
        takewhile(lambda event: event.generation < plan.short, events), design_of(plan.config)
    )


def design_of(config: RunConfig) -> Design:
    """What a config means a run to do, as the examination needs to know it."""
    from symbiont_ecology.analysis.evidence import Design
    from symbiont_ecology.learning import learning_rules
    from symbiont_ecology.learning.none import NoLearning
    from symbiont_ecology.strategies import strategies
    from symbiont_ecology.strategies.mechanisms.breeding import Breeding

    strategy, learning_rule = (
        strategies.build(config.strategy),
        learning_rules.build(config.learning_rule),
    )
    flip = config.tasks.flip
    return Design(
        prices=config.economy,
        learns=not isinstance(learning_rule, NoLearning),
        sees_gold=learning_rule.sees_gold,
        is_mortal=strategy.is_mortal,
        breed_at=next(
            (way.at for way in getattr(strategy, "ways", ()) if isinstance(way, Breeding)), None
        ),
        flip_at=None if flip is None else flip.at_flops,
    )


def _tell_plan(plan: _Plan) -> None:
    print(
        f"calibrating for {plan.short} generations, then on to {plan.full} if it is healthy: {plan.folder}"
    )
    if plan.lifted is not None:
        print(f"run.train_flops={plan.lifted:.3g} is lifted: generations count here")


def _tell_health(health: Health, plan: _Plan) -> None:
    seen = health.measured
    before, after = (seen[f"right_{when}_learning"] for when in ("before", "after"))
    right = f"{_percent(before)} of questions" if before else "nobody answered"
    if after:
        right += f" before a first update, {_percent(after)} after it"
    solved = sum(share["estimate"] > 0 for share in seen["families"].values())
    spent = sum(seen[what] for what in ("cost", "rent", "tickets")) / 1000
    print(f"\n{'sick' if health.is_sick else 'healthy'} after {health.generations} generations")
    print(f"  right     {right}")
    if seen["rollouts"]:
        print(
            f"  families  {solved} of {len(seen['families'])} are solved, in {seen['rollouts']} rollouts"
        )
    print(f"  energy    {seen['earned'] / 1000:.0f} ATP earned, {spent:.0f} spent")
    print(
        f"  lives     {seen['founders']} founded, {seen['births']} born, {seen['bankrupt']} bankrupt"
    )
    for finding in health.findings:
        print(
            f"\n{finding.severity}: {finding.name}\n  seen  {finding.seen}\n  mend  {finding.mend}"
        )
    if health.is_sick:
        return
    each = seen["train_flops"] / max(health.generations, 1)
    print(
        f"\non to {plan.full} generations, at this pace about {plan.full * each:.2g} useful FLOPs"
    )
    if plan.lifted is not None and plan.full * each > plan.lifted:
        print(
            f"run.train_flops={plan.lifted:.3g} would have ended it after about {plan.lifted / each:.0f}"
        )


def _percent(share: Mapping[str, float]) -> str:
    estimate, low, high = (100 * share[key] for key in ("estimate", "low", "high"))
    return f"{estimate:.0f} % [{low:.0f}, {high:.0f}]"


def _is_answered(plan: _Plan, generation: int) -> bool:
    """Whether the file of ``run.final_holdout``, as it is now, was answered at this age already."""
    from symbiont_ecology.evaluation import evaluation_log as journal
    from symbiont_ecology.evaluation.spec import EvaluationSpec

    asked = EvaluationSpec(holdout=plan.config.run.final_holdout).record()
    found = ((row["generation"], row["asked"]) for _, row in journal.logged(plan.folder))
    return (generation, json.loads(json.dumps(asked))) in found

"""``calibrate``: the first generations of a run, a verdict on its health, and the rest of it."""

from __future__ import annotations

from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.base.config_layers import config_name
from symbiont_ecology.base.errors import ConfigError, EcologyError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import option
from symbiont_ecology.cli.run import checked_config, finish, folder_for, is_free_for, live

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.extensions.study.health import HealthFinding
    from symbiont_ecology.run.config import RunConfig

HEALTH_FILE = "health.json"


class SickError(EcologyError):
    """A calibration did not pass: its run stands still where the calibration ended."""

    exit_code = 4


def calibrate(
    config: options.ConfigName,
    overrides: options.Overrides = None,
    generations: Annotated[int, option("Generations of the calibration.", least=1)] = 30,
    full: Annotated[int, option("Generations of the whole run.", least=1)] = 50,
    out: options.OutOption = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a few generations, check the health of the run, and go on if it is healthy.

    Exit code 4 means that the run is sick. Typed again, the command goes on where it was.
    """
    console.tell_loading(quiet)
    from symbiont_ecology import Run

    if any(change.startswith(("run.generations", "run.train_")) for change in overrides or ()):
        raise ConfigError("calibrate counts generations: set --generations and --full alone")
    if generations > full:
        raise ConfigError(f"--generations: expected at most --full, {full}, got {generations}")
    run_config = checked_config(config, overrides)
    whole, may_differ = _ended(run_config, full), ("generations", "checkpoint_every")
    folder = folder_for(
        f"{config_name(config)}-calibrated", out, lambda one: is_free_for(one, whole, *may_differ)
    )
    if not quiet:
        print(f"calibrating for {generations} generations, on to {full} if it is healthy: {folder}")
    again = console.typed_again(folder, out)
    run = Run(folder, _ended(run_config, generations))
    live(run, quiet, again)
    if findings := _examine(run, quiet):
        names = ", ".join(finding.name for finding in findings)
        onward = console.command_line("resume", folder, f"run.generations={full}")
        about = f"sick after {generations} generations ({names}): mend the config"
        raise SickError(f"{about} and calibrate again, or go on all the same with: {onward}")
    run.config = _ended(run_config, max(full, run.state.generation))  # on the same host
    live(run, quiet, again)
    finish(run, quiet)


def _ended(config: RunConfig, generations: int) -> RunConfig:
    """Return the config of a run with that end and no other."""
    ends = {"generations": generations, **dict.fromkeys(config.train_budgets)}
    return config.model_copy(update={"run": config.run.model_copy(update=ends)})


def _examine(run: Run, quiet: bool) -> list[HealthFinding]:
    """Write and print the health of the first generations, however many were lived since."""
    from symbiont_ecology.base.event_log import read_events
    from symbiont_ecology.ecology.learning import learning_rules
    from symbiont_ecology.extensions.study.health import Health
    from symbiont_ecology.run.open_run import EVENTS_FILE

    config, events = run.config, read_events(run.folder / EVENTS_FILE)
    health = Health.of(takewhile(lambda one: one.generation < config.run.generations, events))
    sees_gold = learning_rules.build(config.learning_rule).sees_gold
    findings = list(health.findings(sees_gold=sees_gold))
    record = {"schema": 3, "verdict": "sick" if findings else "healthy", **asdict(health)}
    record["findings"] = list(map(asdict, findings))
    console.write_json(run.folder / HEALTH_FILE, record)
    if not quiet:
        about = f"{health.right} right of {health.rollouts} answers, {health.births} born"
        print(f"\n{record['verdict']} after {health.generations} generations: {about}")
        for finding in findings:
            print(f"\nsick: {finding.name}\n  seen  {finding.seen}\n  mend  {finding.mend}")
    return findings

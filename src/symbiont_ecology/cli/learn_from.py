"""``learn-from``: from a log of what users accepted and refused to adapters, and who uses which."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.cli.run import folder_for, is_free_for, live, tell_run_plan

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.tasks.logs import LogRow, LogTasks

LOG_PRESET, LEARNED_FILE, EXPORT = "habitats/log", "report.json", "adapters"
MAX_ASKED, ALL_OF_A_USER = 500, 1 << 20
"""Held-out rows that the report asks about, and more than any user has."""


def learn_from(
    log: Annotated[Path, argument("A table with a row for each reply.", "LOG")],
    overrides: options.Overrides = None,
    host: Annotated[str, option("Folder or name of the model.")] = "embedded",
    passes: Annotated[float, option("How often every row is read.")] = 1.0,
    user: Annotated[str, option("Column that says who asked.", *options.USER)] = "user",
    prompt: Annotated[str, option("Column of the prompts.")] = "prompt",
    reply: Annotated[str, option("Column of the replies.")] = "reply",
    accepted: Annotated[str, option("Column of the verdicts.")] = "accepted",
    family: Annotated[str, option("Column of what a row is about; may be missing.")] = "family",
    out: options.OutOption = None,
    dry_run: options.DryRunOption = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn adapters from a log of accepted and refused replies. The model is not asked again.

    Finds out who wants the same, writes an adapter for each such group, and says how well it does
    on a tenth of the log that it never saw. Ctrl-C is safe: typed again, it goes on.
    """
    console.tell_loading(quiet or dry_run)
    from symbiont_ecology import Run
    from symbiont_ecology.tasks.logs import LOG_COLUMNS, LogTasks

    all_columns = dict(zip(LOG_COLUMNS, (user, prompt, reply, accepted, family), strict=True))
    columns = {name: column for name, column in all_columns.items() if column != name}
    source = LogTasks("log", str(log), columns)
    rows = source.rows()
    families, users = _families(rows), sorted({row.user for row in rows})
    config = _config(source, families, host, passes, overrides or ())
    folder = folder_for("learned", out, lambda place: is_free_for(place, config))
    if not quiet or dry_run:
        share = sum(row.is_accepted for row in rows) / len(rows)
        about = f"users: {len(users)}; families that can be told apart: {len(families) or 1}"
        print(f"{log}: {len(rows)} rows with reply and verdict, {share:.0%} accepted; {about}")
    if dry_run:
        tell_run_plan(config, folder)
        return
    run = Run(folder, config)
    if not run.is_started:
        _check_lengths(run, rows, log)
    live(run, quiet, console.typed_again(folder, out))
    _report(run, len(rows), users)


def _config(
    source: LogTasks, families: Sequence[str], host: str, passes: float, overrides: Sequence[str]
) -> RunConfig:
    """Return the config of the run that learns all rows so many times.

    Raises:
        ConfigError: it does not fit together.
        DataError: no reply was accepted.
    """
    from symbiont_ecology.run.build import check, mixture
    from symbiont_ecology.run.config import compose
    from symbiont_ecology.tasks.logs import LoggedUsers

    if not 0 < passes < math.inf:
        raise ConfigError(f"--passes: expected a number above 0, got {passes:g}")
    if "${" in "".join((source.path, *source.columns.values(), host)):
        raise ConfigError("learn-from: '${' in a path or column cannot be written in a config")
    knobs = {"kind": "log", "name": source.name, "path": source.path, "columns": source.columns}
    sources = [
        {**knobs, "name": _slug(family, number), "only": family}
        for number, family in enumerate(families, 1)
    ] or [knobs]
    about = f"learn-from {source.path}"
    values: dict[str, object] = {"host": {"model": host}, "tasks": {"families": sources}}
    config = compose((LOG_PRESET, values), overrides, about)
    check(config)
    if not any(change.startswith("run.generations=") for change in overrides):
        users = mixture(config).users
        assert isinstance(users, LoggedUsers)
        generations = math.ceil(passes * len(users.rows) / users.config.questions)
        values["run"] = {"generations": generations}
        config = compose((LOG_PRESET, values), overrides, about)
    return config


def _families(rows: Sequence[LogRow]) -> list[str]:
    """Return the families of which something can be learned; none if they are of no use, or a
    config cannot hold their names."""
    from symbiont_ecology.tasks.logs import MAX_FAMILIES, is_held_out

    candidates = (row for row in rows if row.is_accepted and not is_held_out(row.prompt))
    families = sorted({row.family for row in candidates})
    can_be_written = all(family.isprintable() and "${" not in family for family in families)
    return families if can_be_written and 1 < len(families) <= MAX_FAMILIES else []


def _slug(family: str, number: int) -> str:
    """Return a name of a task that no other has, since it begins with the family's number."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", family).strip("-.")[:48]
    return f"log{number}.{word}" if word else f"log{number}"


def _check_lengths(run: Run, rows: Sequence[LogRow], log: Path) -> None:
    """Refuse a row that the model cannot read, before anything is learned.

    Raises:
        DataError: there is one; the message names it.
    """
    longest = run.host.shape.max_positions
    texts = run.host.encode([f"{row.prompt}{row.reply}" for row in rows])
    for row, tokens in zip(rows, texts, strict=True):
        if len(tokens) > longest:
            found = f"expected at most {longest} tokens, got {len(tokens)}"
            raise DataError(f"log {log} row {row.place}: {found}: shorten it, or leave it out")


def _report(run: Run, row_count: int, users: Sequence[str]) -> None:
    """Write the adapters, and what they make of accepted replies that were held out of the log;
    print who uses which."""
    import pandas as pd

    from symbiont_ecology.base.types import Decoding
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.evaluate.export import export_run
    from symbiont_ecology.evaluate.items import some_of
    from symbiont_ecology.run.act import Question, roll_out

    target, loaded, pool = run.folder / EXPORT, run.loaded, run.loaded.pool
    export_run(run, target)
    held_out = loaded.items(ALL_OF_A_USER, ("users",))
    items = some_of([i for i in held_out if pool.server(i.user) != HOST], MAX_ASKED)
    columns = dict[str, list[float]]()
    with console.asking() as progress:
        for routing, suffix in {"user": "", "host": "_by_host"}.items():
            written = loaded.evaluate(items, run.host, routing, progress=progress)
            questions = [Question(one.item.to_read, one.organelle_id) for one in written.rollouts]
            read, _ = roll_out(questions, run.host, pool.weights.__getitem__, Decoding())
            columns[f"written{suffix}"] = written.verdicts
            columns[f"nats_per_token{suffix}"] = [rollout.confidence for rollout in read]
    servers = [pool.server(item.user) for item in items]
    frame = pd.DataFrame(columns, index=servers)
    means = frame.groupby(level=0).mean()
    means.loc["all"] = frame.mean()
    serving = dict(sorted(run.state.served.items()))
    unserved = sorted({*users}.difference(*serving.values()))
    print("\naccepted replies that were held out: share written exactly so, log-probability")
    print(means.round(2).to_string())
    for name, served in {**serving, "nobody": unserved}.items():
        print(f"{name} serves {len(served)} users: {', '.join(served):.60}")
    figures = {str(name): dict(row.dropna()) for name, row in means.iterrows()}
    adapters = {
        name: {"users": served, "held_out": servers.count(name), **figures.get(name, {})}
        for name, served in serving.items()
    }
    report = {"schema": 2, "rows": row_count, "adapters": adapters, "all": figures["all"]}
    console.write_json(run.folder / LEARNED_FILE, {**report, "unserved": unserved})
    print(f"adapters: {target}, report: {run.folder / LEARNED_FILE}")
    for served in list(serving.values())[:1]:
        words = ("infer", run.folder, "PROMPT", "--user", served[0])
        print(f"next:     {console.command_line(*words)}")

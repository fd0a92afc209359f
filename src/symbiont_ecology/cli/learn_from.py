"""``learn-from``: from a log of what users accepted and refused to adapters, and who uses which."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.cli import console
from symbiont_ecology.cli.options import USER, DryRunOption, RunOptions, argument, option
from symbiont_ecology.cli.run import folder_for, is_free_for, live_unless_complete, tell_run_plan

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.tasks.logs import LogRow, LogTasks

LOG_PRESET, LEARNED_FILE, EXPORT = "habitats/log", "report.json", "adapters"
MAX_SHOWN = 4
"""Users that a line names."""
MAX_ASKED = 500
"""Held-out rows that the report asks about."""


def learn_from(
    log: Annotated[Path, argument("A table with a row for each reply.", "LOG")],
    how: RunOptions,
    host: Annotated[str, option("Folder or name of the model.")] = "embedded",
    passes: Annotated[float, option("How often every row is read.")] = 1.0,
    habitat: Annotated[str, option("Column that says who asked.", *USER)] = "habitat",
    prompt: Annotated[str, option("Column of the prompts.")] = "prompt",
    reply: Annotated[str, option("Column of the replies.")] = "reply",
    accepted: Annotated[str, option("Column of the verdicts.")] = "accepted",
    family: Annotated[str, option("Column of what a row is about; may be missing.")] = "family",
    dry_run: DryRunOption = False,
) -> None:
    """Learn adapters from a log of accepted and refused replies. The model is not asked again.

    Finds out who wants the same, writes an adapter for each such group, and says how well it does
    on a tenth of the log that it never saw. Ctrl-C is safe: typed again, it goes on.
    """
    console.tell_loading(how.quiet or dry_run)
    from symbiont_ecology import Run
    from symbiont_ecology.tasks.logs import LOG_COLUMNS, LogTasks

    all_columns = dict(zip(LOG_COLUMNS, (habitat, prompt, reply, accepted, family), strict=True))
    columns = {name: column for name, column in all_columns.items() if column != name}
    source = LogTasks("log", str(log), columns)
    rows = source.rows()
    families = _families(rows)
    config = _config(source, families, host, passes, how.changes)
    folder = folder_for("learned", how.out, lambda place: is_free_for(place, config))
    if not how.quiet or dry_run:
        _tell_log(source, rows, families)
    if dry_run:
        tell_run_plan(config, folder)
        return
    run = Run(folder, config)
    if not run.is_started:
        _check_lengths(run, log)
    live_unless_complete(run, how.quiet, console.typed_again(folder, how.out))
    _report(run, rows)


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
    from symbiont_ecology.tasks.logs import LoggedHabitats

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
        habitats = mixture(config).habitats
        assert isinstance(habitats, LoggedHabitats)
        generations = math.ceil(passes * habitats.length / habitats.config.questions)
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


def _tell_log(source: LogTasks, rows: Sequence[LogRow], families: Sequence[str]) -> None:
    accepted, users = sum(row.is_accepted for row in rows), {row.habitat for row in rows}
    words = {row.family for row in rows}
    about = f", {accepted / len(rows):.0%} accepted; users: {len(users)}"
    about += f"; families: {len(families)}" if families else ""
    print(f"{source.path}: {len(rows)} rows{about}")
    if len(words) > 1 and not families:
        print(f"warning: {len(words)} words for families are of no use here: they are left out")


def _check_lengths(run: Run, log: Path) -> None:
    """Refuse a row that the model cannot read, before anything is learned.

    Raises:
        DataError: there is one; the message names it.
    """
    from symbiont_ecology.run.build import mixture
    from symbiont_ecology.tasks.logs import DEPTH, LogTask

    longest = run.host.shape.max_positions
    for task in mixture(run.config).tasks:
        assert isinstance(task, LogTask)
        prompts = run.host.encode([task.prompt(row.question) for row in task.log])
        replies = run.host.encode_answers([row.reply for row in task.log])
        for row, prompt, reply in zip(task.log, prompts, replies, strict=True):
            limit = task.item(row.question, DEPTH).reply_limit
            if len(prompt) + max(len(reply), limit) > longest:
                raise DataError(
                    f"log {log} row {row.place}: expected at most {longest} tokens for prompt and "
                    f"reply, got {len(prompt)} and {len(reply)}, or {limit} for a new reply: "
                    "shorten the row, or leave it out"
                )


def _report(run: Run, rows: Sequence[LogRow]) -> None:
    """Write the adapters and the report, and print who uses which."""
    from symbiont_ecology.evaluate.adapter_comparison import held_out
    from symbiont_ecology.evaluate.export import HABITATS_FILE, export_run

    target = run.folder / EXPORT
    export_run(run, target)
    with console.asking() as progress:
        unseen = held_out(run.loaded, run.host, MAX_ASKED, progress)
    answered = Counter(row.habitat for row in rows)
    summary = console.table(
        *("adapter", "users", "rows", "writes it", "model writes it", "likelihood", "by model"),
        title="\naccepted replies that were held out",
    )
    adapters: dict[str, object] = {}
    serving = {name: one.habitats for name, one in sorted(run.population.items()) if one.habitats}
    answered_by = [rollout.organelle_id for rollout in unseen.adapter.rollouts]
    for name, users in serving.items():
        part = unseen.part([place for place, one in enumerate(answered_by) if one == name])
        summary.add_row(name, *_cells(part, users, answered))
        adapters[name] = {"habitats": users, **_figures(part)}
    served = [user for users in serving.values() for user in users]
    summary.add_row("all", *_cells(unseen, served, answered), style="bold")
    console.print_table(summary)
    print("likelihood: of a token of the reply, on average (geometric mean)\n")
    for name, users in serving.items():
        print(f"{name} serves {_names(users)}")
    if unserved := sorted(set(answered) - set(served)):
        print(f"nobody serves {_names(unserved)}")
    report = {"schema": 1, "rows": len(rows), "adapters": adapters, "all": _figures(unseen)}
    console.write_json(run.folder / LEARNED_FILE, {**report, "unserved": unserved})
    print(f"\nadapters:         {target}\nwho uses which:   {target / HABITATS_FILE}")
    print(f"report:           {run.folder / LEARNED_FILE}")
    if served:
        words = ("infer", run.folder, "PROMPT", "--habitat", served[0])
        print(f"next:             {console.command_line(*words)}")


def _names(habitats: Sequence[str]) -> str:
    text = ", ".join(habitats[:MAX_SHOWN])
    rest = len(habitats) - MAX_SHOWN
    return f"{text} and {rest} more" if rest > 0 else text


def _cells(part: AdapterComparison, habitats: Sequence[str], answered: Counter[str]) -> list[str]:
    users, rows = str(len(habitats)), str(sum(answered[name] for name in habitats))
    if not part.nats:
        return [users, rows, "–", "–", "–", "–"]
    likelihood = [f"{math.exp(fmean(nats)):.2f}" for nats in (part.nats, part.host_nats)]
    writes = [f"{evaluation.accuracy().estimate:.0%}" for evaluation in (part.adapter, part.host)]
    return [users, rows, *writes, *likelihood]


def _figures(part: AdapterComparison) -> dict[str, object]:
    """Return held-out replies in numbers: share written exactly so, and nats per token."""
    if not part.nats:
        return {"held_out": 0}
    return {
        "held_out": len(part.nats),
        "written": asdict(part.adapter.accuracy()),
        "written_by_host": asdict(part.host.accuracy()),
        "nats_per_token": fmean(part.nats),
        "nats_per_token_of_host": fmean(part.host_nats),
    }

"""``learn-from``: from a log of what users accepted and refused to adapters, and who uses which."""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import without_turns
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.cli.run import (
    folder_for,
    is_free_for,
    lengths_of,
    live,
    reader_of,
    tell_assumed,
    tell_run_plan,
)

if TYPE_CHECKING:
    import numpy as np

    from symbiont_ecology.extensions.company.grouping import Group
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.tasks.log_rows import LogRow, LogTable

TooLong = Literal["aside", "cut"]
LOG_PRESET, LOG_FILE, CONTROLS = "habitats/log", "log.jsonl", "controls"
"""In the folder of the run: the rows that are learned, a log in its plain form; and the runs of the
controls."""
GROUPED = {"group": "group"}
MAX_SLOTS = 24
"""Adapters in memory at once."""
MAX_SHOWN = 20
"""Numbers of rows in a line."""


def learn_from(
    log: Annotated[Path, argument("A table with a row for each reply.", "LOG")],
    overrides: options.Overrides = None,
    host: Annotated[str, option("Preset, folder or name of the model.")] = "embedded",
    passes: Annotated[float, option("How often every row is read.")] = 3.0,
    user: Annotated[str | None, option("Column that says who asked.", *options.USER)] = None,
    prompt: Annotated[str | None, option("Column of the prompts.")] = None,
    reply: Annotated[str | None, option("Column of the replies.")] = None,
    accepted: Annotated[str | None, option("Column of the verdicts.")] = None,
    accepted_from: Annotated[float | None, option("Least number that means accepted.")] = None,
    accepted_as: Annotated[str, option("Words that mean accepted, such as up,ja.")] = "",
    family: Annotated[str | None, option("Column of what a row is about.")] = None,
    time: Annotated[str | None, option("Column of the moment.")] = None,
    correction: Annotated[str | None, option("Column of replies that were wanted.")] = None,
    too_long: Annotated[TooLong, option("Too long rows: set aside, or cut.")] = "aside",
    out: options.OutOption = None,
    dry_run: options.DryRunOption = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn adapters from a log of accepted and refused replies, and say if they are of use.

    Finds out who wants the same, learns an adapter for each such group, and compares them with one
    for all, one for each user and groups by chance, on the newest fifth of the log, which nobody
    learns from. Columns are found by their usual names; the others are named. Ctrl-C is safe: typed
    again, it goes on.
    """
    console.tell_loading(quiet or dry_run)
    from symbiont_ecology import Run
    from symbiont_ecology.base.config_layers import has_host_preset
    from symbiont_ecology.extensions.company.grouping import group_users
    from symbiont_ecology.extensions.company.measures import ARMS, OURS, arms_of
    from symbiont_ecology.extensions.company.report import write_report
    from symbiont_ecology.model.locating import find_folder, local_folder
    from symbiont_ecology.run.build import check
    from symbiont_ecology.run.config import proposed_changes
    from symbiont_ecology.tasks.log_rows import Verdicts, as_lines, read_log
    from symbiont_ecology.tasks.logs import held_out

    roles = "user", "prompt", "reply", "accepted", "family", "time", "correction"
    named = zip(roles, (user, prompt, reply, accepted, family, time, correction), strict=True)
    columns = {role: column for role, column in named if column}
    table = _read(log, columns, accepted_from, accepted_as)
    plan = partial(_config, overrides=overrides or (), about=log, host=host, passes=passes)
    with _draft(table.rows) as draft:
        check(config := plan(table.rows, draft))
        if not has_host_preset(model := config.host.model):
            place = local_folder(model) if dry_run else find_folder(model)
            proposed = proposed_changes(place) if place else []
            plan = partial(plan, overrides=[*proposed, *(overrides or ())])
            check(config := plan(table.rows, draft))
        rows, long_rows = _fitting(table.rows, config, too_long == "cut", not dry_run)
    if not quiet or dry_run:
        _tell_table(log, table, rows, long_rows)
        tell_assumed(config, overrides or ())
    kept = as_lines(rows)

    def can_go_on(place: Path) -> bool:
        if not (place / LOG_FILE).exists():
            return is_free_for(place, plan(rows, place / LOG_FILE))
        log_there = read_log(place / LOG_FILE, str(place), GROUPED, Verdicts()).rows
        is_same = as_lines(replace(row, group="") for row in log_there) == kept
        return is_same and is_free_for(place, plan(log_there, place / LOG_FILE))

    folder = folder_for("learned", out, can_go_on)
    if dry_run:
        with _draft(rows) as draft:
            tell_run_plan(plan(rows, draft), folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not quiet:
        print(f"loading the host {config.host.model} …", file=sys.stderr)
    kernel = Run(folder, plan(rows, folder / LOG_FILE)).kernel
    kept_back = held_out(rows)
    learned = [row for row in rows if row.question not in kept_back]
    groups = group_users(learned, config.seed, _sketcher(kernel))
    if not quiet:
        _tell_groups(groups)
    arms, again = arms_of(groups, config.seed), console.typed_again(folder, out)
    runs = dict[str, Run]()
    for name, group_of in arms.items():
        place = folder if name == OURS else folder / CONTROLS / name
        if not quiet:
            print(f"{name}: {ARMS[name]}", file=sys.stderr)
        place.mkdir(parents=True, exist_ok=True)
        grouped = [replace(row, group=group_of[row.user]) for row in rows]
        write_whole(place / LOG_FILE, as_lines(grouped))
        runs[name] = Run(place, plan(grouped, place / LOG_FILE), kernel)
        live(runs[name], quiet, again)
    write_report(runs, groups, kernel)


def _read(
    log: Path, columns: Mapping[str, str], accepted_from: float | None, accepted_as: str
) -> LogTable:
    """Return what a log says.

    Raises:
        ConfigError: what counts as accepted is told twice.
        DataError: the log cannot be read, or no reply was accepted.
    """
    from symbiont_ecology.tasks import task_sources
    from symbiont_ecology.tasks.logs import LogTasks

    knobs = {"name": "log", "path": str(log), "columns": columns, "accepted_from": accepted_from}
    words = accepted_as.split(",") if accepted_as else []
    source = task_sources.build({"kind": "log", **knobs, "accepted_as": words})
    assert isinstance(source, LogTasks)
    table = source.table()
    if not any(row.is_accepted for row in table.rows):
        raise DataError(
            f"log {log}: none of {len(table.rows)} replies counts as accepted, so nothing can be "
            f"learned: look at the column {table.columns['accepted']!r}, --accepted-as, "
            "--accepted-from"
        )
    return table


@contextmanager
def _draft(rows: Sequence[LogRow]) -> Iterator[Path]:
    """Write rows into a file that is gone afterwards: a config names a file."""
    from symbiont_ecology.tasks.log_rows import as_lines

    with TemporaryDirectory() as folder:
        path = Path(folder) / LOG_FILE
        path.write_text(as_lines(rows), encoding="utf-8")
        yield path


def _config(
    rows: Sequence[LogRow],
    path: Path,
    *,
    overrides: Sequence[str],
    about: Path,
    host: str,
    passes: float,
) -> RunConfig:
    """Return the config of the run that learns all rows, which are in a file, so many times.

    Raises:
        ConfigError: it does not fit together.
    """
    from symbiont_ecology.base.config_layers import with_known_keys
    from symbiont_ecology.base.registry import MAX_RANK, kind_of
    from symbiont_ecology.run.config import compose
    from symbiont_ecology.tasks.logs import held_out

    if not 0 < passes < math.inf:
        raise ConfigError(f"--passes: expected a number above 0, got {passes:g}")
    if "${" in f"{path}{host}":
        raise ConfigError("learn-from: '${' in a path cannot be written in a config")
    users, groups = ({getattr(row, name) for row in rows} for name in ("user", "group"))
    is_grouped = "" not in groups
    columns = {"columns": GROUPED} if is_grouped else {}
    source = {"kind": "log", "name": "log", "path": str(path), **columns}
    sources = [
        {**source, "name": _slug(family, number), "only": family}
        for number, family in enumerate(_families(rows), 1)
    ] or [source]
    where = f"learn-from {about}"
    room = {"capacity": len(groups), "ranks": len(groups) * MAX_RANK}
    slots = f"host.slots={min(len(users), MAX_SLOTS)}"
    overrides = [slots, *(f"strategy.{key}={n}" for key, n in room.items()), *overrides]
    values = with_known_keys({"host": host, "tasks": {"families": sources}}, where)
    config = compose((LOG_PRESET, values), overrides, where)
    is_said = any(change.startswith("tasks.style") for change in overrides)
    if kind_of(config.tasks.style) == "few_shot" and not is_said:
        # The way to ask a base model, by its preset; here it would tell users what others want.
        overrides = [*overrides, "tasks.style=terse"]
        config = compose((LOG_PRESET, values), overrides, where)
    if any(change.startswith("run.generations=") for change in overrides) or not config.tasks.users:
        return config
    kept_back = held_out(rows)
    learned = sum(row.question not in kept_back for row in rows)
    values["run"] = {"generations": math.ceil(passes * learned / config.tasks.users.questions)}
    return compose((LOG_PRESET, values), overrides, where)


def _tell_table(
    log: Path, table: LogTable, rows: Sequence[LogRow], long_rows: Mapping[str, Sequence[int]]
) -> None:
    """Print what was read of a table, what was set aside, and what is odd."""
    share = sum(row.is_accepted for row in rows) / len(rows)
    users, families = len({row.user for row in rows}), len(_families(rows)) or 1
    about = f"users: {users}; families that can be told apart: {families}"
    print(f"{log}: {len(rows)} rows with reply and verdict, {share:.0%} accepted; {about}")
    print(f"columns: {', '.join(f'{role} = {name}' for role, name in table.columns.items())}")
    reasons = {f"set aside, {why}": places for why, places in table.aside.items()}
    for what, places in {**reasons, **long_rows}.items():
        if places:
            count, numbers = len(places), ", ".join(map(str, places[:MAX_SHOWN]))
            more = f", … ({count - MAX_SHOWN} more)" if count > MAX_SHOWN else ""
            rows_of = "row" if count == 1 else "rows"
            print(f"{count} {rows_of} {what}: {table.unit} {numbers}{more}")
    for line in table.told:
        print(f"note: {line}")


def _fitting(
    rows: Sequence[LogRow], config: RunConfig, is_cut: bool, may_fetch: bool
) -> tuple[Sequence[LogRow], dict[str, list[int]]]:
    """Return the rows that the host can read, and the places of those that are too long for it, by
    what became of them: set aside, or ``is_cut`` at the beginning of their prompts, if that is
    enough. Nothing is known of a host that is not here, unless it ``may_fetch`` it.

    Raises:
        DataError: no row fits.
        HostError: the host is not here, or its tokenizer cannot be read.
    """
    from symbiont_ecology.base.types import last_turn
    from symbiont_ecology.tasks.logs import LogTask
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    if (reader := reader_of(config, may_fetch=may_fetch)) is None:
        return rows, {}
    (codec, most), style = reader, prompt_styles.build(config.tasks.style)

    def too_long(some: Sequence[LogRow]) -> list[bool]:
        task = LogTask.of("log", "log", some).in_style(style)
        return [size > most for size in lengths_of(task, codec)]

    are_long = too_long(rows)
    fitting = [row for row, is_long in zip(rows, are_long, strict=True) if not is_long]
    long_rows = [row for row, is_long in zip(rows, are_long, strict=True) if is_long]
    done = defaultdict[str, list[int]](list)
    for row in long_rows:
        text = last_turn(row.prompt) if is_cut else ""
        while text and too_long([shorter := replace(row, prompt=text)])[0]:
            text = text[len(text) // 8 + 1 :]
        fitting += [shorter] if text else []
        what = "prompts cut at their beginning" if text else "set aside"
        done[f"too long for the model, {what}"].append(row.place)
    if not fitting:
        raise DataError(f"log: expected rows of at most {most} tokens, all are longer")
    return sorted(fitting, key=lambda row: row.place), done


def _families(rows: Sequence[LogRow]) -> list[str]:
    """Return the families of which something can be learned; none if they are of no use, or a
    config cannot hold their names."""
    from symbiont_ecology.tasks.logs import MAX_FAMILIES, held_out

    kept_back = held_out(rows)
    candidates = (row for row in rows if row.is_accepted and row.question not in kept_back)
    families = sorted({row.family for row in candidates})
    can_be_written = all(family.isprintable() and "${" not in family for family in families)
    return families if can_be_written and 1 < len(families) <= MAX_FAMILIES else []


def _slug(family: str, number: int) -> str:
    """Return a name of a task that no other has, since it begins with the family's number."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", family).strip("-.")[:48]
    return f"log{number}.{word}" if word else f"log{number}"


def _sketcher(kernel: HostKernel) -> Callable[[Sequence[LogRow]], np.ndarray] | None:
    """Return what sketches replies to rows; None on large hosts, where it takes long, and replies
    are texts whose words tell enough."""
    if kernel.shape.is_large:
        return None

    def sketches(rows: Sequence[LogRow]) -> np.ndarray:
        answers = kernel.encode_answers([row.reply for row in rows])
        return kernel.sketch([without_turns(row.prompt) for row in rows], answers)

    return sketches


def _tell_groups(groups: Sequence[Group]) -> None:
    """Print which groups were found."""
    for group in groups:
        names = ", ".join(group.users)
        print(f"{group.name}: {len(group.users)} users, {group.in_words()}; {names:.60}")

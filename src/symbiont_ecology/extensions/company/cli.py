"""``learn-from``: from a log of what users accepted and refused to adapters, and a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from symbiont_ecology.base.files import write_whole
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.cli.run import folder_for, is_free_for, live, tell_assumed, tell_run_plan

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.extensions.company.grouping import Group
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.tasks.log_rows import LogRow, LogTable

TooLong = Literal["aside", "cut"]
CONTROLS, REPORT, EXPORT = "controls", "report", "adapters"
"""In the folder of the run: the runs of the controls, the report, and adapters as PEFT folders."""
MAX_SHOWN = 20
"""Numbers of rows, or users, in a line."""


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
    from symbiont_ecology.base.config_layers import has_host_preset
    from symbiont_ecology.extensions.company.plan import config_of, draft, fitting, read_table
    from symbiont_ecology.model.locating import find_folder, local_folder
    from symbiont_ecology.run.build import check
    from symbiont_ecology.run.config import proposed_changes

    roles = "user", "prompt", "reply", "accepted", "family", "time", "correction"
    named = zip(roles, (user, prompt, reply, accepted, family, time, correction), strict=True)
    columns = {role: column for role, column in named if column}
    table = read_table(log, columns, accepted_from, accepted_as)
    plan = partial(config_of, overrides=overrides or (), about=log, host=host, passes=passes)
    with draft(table.rows) as path:
        check(config := plan(table.rows, path))
        if not has_host_preset(model := config.host.model):
            place = local_folder(model) if dry_run else find_folder(model)
            proposed = proposed_changes(place) if place else []
            plan = partial(plan, overrides=[*proposed, *(overrides or ())])
            check(config := plan(table.rows, path))
        rows, long_rows = fitting(table.rows, config, too_long == "cut", not dry_run)
    if not quiet or dry_run:
        _tell_table(log, table, rows, long_rows)
        tell_assumed(config, overrides or ())
    folder = folder_for("learned", out, partial(_can_go_on, rows=rows, plan=plan))
    if dry_run:
        with draft(rows) as path:
            tell_run_plan(plan(rows, path), folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    runs, groups = _learned(rows, folder, plan, quiet, console.typed_again(folder, out))
    _report(runs, groups)


Plan = Callable[["Sequence[LogRow]", Path], "RunConfig"]
"""Returns the config of the run that learns rows, which are in a file."""


def _can_go_on(place: Path, *, rows: Sequence[LogRow], plan: Plan) -> bool:
    """Return True if a folder holds nothing, or the same rows and the same plan."""
    from symbiont_ecology.extensions.company.plan import GROUPED, LOG_FILE
    from symbiont_ecology.tasks.log_rows import Verdicts, as_lines, read_log

    if not (place / LOG_FILE).exists():
        return is_free_for(place, plan(rows, place / LOG_FILE))
    kept = read_log(place / LOG_FILE, str(place), GROUPED, Verdicts()).rows
    plain = (replace(row, group="") for row in kept if not row.learner)
    are_same = as_lines(plain) == as_lines(rows)
    return are_same and is_free_for(place, plan(kept, place / LOG_FILE))


def _learned(
    rows: Sequence[LogRow], folder: Path, plan: Plan, quiet: bool, again: str
) -> tuple[dict[str, Run], list[Group]]:
    """Group the users, live the run of each arm, and return both; ``again`` is what to type after
    an interruption."""
    from symbiont_ecology import Run
    from symbiont_ecology.extensions.company.grouping import group_users
    from symbiont_ecology.extensions.company.measures import ARMS, OURS, arms_of
    from symbiont_ecology.extensions.company.plan import LOG_FILE, draft, sketcher_of
    from symbiont_ecology.tasks.log_rows import as_lines
    from symbiont_ecology.tasks.logs import held_out

    def tell(news: str) -> None:
        if not quiet:
            print(news, file=sys.stderr, flush=True)

    with draft(rows) as path:
        config = plan(rows, path)
    tell(f"loading the host {config.host.model} …")
    kernel, kept_back = Run(folder, config).kernel, held_out(rows)
    learned = [one for row in rows if row.question not in kept_back for one in row.lessons]
    tell(f"grouping users by {len(learned)} verdicts …")
    users = {row.user for row in rows}
    sketcher = sketcher_of(kernel)
    grouping = group_users(learned, config.seed, users, sketcher)
    for group in grouping.groups:
        tell(f"{_titled(group)}; {', '.join(group.users):.60}")
    runs = dict[str, Run]()
    for name, groups in arms_of(grouping, config.seed).items():
        place = folder if name == OURS else folder / CONTROLS / name
        tell(f"learning: {ARMS[name]}")
        place.mkdir(parents=True, exist_ok=True)
        group_of = {user: group.name for group in groups for user in group.chances}
        grouped = [replace(row, group=group_of[row.user]) for row in rows]
        if sketcher is None:  # words tell enough to know what other groups' replies are worth
            grouped += [lesson for group in groups for lesson in group.lessons(learned)]
        write_whole(place / LOG_FILE, as_lines(grouped))
        own = plan(grouped, place / LOG_FILE)
        if name != OURS:  # all arms may take as much
            length = runs[OURS].config.run.generations
            own = own.model_copy(update={"run": own.run.model_copy(update={"generations": length})})
        runs[name] = Run(place, own, kernel)
        live(runs[name], quiet, again)
    tell("measuring …")
    return runs, grouping.groups


def _titled(group: Group) -> str:
    return f"{group.name}: {len(group.users)} users, {group.in_words()}"


def _report(runs: Mapping[str, Run], groups: Sequence[Group]) -> None:
    """Write the adapters and the report into the folder of the run, and print its core."""
    from symbiont_ecology.evaluate.export import export_run
    from symbiont_ecology.extensions.company.measures import OURS
    from symbiont_ecology.extensions.company.report import measured, page

    run, command = runs[OURS], console.command_line
    export_run(run, run.folder / EXPORT)
    report = measured(runs, groups, run.kernel)
    console.write_json(run.folder / f"{REPORT}.json", report)
    for suffix in ("md", "html"):
        write_whole(run.folder / f"{REPORT}.{suffix}", page(report, suffix))
    _tell_report(report)
    print(f"adapters: {run.folder / EXPORT}; report: {run.folder / REPORT}.html, .md and .json")
    print(f"next:     {command('infer', run.folder, 'PROMPT', '--user', groups[0].users[0])}")
    print(f"          {command('serve', run.folder)}")


def _tell_report(report: Mapping[str, Any]) -> None:
    from symbiont_ecology.extensions.company.measures import ARMS, BARE, OURS
    from symbiont_ecology.extensions.company.report import worded

    auc, above = report["auc"], report["ours_above"]
    columns = "who has an adapter", "AUC", "ours is above it by", "pairs"
    title = "\naccepted above refused replies, on rows that nobody learned from"
    table = console.table(*columns, title=title)
    for name in (OURS, *(other for other in above if other != BARE), BARE):
        label = ARMS.get(name, "nobody: the model as it is")
        table.add_row(label, worded(auc[name]), worded(above.get(name)), str(auc[name]["n"]))
    console.print_table(table)
    if report["uncertain"]:
        some = ", ".join(report["uncertain"][:MAX_SHOWN])
        print(f"uncertain, {len(report['uncertain'])} of {report['users']} users: {some}")
    gain = worded(report["gain"])
    print(f"new replies, as the judges expect: {gain} more accepted than of the model as it is")
    print(f"use the adapters? {report['advice']}: {report['why']}")


def _tell_table(
    log: Path, table: LogTable, rows: Sequence[LogRow], long_rows: Mapping[str, Sequence[int]]
) -> None:
    """Print what was read of a table, what was set aside, and what is odd."""
    from symbiont_ecology.extensions.company.plan import families_of

    share = sum(row.is_accepted for row in rows) / len(rows)
    users, families = len({row.user for row in rows}), len(families_of(rows)) or 1
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

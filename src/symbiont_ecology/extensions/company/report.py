"""The report of ``learn-from``: what was found, if it is of use, and how surely.

It is written as JSON, Markdown and HTML, and its core is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.transcripts import escaped
from symbiont_ecology.base.types import Item
from symbiont_ecology.cli import console
from symbiont_ecology.evaluate.export import export_run
from symbiont_ecology.extensions.company.grouping import ENOUGH_ACCEPTED, SURE, Group
from symbiont_ecology.extensions.company.measures import (
    ARMS,
    BARE,
    OURS,
    QUESTIONS,
    as_record,
    decided,
    mean,
    new_replies,
    pairs_of,
    scores_of,
    share,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.run import Run
from symbiont_ecology.tasks.logs import LoggedUsers

REPORT, EXPORT = "report", "adapters"
SCHEMA = 3
SHOWN = 3
"""New replies of a group that pages show."""
MAX_NAMES = 20
"""Users that a line names."""


def write_report(runs: Mapping[str, Run], groups: Sequence[Group], kernel: HostKernel) -> None:
    """Measure all arms, write adapters and report into the folder of the run, and print its core.
    ``runs`` are those of the arms by name, ours first."""
    run = runs[OURS]
    export_run(run, run.folder / EXPORT)
    report = measured(runs, groups, kernel)
    console.write_json(run.folder / f"{REPORT}.json", report)
    for suffix in ("md", "html"):
        write_whole(run.folder / f"{REPORT}.{suffix}", page(report, suffix))
    tell(report)
    print(f"adapters: {run.folder / EXPORT}, report: {run.folder / REPORT}.html, .md and .json")
    words = ("infer", run.folder, "PROMPT", "--user", groups[0].users[0])
    print(f"next:     {console.command_line(*words)}")
    print(f"          {console.command_line('serve', run.folder)}")


def measured(
    runs: Mapping[str, Run], groups: Sequence[Group], kernel: HostKernel
) -> dict[str, Any]:
    """Return the report as plain values."""
    run = runs[OURS]
    world = run.loaded.tasks.users
    assert isinstance(world, LoggedUsers)
    items, learned = world.held_out, world.rows
    bare = scores_of(kernel, None, items)
    pairs = {
        name: pairs_of(items, scores_of(kernel, one, items) - bare) for name, one in runs.items()
    }
    pairs[BARE] = pairs_of(items, bare)
    judged = {user: group for group in groups for user in group.users}
    said = [item.logged.text for item in items if item.logged]
    expected = [
        judged[item.user].chances_of([text])[0] for item, text in zip(items, said, strict=True)
    ]
    pairs["judge"] = pairs_of(items, np.array(expected))
    replies = {
        group.name: new_replies(kernel, run, group, _questions(items or learned, group))
        for group in groups
    }
    every = [reply for own in replies.values() for reply in own]
    above_bare = share(pairs[OURS], pairs[BARE])
    gain = mean([reply.adapted_chance - reply.bare_chance for reply in every])
    advice, why = decided(above_bare, gain)
    accepted = Counter(item.user for item in learned if item.logged and item.logged.is_accepted)
    return {
        "schema": SCHEMA,
        "run": str(run.folder),
        "host": run.config.host.model,
        "rows": {"learned": len(learned), "held_out": len(items)},
        "users": len(judged),
        "advice": advice,
        "why": why,
        "gain": as_record(gain),
        "auc": {name: as_record(share(own)) for name, own in pairs.items()},
        "ours_above": {
            name: as_record(share(pairs[OURS], own))
            for name, own in pairs.items()
            if name not in (OURS, "judge")
        },
        "groups": [
            {
                "name": group.name,
                "adapter": run.state.users[group.users[0]].chosen,
                "likes": group.in_words(),
                "accepted": group.accepted,
                "rate": round(group.rate, 3),
                "users": {
                    user: {"chance": group.chances[user], "accepted": accepted[user]}
                    for user in group.users
                },
                "gain": as_record(
                    mean([r.adapted_chance - r.bare_chance for r in replies[group.name]])
                ),
                "replies": [asdict(reply) for reply in replies[group.name]],
            }
            for group in groups
        ],
        "uncertain": [
            user
            for user, group in sorted(judged.items())
            if group.chances[user] < SURE or accepted[user] < ENOUGH_ACCEPTED
        ],
    }


def _questions(items: Sequence[Item], group: Group) -> list[Item]:
    """Return different questions, those of the group's users first."""
    ordered = sorted(items, key=lambda item: item.user not in group.chances)
    return list({item.prompt: item for item in ordered}.values())[:QUESTIONS]


def tell(report: Mapping[str, Any]) -> None:
    """Print the core of a report."""
    auc, above = report["auc"], report["ours_above"]
    table = console.table(
        "who has an adapter",
        "AUC",
        "ours is above it by",
        "pairs",
        title="\naccepted above refused replies, on rows that nobody learned from",
    )
    for name in (OURS, *(other for other in above if other != BARE), BARE):
        label = ARMS.get(name, "nobody: the model as it is")
        table.add_row(label, worded(auc[name]), worded(above.get(name)), str(auc[name]["n"]))
    console.print_table(table)
    for group in report["groups"]:
        users, count = ", ".join(group["users"]), len(group["users"])
        print(f"{group['name']} ({group['adapter']}): {count} users, {group['likes']}; {users:.60}")
    if report["uncertain"]:
        some = ", ".join(report["uncertain"][:MAX_NAMES])
        print(f"uncertain, {len(report['uncertain'])} of {report['users']} users: {some}")
    gain = worded(report["gain"])
    print(f"new replies, as the judges expect: {gain} more accepted than of the model as it is")
    print(f"use the adapters? {report['advice']}: {report['why']}")


def worded(value: Mapping[str, Any] | None) -> str:
    """Return an estimate with its interval in words."""
    if value is None or value["estimate"] is None:
        return ""
    return f"{value['estimate']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def page(report: Mapping[str, Any], suffix: str) -> str:
    """Return the report as a page, ``html`` or ``md``; nothing of what users wrote is markup."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        undefined=StrictUndefined,
        autoescape=suffix == "html",
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"worded": worded, "cell": _cell}
    arms = {**ARMS, BARE: "nobody: the model as it is"}
    template = environment.get_template(f"report.{suffix}.j2")
    return template.render(report=report, arms=arms, shown=SHOWN, sure=SURE)


def _cell(text: object) -> Markup:
    """Return a text for a cell of Markdown, where nothing of it is markup."""
    return Markup(escaped(str(text)).replace("\n", "<br>").replace("|", "\\|"))

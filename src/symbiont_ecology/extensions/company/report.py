"""The report of ``learn-from``, as plain values and as pages: what was found, if it is of use, and
how surely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from symbiont_ecology.base.transcripts import escaped
from symbiont_ecology.base.types import Item
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

SCHEMA = 3
SHOWN = 3
"""New replies of a group that pages show."""


def measured(
    runs: Mapping[str, Run], groups: Sequence[Group], kernel: HostKernel
) -> dict[str, Any]:
    """Return the report as plain values."""
    run = runs[OURS]
    world = run.loaded.tasks.users
    assert isinstance(world, LoggedUsers)
    items, learned = world.held_out, world.verdicts
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

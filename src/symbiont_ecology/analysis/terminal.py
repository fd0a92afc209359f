"""A comparison on the terminal: what the arms did, how often they were right, and how they
differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from symbiont_ecology.analysis.outcomes import BARE_HOST, Outcomes


def tell_comparison(
    outcomes: Outcomes, summary: Mapping[str, Any], console: Console | None = None
) -> None:
    """Two tables, of the largest budget."""
    console, largest = console or Console(), f"{outcomes.budgets[-1]:g}"
    did = _table("", "runs", "train FLOPs", "rollouts", "ROI", "births", "deaths", "coverage")
    for arm in outcomes.arms:
        if (one := summary["arms"][arm].get(largest)) is None:
            continue
        counts = (f"{one[key]:.0f}" for key in ("births", "deaths", "coverage"))
        did.add_row(
            arm,
            str(summary["seeds"][arm]),
            f"{one['train_flops']:.3g}",
            f"{one['rollouts']:.0f}",
            f"{one['roi']:.2f}",
            *counts,
        )
    console.print(did)
    arms = [BARE_HOST, *outcomes.arms]
    right = _table("right, %", *arms)
    for view, found in summary["accuracy"][largest].items():
        right.add_row(view, *(_interval(found.get(arm)) for arm in arms))
    console.print(right)
    main = summary["protocol"]["main"]
    others = [arm for arm in arms if arm != main]
    apart = _table(f"{main} minus, points", *others)
    for view, found in summary["differences"][largest].items():
        apart.add_row(view, *(_difference(found.get(arm)) for arm in others))
    console.print(apart)
    if min(summary["seeds"].values()) < 2:
        console.print(
            "one seed of an arm says nothing about its other seeds: intervals are over questions alone"
        )


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _interval(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "–"
    return f"{100 * found['estimate']:.1f} \\[{100 * found['low']:.0f}, {100 * found['high']:.0f}]"


def _difference(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "–"
    mid, low, high = (100 * found[key] for key in ("estimate", "low", "high"))
    return f"{mid:+.1f} \\[{low:+.0f}, {high:+.0f}] q={found['p_adjusted']:.2g}"

"""A comparison on the terminal: what the arms did, how often they were right, and how they
differ."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from symbiont_ecology.analysis.page import spread
from symbiont_ecology.analysis.results import BARE_HOST
from symbiont_ecology.analysis.summary import AdjustedDifference, Summary
from symbiont_ecology.statistics import Interval


def tell_comparison(summary: Summary, console: Console) -> None:
    """Three tables, of the largest budget."""
    largest, main = summary.largest, summary.protocol.main
    lives = _table("", ["runs", "train FLOPs", "rollouts", "ROI", "births", "deaths", "coverage"])
    for arm, budgets in summary.arms.items():
        if (means := budgets.get(largest)) is not None:
            cells = [arm, f"{summary.seeds[arm]}", f"{means.train_flops:.3g}"]
            cells += [f"{means.rollouts:.0f}", f"{means.roi:.2f}"]
            counts = (means.births, means.deaths, means.coverage)
            lives.add_row(*cells, *(f"{count:.0f}" for count in counts))
    arms = [BARE_HOST, *summary.arms]
    accuracy = _table("right, %", arms)
    for view, shares in summary.accuracy[largest].items():
        accuracy.add_row(view, *(_share(shares.get(arm)) for arm in arms))
    rest = [arm for arm in arms if arm != main]
    differences = _table(f"{main} minus, points", rest)
    for view, tests in summary.differences[largest].items():
        differences.add_row(view, *(_difference(tests.get(arm)) for arm in rest))
    for table in (lives, accuracy, differences):
        console.print(table)
    if summary.protocol.warm_arms:
        console.print(summary.protocol.warm_arms, soft_wrap=True, markup=False, highlight=False)
    if summary.unpaired:
        console.print(
            f"no seed in common with {main}: {', '.join(summary.unpaired)}; these differences are "
            "over questions alone",
            soft_wrap=True,
        )
    if min(summary.seeds.values()) < 2:
        console.print(
            "one seed of an arm says nothing about its other seeds: intervals are over questions "
            "alone"
        )


def _table(first: str, columns: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _share(share: Interval | None) -> Text:
    return Text(spread(share, ends=".0f"))


def _difference(test: AdjustedDifference | None) -> Text:
    text = spread(test, form="+.1f", ends="+.0f")
    return Text(text if test is None else f"{text} q={test.p_adjusted:.2g}")

"""The page of a suite of worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symbiont_ecology.analysis.page import NO_VALUE, render, spread
from symbiont_ecology.analysis.streams import NO_SHARES
from symbiont_ecology.analysis.worlds import Test, Value, WorldResults
from symbiont_ecology.experiments.outcomes import Chosen

TITLES = {
    "late": "last quarter, %",
    "newcomers": "newcomers, %",
    "adapters": "adapters at the end",
    "serving": "of them serving",
    "exact": "kinds found, % of seeds",
    "back": "moved: after 10 questions ÷ before, %",
    "others": "the others: after − before, points",
    "returns": "30 questions after a return, %",
    "thirds": "last third of a regime, %",
    "honest": "without the random user, %",
    "scored": "sketched or scored per question",
    "flops": "FLOPs",
}
"""Columns of the tables, by measure."""
ONLY = {"exact": "town", "honest": "noise"}
"""Measures that are shown where the name of a world begins so."""


def render_worlds(
    results: WorldResults, chosen: Chosen, figures: Sequence[str], digest: str
) -> str:
    """The page; ``figures`` are the files that were drawn."""

    def names(arms: Mapping[str, Mapping[str, Value]], world: str) -> list[str]:
        """The measures that a table shows."""
        present = {name for values in arms.values() for name in values}
        return [name for name in TITLES if name in present and world.startswith(ONLY.get(name, ""))]

    def chosen_by(arm: str) -> str:
        """What tuning chose, by world."""
        options = results.protocol.arms[arm].tune
        parts = [
            f"{world}: {' '.join(options[by_arm[arm]]) or 'as it is'}"
            for world, by_arm in chosen.items()
            if arm in by_arm
        ]
        return "; ".join(parts) or "nothing to choose"

    return render(
        "worlds.md.j2",
        results=results,
        figures=figures,
        digest=digest,
        counts=NO_SHARES,
        titles=TITLES,
        names=names,
        chosen_by=chosen_by,
        measured=measured,
        tested=tested,
    )


def measured(value: Value | None, measure: str) -> str:
    """A mean with its interval, in the unit of its column."""
    if value is None:
        return NO_VALUE
    if measure == "flops":
        return f"{value.estimate:.2g}"
    return spread(value, 1 if measure in NO_SHARES else 100)


def tested(test: Test | None) -> str:
    """A difference with its interval and q; bold where it is claimed."""
    if test is None:
        return NO_VALUE
    mark = "**" if test.is_claimed else ""
    return f"{spread(test, 100, '+.1f', mark=mark)} q={test.q:.2g}"

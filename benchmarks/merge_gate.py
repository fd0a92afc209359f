"""How often the gate admits a child that it must not, how often one that it should, and what that
takes.

    python benchmarks/merge_gate.py [--children 2500] [--json FILE] [--plot FILE] [--page FILE]

Children are simulated as what the gate sees of them: paired questions that they win, tie or lose
against a parent, with a mean difference (*effect*) and a chance of not being a tie (*discordance*).
The gate looks after every eighth question. Children that are no better, or lose too much, must be
admitted no more often than its level says, those with the gain that it is made for four times out
of five (99 % limits). Beside it stands what is usual and wrong: a significance test that is looked
at again and again, and a loss that was not observed in a small sample. Leaves with 1 when a promise
is broken.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from symbiont_ecology.ecology.gate import Gate, GateDecision, PairedCounts
from symbiont_ecology.rng import Draw
from symbiont_ecology.statistics import wilson

LOOK, SMALL = 8, 48
"""Questions between two looks; questions of the small sample."""
GAINS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
LOSSES = (0.0, -0.05, -0.1, -0.15, -0.2, -0.3)
COLOURS = {0.15: "#0b3d2e", 0.3: "#1b7f5c", 0.45: "#b4752d", 0.6: "#b4352d"}
"""Of every discordance."""
POWER, LIMITS = 0.8, 0.98
"""Share of good children that must be admitted; level of intervals with the 99 % limits on either
side."""

Row = dict[str, float]
Comparison = tuple[Callable[[PairedCounts], GateDecision], float, float]
"""What is asked of a child in a comparison, and its true effect and discordance there."""


def main() -> int:
    """Simulates everything; 0 when the gate keeps its promises."""
    arguments = parse()
    began = time.perf_counter()
    result = measured(Gate(), arguments.children) | {
        "seconds": round(time.perf_counter() - began, 1)
    }
    print("PASS" if result["passed"] else "FAIL", json.dumps(result["promises"]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        draw(result, arguments.plot)
    if arguments.page is not None:
        block = re.compile(r"(<!-- gate -->\n).*?(<!-- /gate -->)", re.DOTALL)
        text = arguments.page.read_text(encoding="utf-8")
        arguments.page.write_text(block.sub(rf"\g<1>{told(result)}\n\2", text), encoding="utf-8")
    return 0 if result["passed"] else 1


def parse() -> argparse.Namespace:
    """The command line of this benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--children", type=int, default=2500, help="of each kind")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument(
        "--page", type=Path, help="page with the marks <!-- gate --> and <!-- /gate -->"
    )
    return parser.parse_args()


def measured(gate: Gate, children: int) -> dict[str, Any]:
    """All rows, the promises, and whether they are kept."""
    better, kept = cache(gate.better), cache(gate.kept)

    def rows(rule: Callable[[PairedCounts], GateDecision], effects: Sequence[float]) -> list[Row]:
        return [
            {"effect": effect, "discordance": discordance}
            | admitted([(rule, effect, discordance)], children)
            for discordance in COLOURS
            for effect in effects
            if abs(effect) <= discordance
        ]

    home: Comparison = (kept, 0.0, 0.15)
    singles = {"better": rows(better, GAINS), "kept": rows(kept, LOSSES)}
    good = {
        "gains 15 points, keeps three homes": admitted([(better, 0.15, 0.3), *[home] * 3], children)
    }
    bad = {
        "gains nothing, keeps three homes": admitted([(better, 0.0, 0.3), *[home] * 3], children),
        "gains 30 points, loses 15 at one of three homes": admitted(
            [(better, 0.3, 0.45), home, home, (kept, -0.15, 0.3)], children
        ),
    }
    right = [*good.values(), *(row for row in singles["better"] if row["effect"] == 0.15)]
    wrong = [*bad.values(), *(row for row in singles["better"] if row["effect"] == 0)]
    wrong += [row for row in singles["kept"] if row["effect"] == -0.15]
    promises = {"wrongly admitted": extreme(max, wrong), "rightly admitted": extreme(min, right)}
    is_rare, is_usual = (
        promises["wrongly admitted"]["low"] <= gate.level,
        promises["rightly admitted"]["low"] >= POWER,
    )
    return {
        "passed": is_rare and is_usual,
        "promises": promises,
        "gate": asdict(gate),
        "questions_per_look": LOOK,
        "children": children,
        **singles,
        "whole": good | bad,
        "naive": naive(gate, children),
    }


def extreme(which: Callable[[Iterable[float]], float], rows: Sequence[Row]) -> Row:
    """The largest, or smallest, share of some rows, and its limits."""
    return {name: which(row[name] for row in rows) for name in ("low", "share", "high")}


def admitted(comparisons: Sequence[Comparison], children: int) -> Row:
    """Share of children that are admitted, its 99 % limits, and the mean number of paired
    questions."""
    generator = Draw(0)(
        "children", *[(effect, discordance) for _, effect, discordance in comparisons]
    )
    lives = [life(comparisons, generator) for _ in range(children)]
    share = wilson(sum(is_admitted for is_admitted, _ in lives), children, LIMITS)
    return {
        "share": round(share.estimate, 4),
        "low": round(share.low, 4),
        "high": round(share.high, 4),
        "pairs": round(float(np.mean([pairs for _, pairs in lives])), 1),
    }


def life(comparisons: Sequence[Comparison], generator: np.random.Generator) -> tuple[bool, int]:
    """Whether one child is admitted, after how many questions in all; what is proven is not asked
    again."""
    tallies = [PairedCounts()] * len(comparisons)
    verdicts: list[GateDecision] = ["go on"] * len(comparisons)
    while "reject" not in verdicts and "go on" in verdicts:
        for place, (rule, effect, discordance) in enumerate(comparisons):
            if verdicts[place] == "go on":
                tallies[place] += PairedCounts(
                    *asked(effect, discordance, LOOK, generator).tolist()
                )
                verdicts[place] = rule(tallies[place])
    return "reject" not in verdicts, sum(tally.pairs for tally in tallies)


def asked(
    effect: float, discordance: float, questions: int, generator: np.random.Generator, *shape: int
) -> np.ndarray:
    """Wins, ties and losses over some questions, ``(*shape, 3)``."""
    chances = (discordance + effect) / 2, 1 - discordance, (discordance - effect) / 2
    return generator.multinomial(questions, chances, size=shape or None)


def naive(gate: Gate, children: int) -> Row:
    """What the gate is there instead of: shares of children that pass."""
    generator = Draw(0)("naive")
    counts = asked(0.0, 0.3, LOOK, generator, children, gate.most // LOOK).cumsum(axis=1)
    wins, losses = counts[..., 0], counts[..., 2]
    is_significant = stats.binom.sf(wins - 1, wins + losses, 0.5) <= gate.level

    def unseen(effect: float) -> float:
        sample = asked(effect, 0.3, SMALL, generator, children)
        return float(np.mean(sample[:, 0] - sample[:, 2] > -gate.loss * SMALL))

    return {
        "gains nothing, sign test at the end": float(np.mean(is_significant[:, -1])),
        "gains nothing, sign test at every look": float(np.mean(is_significant.any(axis=1))),
        f"loses nothing, less than 15 points lost in {SMALL} questions": unseen(0.0),
        f"loses 15 points, less than 15 points lost in {SMALL} questions": unseen(-0.15),
    }


def told(result: dict[str, Any]) -> str:
    """The block of the page."""
    lines = [
        f"{result['children']:,} simulated children of each kind, {result['gate']['most']} paired "
        "questions "
        f"at most in a comparison, a look after every {result['questions_per_look']}. In a cell: "
        "admitted, "
        "and mean number of paired questions until the verdict.",
        "",
    ]
    for kind, title in (("better", "true gain"), ("kept", "true change at a home")):
        cells = {(row["effect"], row["discordance"]): row for row in result[kind]}
        lines += [
            f"| {title} | {' | '.join(f'discordance {chance:.0%}' for chance in COLOURS)} |",
            f"|---|{'---|' * len(COLOURS)}",
        ]
        for effect in GAINS if kind == "better" else LOSSES:
            row = [cells.get((effect, chance)) for chance in COLOURS]
            text = " | ".join(
                f"{cell['share']:.1%}, {cell['pairs']:.0f}" if cell else "" for cell in row
            )
            lines.append(f"| {100 * effect:+.0f} points | {text} |")
        lines.append("")
    lines += ["| all comparisons of a child | admitted | questions |", "|---|---|---|"]
    lines += [
        f"| {name} | {entry['share']:.1%} | {entry['pairs']:.0f} |"
        for name, entry in result["whole"].items()
    ]
    lines += ["", "| instead of the gate, discordance 30% | passes |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| {name} | {share:.1%} |" for name, share in result["naive"].items())]
    )


def draw(result: dict[str, Any], file: Path) -> None:
    """Power, questions until the verdict, and what is kept, against what is true."""
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
    for panel, kind, field, label in (
        (panels[0], "better", "share", "admitted"),
        (panels[1], "better", "pairs", "paired questions until the verdict"),
        (panels[2], "kept", "share", "taken to be kept"),
    ):
        for discordance, colour in COLOURS.items():
            rows = [row for row in result[kind] if row["discordance"] == discordance]
            effects, heights = [100 * row["effect"] for row in rows], [row[field] for row in rows]
            panel.plot(effects, heights, "o-", ms=3, color=colour, label=f"{discordance:.0%}")
        panel.set(
            xlabel="true gain, points" if kind == "better" else "true change at a home, points"
        )
        panel.set(ylabel=label, ylim=(0, None))
        panel.grid(alpha=0.3)
        if field == "share":
            panel.axhline(result["gate"]["level"], color="#999999", lw=1, ls="--")
            panel.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    panels[1].legend(frameon=False, fontsize=8, title="discordance", title_fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())

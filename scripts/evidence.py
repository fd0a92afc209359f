"""Reproduces the figures of docs/results.md: the demo over five seeds, transfer.

make evidence            # everything, about twenty minutes on two cores; goes on where it stopped
python scripts/evidence.py --only demo
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import symbiont_ecology.cli  # noqa: F401  # before the commands of extensions, which it loads
from symbiont_ecology.engine.provenance import source
from symbiont_ecology.extensions.study.cli_demos import (
    CONTROLS,
    PICTURE_FILE,
    ROWS,
    SUMMARY_FILE,
    WATCHED,
)
from symbiont_ecology.extensions.study.measures import NO_SHARES
from symbiont_ecology.statistics import paired_interval

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES, PAGE = ROOT / "docs/results", ROOT / "docs/figures", ROOT / "docs/results.md"
ARMS = {"told": CONTROLS["told"], WATCHED: WATCHED, **CONTROLS}


def run_demos(seeds: int, folder: Path) -> dict[str, Any]:
    """Lives the demo with each seed (one that is finished is read back) and adds the seeds up. The
    picture of the first seed is the demo's picture."""
    summaries = []
    for seed in range(seeds):
        out = folder / f"seed-{seed}"
        if not (out / SUMMARY_FILE).exists():
            command = [sys.executable, "-m", "symbiont_ecology", "demo", "--seed", str(seed)]
            subprocess.run([*command, "--out", str(out), "--quiet"], check=True)
        summaries.append(json.loads((out / SUMMARY_FILE).read_text()))
    shutil.copy(folder / "seed-0" / PICTURE_FILE, FIGURES / PICTURE_FILE)
    arms = {
        arm: {measure: [demo["arms"][arm][measure] for demo in summaries] for measure in ROWS}
        for arm in ARMS
    }
    ecology = arms["ecology"]["acceptance"]
    return {
        "seeds": seeds,
        "arms": arms,
        "differences": {
            arm: asdict(paired_interval(ecology, values["acceptance"]))
            for arm, values in arms.items()
            if arm != "ecology"
        },
        "births": [len(demo["births"]) for demo in summaries],
        "deaths": [demo["deaths"] for demo in summaries],
        "shared": [sum(sum(c.values()) > 1 for c in demo["served"].values()) for demo in summaries],
        "pure": [
            sum(max(c.values()) for c in demo["served"].values())
            / sum(sum(c.values()) for c in demo["served"].values())
            for demo in summaries
        ],
        "seconds": [demo["seconds"] for demo in summaries if demo["seconds"]],
    }


def demo_tables(result: dict[str, Any]) -> str:
    """The demo's table: means over seeds with 95 % t intervals, and what came of the users."""
    lines = [
        f"{result['seeds']} seeds; means with 95 % t intervals over seeds.",
        "",
        "| | " + " | ".join(ARMS.values()) + " |",
        "|---|" + "---|" * len(ARMS),
    ]
    for measure, label in ROWS.items():
        cells = [_mean(result["arms"][arm][measure], measure) for arm in ARMS]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    gaps = {arm: _points(interval) for arm, interval in result["differences"].items()}
    cells = [gaps.get(arm, "") for arm in ARMS]
    lines.append(f"| ecology − arm, accepted, points | {' | '.join(cells)} |")
    return "\n".join(lines)


def demo_lives(result: dict[str, Any]) -> str:
    """What happened in the demo's ecologies, in a sentence or two."""

    def span(values: list[float], unit: str = "") -> str:
        low, high = f"{min(values):.0f}", f"{max(values):.0f}"
        return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"

    pure = [100 * share for share in result["pure"]]
    seconds = result["seconds"]
    took = f" A demo took {span(seconds, ' s')} on two cores." if seconds else ""
    return (
        f"In each ecology {span(result['births'])} adapters were born and "
        f"{span(result['deaths'])} died. At the end {span(result['shared'])} adapters served "
        f"several users each. For {span(pure, ' %')} of the users, most users of their adapter "
        f"were of their own kind.{took}"
    )


def _mean(values: list[float], measure: str) -> str:
    if measure == "flops":
        return f"{np.mean(values):.1e}"
    interval = paired_interval(values, [0.0] * len(values))
    unit = 1 if measure in NO_SHARES else 100
    low, mid, high = (unit * value for value in (interval.low, interval.estimate, interval.high))
    return f"{mid:.0f}" if low == high else f"{mid:.1f} [{low:.1f}, {high:.1f}]"


def _points(interval: dict[str, float]) -> str:
    low, mid, high = (100 * interval[key] for key in ("low", "estimate", "high"))
    return f"**{mid:+.1f}** [{low:+.1f}, {high:+.1f}]"


def fill(page: Path, mark: str, content: str) -> None:
    """Puts content between ``<!-- mark -->`` and ``<!-- /mark -->`` of a page."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    text = pattern.sub(
        lambda match: f"{match[1]}{content}\n{match[2]}", page.read_text(encoding="utf-8")
    )
    page.write_text(text, encoding="utf-8")


def main() -> None:
    """Runs what was asked for and fills the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=ROOT / "artifacts/evidence" / source())
    parser.add_argument("--only", choices=("demo", "transfer"))
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if arguments.only in (None, "demo"):
        result = run_demos(arguments.seeds, arguments.folder)
        (RESULTS / "demo.json").write_text(json.dumps(result, indent=1) + "\n")
        fill(PAGE, "demo", f"{demo_tables(result)}\n\n{demo_lives(result)}")
        fill(ROOT / "README.md", "demo", demo_tables(result))
    if arguments.only in (None, "transfer"):
        command = ["benchmarks/transfer.py", "--json", str(RESULTS / "transfer.json")]
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    subprocess.run([sys.executable, "scripts/host_page.py"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()

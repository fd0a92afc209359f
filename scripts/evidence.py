"""Reproduces the figures of docs/results.md: the demo over five seeds, kills and resumes, transfer.

make evidence            # everything, about twenty minutes on two cores; goes on where it stopped
python scripts/evidence.py --only demo
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from learning_curve import draw
from symbiont_ecology.engine.run import source
from symbiont_ecology.statistics import Interval, paired_interval, wilson

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES, PAGE = ROOT / "docs/results", ROOT / "docs/figures", ROOT / "docs/results.md"
ARMS = {"host": "bare host", "single": "single adapter", "ecology": "ecology, routed"}


def run_demos(seeds: int, folder: Path) -> dict[str, Any]:
    """Lives the demo with each seed (one that is finished is read back) and adds the seeds up."""
    summaries = []
    for seed in range(seeds):
        out = folder / f"seed-{seed}"
        if not (out / "summary.json").exists():
            command = [sys.executable, "-m", "symbiont_ecology.cli", "demo", "--seed", str(seed)]
            subprocess.run([*command, "--out", str(out), "--quiet"], check=True)
        summaries.append(json.loads((out / "summary.json").read_text()))
    logs = {
        "ecology": [folder / f"seed-{seed}/ecology/events.jsonl" for seed in range(seeds)],
        "single adapter": [folder / f"seed-{seed}/single/events.jsonl" for seed in range(seeds)],
    }
    spent = min(
        one["lives"][arm]["train_flops"] for one in summaries for arm in ("ecology", "single")
    )
    draw(logs, spent, FIGURES / "learning.png")
    return _added_up(summaries)


def _added_up(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    accuracy = {
        arm: [one["arms"][arm]["accuracy"]["estimate"] for one in summaries] for arm in ARMS
    }
    lives = {arm: [one["lives"][arm] for one in summaries] for arm in ("single", "ecology")}
    differences = {
        f"ecology - {other}": asdict(paired_interval(accuracy["ecology"], accuracy[other]))
        for other in ("host", "single")
    }
    families = {}
    for family in summaries[0]["arms"]["host"]["families"]:
        families[family] = {arm: _pooled(summaries, arm, family) for arm in ARMS}
    return {
        "seeds": len(summaries),
        "questions": sum(summaries[0]["questions"].values()),
        "accuracy": accuracy,
        "differences": differences,
        "families": families,
        "lives": {arm: _means(rows) for arm, rows in lives.items()},
        "rollouts per learning rollout": {
            arm: max(row["rollouts"] / row["practice"] for row in rows)
            for arm, rows in lives.items()
        },
        "seconds": [one["seconds"] for one in summaries],
    }


def _pooled(summaries: list[dict[str, Any]], arm: str, family: str) -> dict[str, float]:
    shares = [one["arms"][arm]["families"][family] for one in summaries]
    asked = sum(share["questions"] for share in shares)
    right = sum(round(share["estimate"] * share["questions"]) for share in shares)
    return asdict(wilson(right, asked))


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def demo_tables(result: dict[str, Any]) -> str:
    """The demo's page: accuracy by family, differences over seeds, what it took."""
    lines = [
        f"{result['seeds']} seeds, {result['questions']} holdout questions drawn anew for each, "
        "equal useful FLOPs; "
        "percent right, pooled over seeds with 95 % Wilson intervals. Differences are paired over "
        "seeds, "
        "95 % t intervals.",
        "",
        "| family | " + " | ".join(ARMS.values()) + " |",
        "|---|---|---|---|",
    ]
    for family, arms in result["families"].items():
        lines.append(f"| {family} | " + " | ".join(_share(arms[arm]) for arm in ARMS) + " |")
    means = [100 * float(np.mean(result["accuracy"][arm])) for arm in ARMS]
    ranges = [
        (100 * min(result["accuracy"][arm]), 100 * max(result["accuracy"][arm])) for arm in ARMS
    ]
    cells = [
        f"**{m:.1f}** (seeds {a:.1f} to {b:.1f})" for m, (a, b) in zip(means, ranges, strict=True)
    ]
    lines += ["| **all** | " + " | ".join(cells) + " |", ""]
    for name, interval in result["differences"].items():
        low, mid, high = (100 * interval[key] for key in ("low", "estimate", "high"))
        lines.append(f"- {name}: **{mid:+.1f} points** [{low:+.1f}, {high:+.1f}]")
    lines += ["", "| mean of a run | single adapter | ecology |", "|---|---|---|"]
    lives = result["lives"]
    for label, key, unit in (
        ("generations", "generations", 1),
        ("founded", "founders", 1),
        ("births", "births", 1),
        ("deaths", "deaths", 1),
        ("of them bankruptcies", "bankruptcies", 1),
        ("alive at the end", "alive", 1),
        ("energy earned, ATP", "earned", 1000),
        ("energy spent on compute, rent and tickets, ATP", "spent", 1000),
        ("rollouts", "rollouts", 1),
    ):
        lines.append(
            f"| {label} | {lives['single'][key] / unit:.0f} | {lives['ecology'][key] / unit:.0f} |"
        )
    flops = [lives[arm]["train_flops"] for arm in ("single", "ecology")]
    lines.append(f"| useful training FLOPs | {flops[0]:.3e} | {flops[1]:.3e} |")
    ratios = result["rollouts per learning rollout"]
    lines.append(
        "| rollouts ÷ rollouts whose verdict is learned from, worst seed | "
        f"{ratios['single']:.3f} | "
        f"{ratios['ecology']:.3f} |"
    )
    seconds = result["seconds"]
    lines += [
        "",
        f"A demo took {min(seconds):.0f} to {max(seconds):.0f} s on two cores, both arms at once.",
    ]
    return "\n".join(lines)


def _share(interval: dict[str, float]) -> str:
    values = Interval(**interval)
    return f"{100 * values.estimate:.0f} [{100 * values.low:.0f}, {100 * values.high:.0f}]"


def kills_line(report: dict[str, Any]) -> str:
    """What the kills came to."""
    verdict = "every byte equal" if report["passed"] else "**bytes differ**"
    return f"{report['kills']} kills over {report['generations']} generations: {verdict}."


def fill(page: Path, mark: str, content: str) -> None:
    """Puts content between ``<!-- mark -->`` and ``<!-- /mark -->`` of a page."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    text = pattern.sub(
        lambda match: f"{match[1]}{content}\n{match[2]}", page.read_text(encoding="utf-8")
    )
    page.write_text(text, encoding="utf-8")


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def main() -> None:
    """Runs what was asked for and fills the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=ROOT / "artifacts/evidence" / source())
    parser.add_argument("--only", choices=("demo", "kills", "transfer"))
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if arguments.only in (None, "demo"):
        result = run_demos(arguments.seeds, arguments.folder)
        (RESULTS / "demo.json").write_text(json.dumps(result, indent=1) + "\n")
        fill(PAGE, "demo", demo_tables(result))
        fill(ROOT / "README.md", "results", demo_tables(result).split("\n\n| mean")[0])
    benchmarks = {
        "kills": ["benchmarks/kill_resume.py", "--kills", "20"],
        "transfer": ["benchmarks/transfer.py"],
    }
    for name, command in benchmarks.items():
        if arguments.only in (None, name):
            report = RESULTS / f"{name}.json"
            subprocess.run([sys.executable, *command, "--json", str(report)], check=True, cwd=ROOT)
    if (RESULTS / "kills.json").exists():
        fill(PAGE, "kills", kills_line(_read("kills")))
    subprocess.run([sys.executable, "scripts/host_page.py"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()

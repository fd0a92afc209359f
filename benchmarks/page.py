"""Writes the tables of docs/performance.md from what the benchmarks left in docs/results.

python benchmarks/page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sides import bound, number

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs/performance.md", ROOT / "docs/results"
PHASES, BASE = ("reading prompts", "writing answers", "learning"), "base matrix products"


def fill(text: str, mark: str, content: str) -> str:
    """Puts content between ``<!-- mark -->`` and ``<!-- /mark -->``."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def place(report: dict[str, Any]) -> str:
    """Where and when."""
    facts = report["machine"]
    return f"{facts['date']}, {facts['cpu']}, torch {facts['torch']}, Python {facts['python']}"


def table(cases: dict[str, Any]) -> list[str]:
    """Every ratio of some cases, a case's title on a line of its own."""
    lines = ["| ratio | floor | goal | measured | |", "|---|---|---|---|---|"]
    for case in cases.values():
        if case["ratios"]:
            lines.append(f"| **{case['title']}** | | | | |")
        for ratio in case["ratios"]:
            bounds = (bound(ratio[name], ratio["at_most"]) for name in ("floor", "goal"))
            lines.append(
                f"| {ratio['what']} | {' | '.join(bounds)} | {number(ratio['measured'])} | "
                f"{verdict(ratio)} |"
            )
    return lines


def verdict(ratio: dict[str, Any]) -> str:
    """In words."""
    if ratio["holds"] is None:
        return ""
    return "**missed**" if not ratio["holds"] else "goal" if ratio["is_reached"] else "holds"


def count(cases: dict[str, Any]) -> list[str]:
    """How many floors hold, and which do not."""
    bounded = [
        (name, ratio)
        for name, case in cases.items()
        for ratio in case["ratios"]
        if ratio["holds"] is not None
    ]
    missed = [(name, ratio) for name, ratio in bounded if not ratio["holds"]]
    lines = [
        f"{len(bounded) - len(missed)} of {len(bounded)} floors "
        f"hold{'; missed:' if missed else '.'}",
        "",
    ]
    for name, ratio in missed:
        limit = bound(ratio["floor"], ratio["at_most"])
        lines.append(f"- {name}: {ratio['what']} is {number(ratio['measured'])}, to be {limit}")
    return [*lines, ""] if missed else lines


def milliseconds(cases: dict[str, Any]) -> list[str]:
    """The times behind the ratios, a line for each case."""
    lines = []
    for case in cases.values():
        times = [f"{name} {milli(value)}" for name, value in case["seconds"].items()]
        times += [f"{name} {milli(value / 1e3)}" for name, value in case["numbers"].items()]
        if times:
            lines.append(f"- {case['title']}: {'; '.join([*times, *case['notes']])}")
    return lines


def milli(seconds: float) -> str:
    """Three digits, or all before the point."""
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratios(report: dict[str, Any]) -> str:
    """The table of benchmarks/kernel.py."""
    cases = report["cases"]
    lines = [f"{place(report)}. {count(cases)[0]}", *count(cases)[1:], *table(cases)]
    return "\n".join([*lines, "", "Milliseconds:", "", *milliseconds(cases)])


def ragged(report: dict[str, Any]) -> str:
    """The table of benchmarks/ragged.py."""
    return "\n".join([*table(report["cases"]), "", *milliseconds(report["cases"])])


def real(report: dict[str, Any]) -> str:
    """The table of benchmarks/real_host.py."""
    cases = report["cases"]
    lines = [f"{place(report)}, {report['gflops']:.0f} GFLOP/s in float32.", "", *table(cases)]
    return "\n".join([*lines, "", "Milliseconds:", "", *milliseconds(cases)])


def growth(report: dict[str, Any]) -> str:
    """Floors of benchmarks/growth.py, and the curves of population and rank as numbers."""
    cases = report["cases"]
    lines = [
        *table(cases),
        "",
        "| organelles | ours, ms per row | bare host | learning |",
        "|---|---|---|---|",
    ]
    seconds = cases["size"]["seconds"]
    sizes = [name.split()[1] for name in seconds if name.startswith("ours")]
    for size in sizes:
        cells = [seconds.get(f"{side} {size}") for side in ("ours", "bare", "learning")]
        texts = ("" if cell is None else f"{1e3 * cell:.2f}" for cell in cells)
        lines.append(f"| {size} | {' | '.join(texts)} |")
    for name in ("1,024 resident", "4,096 visiting"):
        lines.append(f"| {name} | {1e3 * cases['crowds']['seconds'][name]:.2f} | | |")
    return "\n".join(lines)


def breakdown(report: dict[str, Any]) -> str:
    """Milliseconds by kind of operation and the matmul rate reached, for every host."""
    lines = [
        f"One thread multiplies float32 matrices at {report['matmul_rate'] / 1e9:.0f} GFLOP/s "
        "here.",
        "",
    ]
    for host, phases in report["hosts"].items():
        lines += [
            f"| {host} host, ms: ours / bare | {' | '.join(PHASES)} |",
            f"|---|{'---|' * len(PHASES)}",
        ]
        for kind in phases[PHASES[0]]["ours"]["kinds"]:
            lines.append(f"| {kind} | {' | '.join(_pair(phases[name], kind) for name in PHASES)} |")
        totals = [
            " / ".join(f"{1e3 * phases[name][side]['seconds']:.1f}" for side in ("ours", "bare"))
            for name in PHASES
        ]
        lines.append(f"| **all** | {' | '.join(totals)} |")
        lines.append(
            "| share of the matmul rate | "
            f"{' | '.join(_rates(phases[name], report) for name in PHASES)} |"
        )
        within = [_rates(phases[name], report, BASE) for name in PHASES]
        lines.append(f"| the same within base products | {' | '.join(within)} |")
        shares = (phases[name]["ours"]["flops"] for name in PHASES)
        texts = [f"{flops['low-rank terms'] / flops[BASE]:.1%}" for flops in shares]
        lines += [f"| low-rank FLOPs ÷ base FLOPs | {' | '.join(texts)} |", ""]
    return "\n".join(lines).rstrip()


def _pair(phase: dict[str, Any], kind: str) -> str:
    return " / ".join(
        f"{1e3 * max(0.0, phase[side]['kinds'][kind]):.1f}" for side in ("ours", "bare")
    )


def _rates(phase: dict[str, Any], report: dict[str, Any], kind: str = "") -> str:
    """Of one kind of product within its own time, or of all within all of it."""
    shares = []
    for side in (phase["ours"], phase["bare"]):
        rate = (
            side["flops"][kind] / side["kinds"][kind]
            if kind
            else sum(side["flops"].values()) / side["seconds"]
        )
        shares.append(f"{rate / report['matmul_rate']:.0%}")
    return " / ".join(shares)


def overhead(report: dict[str, Any]) -> str:
    """What a generation of the demo spends where, in milliseconds, one column per run."""
    runs = report["runs"]
    counts = ", ".join(str(run["generations"]) for run in runs)
    parts = sorted(runs[0]["milliseconds"], key=lambda part: -runs[0]["milliseconds"][part])
    rows = [[part, *(f"{run['milliseconds'][part]:.2f}" for run in runs)] for part in parts]
    rows.append(
        [
            f"**not the host, at most {report['limit']:.0%}**",
            *(f"{run['share']:.1%}" for run in runs),
        ]
    )
    head = ["ms per generation", *(f"seed {run['seed']}" for run in runs)]
    lines = [f"{place(report)}. Whole runs of {counts} generations.", "", f"| {' | '.join(head)} |"]
    return "\n".join(
        [*lines, f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    )


def gpu(reports: list[dict[str, Any]]) -> str:
    """The latest report of a CUDA device, the most whole one first."""
    reports = [entry for entry in reports if entry["dtype"] == "bfloat16"]
    if not reports:
        return "No GPU has been measured yet."
    report = max(reports, key=lambda entry: (entry["missing"] == {}, entry["machine"]["date"]))
    lines = [
        f"{report['machine']['date']}, {report['device']}; {report['host']}, {report['dtype']}.",
        "",
    ]
    lines += [*table(report["cases"]), "", "Milliseconds:", "", *milliseconds(report["cases"])]
    missing = [f"{name} ({reason})" for name, reason in report["missing"].items()]
    return "\n".join([*lines, "", f"Not measured: {'; '.join(missing)}."] if missing else lines)


def main() -> None:
    """Fills the page with what there is."""
    text = PAGE.read_text(encoding="utf-8")
    for mark, (name, write) in {
        "ratios": ("kernel", ratios),
        "ragged": ("kernel_ragged", ragged),
        "growth": ("kernel_growth", growth),
        "breakdown": ("kernel_breakdown", breakdown),
        "overhead": ("overhead", overhead),
        "real": ("real_host", real),
    }.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            text = fill(text, mark, write(json.loads(file.read_text(encoding="utf-8"))))
    reports = [
        json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("kernel_gpu_*.json")
    ]
    text = fill(text, "gpu", gpu(reports))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What is tried to break the project, in one table: kills, power cuts, faults, and fuzzed input.

    python benchmarks/campaign.py [--cases 700] [--faults 20] [--page]

Runs the fuzzers of ``tests/fuzz``, the power cuts and the faults of engines with
``pytest --tally``, and adds what ``kills.py``, ``service_faults.py`` and ``service_fuzz.py`` left
in ``docs/results``. Cases that live a run or load a host are a tenth of ``--cases``. A case fails
if it ends in a trace, a crash, a hang, another history, or if something is lost that was
acknowledged. With ``--page`` the tables of ``docs/results.md`` are made of what is there, and
nothing is run. Leaves with 1 when a case failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from page import fill
from sides import machine

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "docs/results", ROOT / "docs/results.md"
QUICK = ("test_fuzz_configs.py", "test_fuzz_data.py", "test_fuzz_adapters.py")
LONG = (
    *("tests/fuzz/test_fuzz_folders.py", "tests/fuzz/test_fuzz_hosts.py"),
    *("tests/fuzz/test_fuzz_plugins.py", "tests/fuzz/test_fuzz_configs.py"),
    *("tests/engine/test_power_cut.py", "tests/extensions/engines/test_engine_faults.py"),
)
IS_LONG = "folder or host or part_does or lived_in or power_cut or overcome_or_told"
"""What in ``LONG`` is run; it is not run among the quick ones."""
Tally = dict[str, dict[str, int]]
"""How many cases were tried and failed, by kind."""


def main() -> int:
    """Runs all of it; 0 when no case failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=700, help="of each fuzzer that is quick")
    parser.add_argument("--faults", type=int, default=20, help="times each fault of an engine")
    parser.add_argument("--page", action="store_true", help="make the tables anew, run nothing")
    options = parser.parse_args()
    file = RESULTS / "campaign.json"
    if not options.page:
        quick = [f"tests/fuzz/{name}" for name in QUICK]
        counts = tally_of([*quick, "-k", "not lived_in", "--cases", str(options.cases)])
        long = [*LONG, "-k", IS_LONG, "--cases", str(max(options.cases // 10, 1))]
        counts |= tally_of([*long, "--faults", str(options.faults)])
        of = {"cases": options.cases, "faults": options.faults}
        figures = {"machine": machine(), "of": of, "kinds": counts}
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    tally = json.loads(file.read_text(encoding="utf-8"))["kinds"] | elsewhere()
    text = PAGE.read_text(encoding="utf-8")
    text = fill(text, "campaign", campaign_table(tally))
    PAGE.write_text(fill(text, "kills", kills_table(_read("kills"))), encoding="utf-8")
    return int(any(count["failed"] for count in tally.values()))


def tally_of(words: list[str]) -> Tally:
    """What tests counted. Who stops at its first fault has counted the cases before it.

    Raises:
        SystemExit: a test failed without a case that did.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "tally.json"
        command = [sys.executable, "-m", "pytest", "-q", *words, "--tally", str(file)]
        code = subprocess.run(command, cwd=ROOT).returncode
        counts: Tally = json.loads(file.read_text(encoding="utf-8"))
    if code and not any(count["failed"] for count in counts.values()):
        raise SystemExit(f"a test failed: {' '.join(command)}")
    return counts


def elsewhere() -> Tally:
    """What other benchmarks counted."""
    kills, faults, fuzz = (_read(name) for name in ("kills", "service_faults", "service_fuzz"))
    sums, kinds = kills["all"], [count for count in faults.values() if "times" in count]
    lost = sum(count["lost"] + count["wrong"] for count in kinds)
    return {
        "SIGKILL of a command": {"tried": sums["kills"], "failed": sums["kills"] - sums["clean"]},
        "faults of a service": {"tried": sum(count["times"] for count in kinds), "failed": lost},
        "requests to a service": {"tried": fuzz["cases"], "failed": len(fuzz["failures"])},
    }


def campaign_table(counts: Tally) -> str:
    """A line for every kind, and one for all."""
    sums = {name: sum(count[name] for count in counts.values()) for name in ("tried", "failed")}
    lines = ["| kind | tried | clean | failed |", "|---|---|---|---|"]
    for name, count in {**dict(sorted(counts.items())), "**all**": sums}.items():
        tried, failed = count["tried"], count["failed"]
        lines.append(f"| {name} | {tried:,} | {tried - failed:,} | {failed:,} |")
    return "\n".join(lines)


def kills_table(figures: dict[str, Any]) -> str:
    """A line for every command, and one for all."""
    keys = ("kills", "before_writing", "too_late", "clean")
    head = ("command", "kills", "of them before its first write", "came too late", "same bytes")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in {**figures["commands"], "**all**": figures["all"]}.items():
        lines.append(f"| {name} | {' | '.join(str(row[key]) for key in keys)} |")
    return "\n".join(lines)


def _read(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())

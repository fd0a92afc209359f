"""Mutation tests of what must never be wrong: its tests have to notice every small change of it.

    python scripts/mutants.py                             # all modules; interrupted, it goes on
    python scripts/mutants.py economics/ledger.py         # one of them
    python scripts/mutants.py --again weights/blobs.py    # what survived, under the tests of today
    python scripts/mutants.py --page                      # only writes docs/mutants.md anew

``[tool.mutants]`` in pyproject.toml names the modules and, for each, what pytest is told to run.
mutmut says how code is changed. Statements and blocks that are left out are added to that, and
numbers outside of functions, one less and one more, or halved and doubled. A function is changed in
a process that is forked after the tests were collected, so a mutant costs little more than the test
that notices it. The tests that call the function are run, those with drawn examples last.

What became of every mutant is in build/mutants, until the module changes; remove that folder to
begin anew. Sums and survivors are in docs/results/mutants.json. There the reason why a survivor may
live is written by hand; it is kept as long as the survivor is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mutant_trials import Mutant

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->"


def main() -> None:
    """Tries the modules and keeps what came of them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="below src/symbiont_ecology; all, if none")
    parser.add_argument("--again", action="store_true", help="what survived, once more")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--source", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.source:
        from mutant_trials import run_with_source

        raise SystemExit(run_with_source(options.source, sys.stdin.read(), options.modules))
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    parts: dict[str, list[str]] = tomllib.loads(text)["tool"]["mutants"]
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    os.chdir(ROOT)
    modules = [] if options.page else options.modules or list(parts)
    if len(modules) > 1:  # each in a process of its own: nothing of another module is left
        again = ["--again"] if options.again else []
        for module in modules:
            subprocess.run([sys.executable, __file__, *again, module], check=True)
        return
    for module in modules:
        from mutant_trials import tried  # mutmut is there where mutants are made

        began = time.monotonic()
        mutants = tried(module, parts[module], options.again)
        found[module] = summed(mutants, found.get(module, {}))
        found = {name: found[name] for name in parts if name in found}
        RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{module}: {found[module]['counts']}, {time.monotonic() - began:.0f} s")
    if PAGE.is_file():
        write_page(found, parts)


def told(found: dict[str, Any], parts: Iterable[str]) -> str:
    """The results as tables, and which modules have none."""
    rows = ["| module | mutants | killed | timed out | survived | killed, % |", f"|{6 * '---|'}"]
    reasons = ["| where | survivor | why it may live |", f"|{3 * '---|'}"]
    total = Counter[str]()
    for module, result in found.items():
        total += Counter(result["counts"])
        rows.append(_row(f"`{module}`", Counter(result["counts"])))
        for survivor in result["survivors"]:
            change = f"{survivor['before']} ⟶ {survivor['after'] or 'nothing'}".replace("|", "\\|")
            place = f"`{module}` {survivor['place']}"
            reasons.append(f"| {place} | `` {change} `` | {survivor['reason']} |")
    if found:
        rows.append(_row("all", total))
    if missing := [f"`{module}`" for module in parts if module not in found]:
        rows += ["", f"Not tried yet, or not to the end: {', '.join(missing)}."]
    return "\n".join([*rows, "", *reasons]) + "\n"


def _row(name: str, counts: Counter[str]) -> str:
    total, killed, late = counts.total(), counts["killed"], counts["timed out"]
    share = 100 * (killed + late) / total
    return f"| {name} | {total} | {killed} | {late} | {total - killed - late} | {share:.1f} |"


def write_page(found: dict[str, Any], parts: Iterable[str]) -> None:
    """Puts the tables into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{told(found, parts)}{END}{after}", encoding="utf-8")


def summed(mutants: Iterable[Mutant], before: dict[str, Any]) -> dict[str, Any]:
    """What the file says of a module: counts, and survivors with the reasons that are known."""
    reasons = {
        (survivor["place"], survivor["before"], survivor["after"]): survivor["reason"]
        for survivor in before.get("survivors", ())
    }
    mutants = list(mutants)
    survivors = [
        {"place": mutant.place, "before": mutant.before, "after": mutant.after}
        | {"reason": reasons.get(mutant.key, "")}
        for mutant in mutants
        if not mutant.is_noticed
    ]
    counts = Counter(mutant.end for mutant in mutants)
    return {"counts": dict(sorted(counts.items())), "survivors": survivors}


if __name__ == "__main__":
    main()

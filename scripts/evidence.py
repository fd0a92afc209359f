"""Live the demo over five seeds, and write what came of it into docs/results/demo.json.

    make evidence    # some five minutes on two cores; goes on where it stopped

``python scripts/docs_check.py --fill`` then writes the figures into README and docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import symbiont_ecology.cli  # noqa: F401  # before the commands of extensions, which it loads
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Retired
from symbiont_ecology.extensions.study.comparison import over_seeds
from symbiont_ecology.run.provenance import source

DOCS = Path(__file__).parents[1] / "docs"


def summed_up(demos: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the demos' measures by arm and seed, with 95 % t intervals over seeds."""
    arms = {
        arm: {measure: [demo["arms"][arm][measure] for demo in demos] for measure in measures}
        for arm, measures in demos[0]["arms"].items()
    }
    counts = {
        "births": [demo["births"] for demo in demos],
        "deaths": [demo["deaths"] for demo in demos],
        "shared": [sum(sum(c.values()) > 1 for c in demo["served"].values()) for demo in demos],
        "pure": [
            sum(max(kinds.values()) for kinds in demo["served"].values())
            / sum(sum(kinds.values()) for kinds in demo["served"].values())
            for demo in demos
        ],
        "seconds": [demo["seconds"] for demo in demos if demo["seconds"]],
    }
    ecology = arms["ecology"]["acceptance"]
    return {
        "seeds": len(demos),
        "arms": arms,
        "means": {
            arm: {measure: asdict(over_seeds(values)) for measure, values in measures.items()}
            for arm, measures in arms.items()
        },
        "differences": {
            arm: asdict(over_seeds(np.subtract(ecology, measures["acceptance"]).tolist()))
            for arm, measures in arms.items()
            if arm != "ecology"
        },
        **counts,
        "spans": {name: [min(values), max(values)] for name, values in counts.items() if values},
    }


def lived(folder: Path) -> dict[str, Any]:
    """Return how many adapters were born and died in a demo's ecology, and how long it took."""
    events = list(read_events(folder / "ecology" / "events.jsonl"))
    born = (event for event in events if isinstance(event, Born))
    return {
        "births": sum(event.operator != "founder" for event in born),
        "deaths": sum(isinstance(event, Retired) for event in events),
        "seconds": json.loads((folder / "seconds.json").read_text()),
    }


def main() -> None:
    """Live the demos that are not there yet; the picture of the first is the demo's picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("artifacts/evidence") / source())
    options = parser.parse_args()
    folders = [options.folder / f"seed-{seed}" for seed in range(options.seeds)]
    for seed, folder in enumerate(folders):
        if not (folder / "summary.json").exists():
            words = ["demo", f"seed={seed}", "--out", str(folder), "--quiet"]
            began = monotonic()
            subprocess.run([sys.executable, "-m", "symbiont_ecology", *words], check=True)
            (folder / "seconds.json").write_text(json.dumps(round(monotonic() - began, 1)))
    shutil.copy(folders[0] / "demo.png", DOCS / "figures/demo.png")
    demos = [
        {**json.loads((folder / "summary.json").read_text()), **lived(folder)} for folder in folders
    ]
    text = json.dumps(summed_up(demos), indent=1) + "\n"
    (DOCS / "results/demo.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

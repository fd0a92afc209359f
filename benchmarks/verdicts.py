"""Learning from verdicts after a warm start, on SmolLM2: eight seeds of ``smollm2_verdicts``.

For each seed, one adapter learns four gold examples per cell, and then from verdicts alone. The
warm start and the end are asked the same held-out questions, greedily. What a run took is the CPU
time of its process, warm start and evaluation of plain English included, as in ``ascents.py``.

    python benchmarks/verdicts.py --folder runs/verdicts --json docs/results/smollm2_verdicts.json

About twelve minutes of a core per seed. Finished runs in the folder are measured again and not run
again; others go on where they were.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ascents import cpu_seconds, live
from symbiont_ecology import Run
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.tasks import judge
from symbiont_ecology.types import Decoding, Item, Request
from symbiont_ecology.weights.blobs import BlobStore

PRESET, PER_CELL = "experiments/smollm2_verdicts", 50


def main(seeds: list[int], folder: Path, json_file: Path | None) -> None:
    """Runs what is not there, measures, prints a line per seed, and writes the figures."""
    torch.set_num_threads(1)
    rows = []
    for seed in seeds:
        live(folder / f"v-{seed}", PRESET, seed)
        rows.append(_measured(folder / f"v-{seed}", seed))
        print(json.dumps(rows[-1]), flush=True)
    if len(rows) < 2:
        return
    gain = paired_interval([row["end"] for row in rows], [row["warm"] for row in rows])
    changes = {
        family: [row["families"][family][1] - row["families"][family][0] for row in rows]
        for family in rows[0]["families"]
    }
    families = {family: float(np.mean(change)) for family, change in changes.items()}
    print(f"end - warm: {100 * gain.estimate:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]")
    print("by family: " + ", ".join(f"{name} {100 * by:+.0f}" for name, by in families.items()))
    if json_file is not None:
        summary = {"gain": [gain.estimate, gain.low, gain.high], "families": families}
        text = json.dumps({"schema": 1, "seeds": rows, "summary": summary}, indent=1)
        json_file.write_text(text + "\n", encoding="utf-8")


def _measured(folder: Path, seed: int) -> dict[str, Any]:
    """The share of held-out questions that is right, before and after, in all and by family."""
    run = Run.open(folder)
    items = draw_shifts(mixture(run.config), ["in-distribution"], PER_CELL, seed=seed)
    (organelle,) = run.state.population.values()
    assert run.state.warm is not None
    warm = _verdicts(run, run.state.warm, items)
    end = _verdicts(run, organelle.genome.weights, items)
    families = defaultdict(list)
    for item, before, after in zip(items, warm, end, strict=True):
        families[item.family].append((before, after))
    return {
        "seed": seed,
        "questions": len(items),
        "warm": float(np.mean(warm)),
        "end": float(np.mean(end)),
        "families": {name: np.mean(pairs, axis=0).tolist() for name, pairs in families.items()},
        "cpu_seconds": cpu_seconds(folder),
        "generations": run.state.generation,
        "flops": run.state.spent.flops,
    }


def _verdicts(run: Run, weights: str, items: list[Item]) -> list[float]:
    """Of one adapter, greedily."""
    kernel = run.kernel
    kernel.place(0, BlobStore(run.folder / "blobs").weights(weights))
    requests = [Request(item.prompt, 0, item.reply_limit) for item in items]
    texts = kernel.rollout(requests, None, Decoding()).texts
    return [judgement.verdict for judgement in judge(zip(items, texts, strict=True))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--folder", type=Path, default=Path("artifacts/smollm2-verdicts"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.seeds, arguments.folder, arguments.json)

"""Whether evolution strategies climb: several seeds of a preset, on questions that no member met.

For each seed, a run of the preset; then the bare host and the centre answer the same held-out
questions greedily. What is measured is the run's own reward, and beside it what rewards are hacked
by: the mean log-ratio of the centre's greedy answers to the host (nats per token), the
length of answers, and the share of answers without text. CPU seconds are those of the run's
process.

    python benchmarks/ascents.py es-countdown es-conciseness --json docs/results/ascents.json
    python benchmarks/ascents.py experiments/smollm2_conciseness --seeds 200 201 202

Half a minute of a core per seed on the embedded host, at most twenty on SmolLM2. Finished runs in
the folder are measured again and not run again; others go on where they were.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from symbiont_ecology import Run
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.engine.act import Question, roll_out
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.learning import reward_rules
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.types import HOST_SLOT, Decoding
from symbiont_ecology.weights.adapter import AdapterWeights
from symbiont_ecology.weights.blobs import BlobStore

PER_CELL, CPU_FILE = 50, "cpu_seconds.json"


def main(
    presets: Sequence[str], seeds: Sequence[int], folder: Path, json_file: Path | None
) -> None:
    """Runs what is not there, measures, prints a line per seed, and writes the figures."""
    torch.set_num_threads(1)
    found = {}
    for preset in presets:
        rows = []
        for seed in seeds:
            place = folder / f"{preset.replace('/', '-')}-{seed}"
            live(place, preset, seed)
            rows.append({"seed": seed, **measured(place)})
            print(preset, json.dumps(rows[-1]), flush=True)
        found[preset] = {"seeds": rows, "gains": gains(rows)}
        print(preset, json.dumps(found[preset]["gains"]))
    if json_file is not None:
        known = json.loads(json_file.read_text())["presets"] if json_file.exists() else {}
        report = {"schema": 1, "presets": known | found}
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def live(folder: Path, preset: str, seed: int) -> None:
    """The run to its end, and the CPU seconds that it took."""
    if (folder / CPU_FILE).exists():
        return
    symbiont = [sys.executable, "-m", "symbiont_ecology.cli"]
    new = ["run", preset, f"seed={seed}", "--out", folder, "--quiet"]
    words = ["resume", folder] if folder.exists() else new
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*symbiont, *map(str, words)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (folder / CPU_FILE).write_text(json.dumps(took))


def measured(folder: Path) -> dict[str, Any]:
    """Reward, accuracy, length and empty answers of host and centre, and the centre's log-ratio."""
    run = Run.open(folder)
    items = draw_shifts(mixture(run.config), ["in-distribution"], PER_CELL, seed=run.config.seed)
    (centre,) = run.state.population
    store, reward = BlobStore(run.folder / "blobs"), reward_rules.build(run.config.reward)

    def weights_of(organelle_id: str) -> AdapterWeights:
        """Of the centre, at the end."""
        return store.weights(run.state.genome(organelle_id).weights)

    answers: dict[str, list[Rollout]] = {}
    for name in (HOST, centre):
        questions = [Question(item, name) for item in items]
        answers[name], _ = roll_out(questions, run.host, weights_of, Decoding())
    own = answers[centre]
    prompts, tokens = [one.item.prompt for one in own], [one.token_ids for one in own]
    of_host = run.host.score(prompts, tokens, [HOST_SLOT] * len(own))
    pairs = zip(own, of_host, strict=True)
    ratios = [one.log_probabilities - np.asarray(other) for one, other in pairs]
    return {
        "questions": len(items),
        "kl": float(np.concatenate(ratios).mean()),
        "host": facts(answers[HOST], reward),
        "centre": facts(own, reward),
        "generations": run.state.generation,
        "flops": run.state.spent.flops,
        "cpu_seconds": json.loads((folder / CPU_FILE).read_text()),
    }


def facts(answers: Sequence[Rollout], reward: Any) -> dict[str, float]:
    """Means over answers."""
    return {
        "reward": float(np.mean([reward(one) for one in answers])),
        "right": float(np.mean([one.verdict for one in answers])),
        "tokens": float(np.mean([len(one.token_ids) for one in answers])),
        "empty": float(np.mean([not one.text.strip() for one in answers])),
    }


def gains(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """What the centre gains on the host, over seeds: mean and 95 % interval."""
    found = {}
    for name in ("reward", "right") if len(rows) > 1 else ():
        centre, host = ([row[who][name] for row in rows] for who in ("centre", "host"))
        gain = paired_interval(centre, host)
        found[name] = [gain.estimate, gain.low, gain.high]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(200, 210)))
    parser.add_argument("--folder", type=Path, default=Path("artifacts/ascents"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.presets, arguments.seeds, arguments.folder, arguments.json)

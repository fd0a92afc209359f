"""Whether evolution strategies climb: several seeds of a preset, on questions that no member met.

For each seed, a run of the preset; then the bare host and the centre answer the same held-out
questions greedily. What is measured is the run's own reward, and beside it what rewards are hacked
by: the mean log-ratio of the centre's greedy answers to the host (nats per token), the
length of answers, and the share of answers without text. CPU seconds are those of the run's
process, over all its sittings, and null where one of them was killed with this program.

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
    results = {}
    for preset in presets:
        rows = []
        for seed in seeds:
            place = folder / f"{preset.replace('/', '-')}-{seed}"
            live(place, preset, seed)
            rows.append({"seed": seed, **measured(place)})
            print(preset, json.dumps(rows[-1]), flush=True)
        results[preset] = {"seeds": rows, "gains": gains(rows)}
        print(preset, json.dumps(results[preset]["gains"]))
    if json_file is not None:
        stored = json.loads(json_file.read_text())["presets"] if json_file.exists() else {}
        report = {"schema": 1, "presets": stored | results}
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def live(folder: Path, preset: str, seed: int) -> None:
    """The run to its end, and the CPU seconds that it took."""
    if folder.exists() and Run.open(folder).is_complete:
        return
    symbiont = [sys.executable, "-m", "symbiont_ecology"]
    new = ["run", preset, f"seed={seed}", "--out", folder, "--quiet"]
    words = ["resume", folder] if folder.exists() else new
    earlier = cpu_seconds(folder) if folder.exists() else 0.0
    (folder / CPU_FILE).unlink(missing_ok=True)  # who is killed leaves no wrong number
    before = _children_seconds()
    child = subprocess.Popen([*symbiont, *map(str, words)])
    try:
        if child.wait():
            raise subprocess.CalledProcessError(child.returncode, child.args)
    finally:
        child.wait()  # Ctrl-C reaches it as well: it saves, and only then its time is known
        if earlier is not None and folder.exists():
            (folder / CPU_FILE).write_text(json.dumps(earlier + _children_seconds() - before))


def cpu_seconds(folder: Path) -> float | None:
    """What a run took in all its sittings; None where that is not known."""
    file = folder / CPU_FILE
    return float(json.loads(file.read_text())) if file.exists() else None


def _children_seconds() -> float:
    """CPU seconds of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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
    replies = answers[centre]
    prompts, tokens = [r.item.prompt for r in replies], [r.token_ids for r in replies]
    of_host = run.host.score(prompts, tokens, [HOST_SLOT] * len(replies))
    pairs = zip(replies, of_host, strict=True)
    ratios = [reply.log_probabilities - np.asarray(scores) for reply, scores in pairs]
    return {
        "questions": len(items),
        "kl": float(np.concatenate(ratios).mean()),
        "host": facts(answers[HOST], reward),
        "centre": facts(replies, reward),
        "generations": run.state.generation,
        "flops": run.state.spent.flops,
        "cpu_seconds": cpu_seconds(folder),
    }


def facts(answers: Sequence[Rollout], reward: Any) -> dict[str, float]:
    """Means over answers."""
    return {
        "reward": float(np.mean([reward(answer) for answer in answers])),
        "right": float(np.mean([answer.verdict for answer in answers])),
        "tokens": float(np.mean([len(answer.token_ids) for answer in answers])),
        "empty": float(np.mean([not answer.text.strip() for answer in answers])),
    }


def gains(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """What the centre gains on the host, over seeds: mean and 95 % interval."""
    intervals = {}
    for name in ("reward", "right") if len(rows) > 1 else ():
        centre, host = ([row[side][name] for row in rows] for side in ("centre", "host"))
        gain = paired_interval(centre, host)
        intervals[name] = [gain.estimate, gain.low, gain.high]
    return intervals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(200, 210)))
    parser.add_argument("--folder", type=Path, default=Path("artifacts/ascents"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.presets, arguments.seeds, arguments.folder, arguments.json)

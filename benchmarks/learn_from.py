"""Learning from a log beside learning live: kinds that are found, and answers to unseen questions.

For each seed, one adapter per user lives in the world town, and all its replies are logged with
their verdicts. Then ``learn-from`` learns from that log, with families and without, and an ecology
lives in the same world. All are asked the same held-out questions, as the users judge them.

    python benchmarks/learn_from.py --json docs/results/learn_from.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from symbiont_ecology import Run
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.evaluation.measure import Evaluation
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.statistics import adjusted_rand, paired_interval
from symbiont_ecology.tasks.habitats import SyntheticHabitats

WORLD, PER_HABITAT = "habitats/town", 20
RATE = "strategy.learning_rate=0.01"


def main(seeds: list[int], json_file: Path | None) -> None:
    """Measures, prints a line per seed, and writes the figures."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            rows.append(_measured(Path(folder), seed))
            print(json.dumps(rows[-1]), flush=True)
    summary = {}
    for arm in ("per_habitat", "ecology"):
        gap = paired_interval([row["learned"] for row in rows], [row[arm] for row in rows])
        summary[f"learned - {arm}"] = [gap.estimate, gap.low, gap.high]
        print(f"learned - {arm}: {gap.estimate:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
    if json_file is not None:
        text = json.dumps({"schema": 1, "seeds": rows, "summary": summary}, indent=1)
        json_file.write_text(text + "\n", encoding="utf-8")


def _measured(folder: Path, seed: int) -> Mapping[str, float]:
    live = Run.start(
        WORLD, f"seed={seed}", "strategy=per_habitat", RATE, folder=folder / f"u{seed}"
    )
    ecology = Run.start(WORLD, f"seed={seed}", RATE, folder=folder / f"e{seed}").finish()
    log = folder / f"log-{seed}.jsonl"
    _write_log(live, log)
    world = mixture(live.config).habitats
    assert isinstance(world, SyntheticHabitats)
    items = world.drawn(PER_HABITAT, seed, "holdout")
    row: dict[str, float] = {"seed": seed, "rows": len(log.read_text().splitlines())}
    arms = {"per_habitat": live, "ecology": ecology}
    for name, words in {"learned": (), "without_families": ("--family", "none")}.items():
        out = folder / f"{name}-{seed}"
        command = [sys.executable, "-m", "symbiont_ecology", "learn-from", str(log), *words]
        quiet = ["--out", str(out), "--quiet"]
        subprocess.run([*command, *quiet], check=True, stdout=subprocess.DEVNULL)
        arms[name] = Run.open(out)
    for name, run in arms.items():
        evaluation: Evaluation = run.loaded.evaluate(items, live.host, "habitat")
        row[name] = float(np.mean(evaluation.verdicts))
        servers = [run.state.habitats[habitat].server for habitat in world.names]
        numbers = np.array([sorted(set(servers)).index(server) for server in servers])
        row[f"rand_{name}"] = adjusted_rand(numbers, world.kinds(1 << 20))
        row[f"adapters_{name}"] = len(set(servers))
    return row


def _write_log(live: Run, path: Path) -> None:
    """Lives a run, and writes every reply with its verdict."""
    host, asked_before = live.host, dict[str, int]()
    assert isinstance(host, HostKernel)
    with path.open("w", encoding="utf-8") as file:
        for generation in live:
            for name, habitat in generation.state.habitats.items():
                count = habitat.asked - asked_before.get(name, 0)
                asked_before[name] = habitat.asked
                for answer in habitat.answers[-count:] if count else ():
                    reply = host.tokenizer.decode(answer.token_ids, skip_special_tokens=True)
                    row: dict[str, object] = {
                        "habitat": name,
                        "family": answer.family,
                        "prompt": answer.prompt,
                    }
                    row |= {"reply": reply, "accepted": answer.is_accepted}
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(70, 80)))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(arguments.seeds, arguments.json)

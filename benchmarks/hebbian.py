"""What learning by forward passes alone comes to, and what it costs: four rules at equal useful
FLOPs.

    python benchmarks/hebbian.py [--seeds 12] [--json docs/results/hebbian.json]

On the embedded host one adapter lives with two families, under every rule with the same seeds, and
answers the same held-out questions at every budget, greedily and without noise. Settings are the
best of a small grid on seed 100, which is not reported. With ``--json`` the table in
docs/hebbian.md is written, too. Leaves with 1 unless the hebbian rule ends above no plasticity,
with a 95 % interval over seeds that excludes 0.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.config import HostConfig, LoopConfig, RunConfig, TasksConfig
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.engine.build import build_host, mixture
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.items import draw_items
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Learned
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.types import Decoding, Request
from symbiont_ecology.weights.blobs import BlobStore

PAGE = Path(__file__).parents[1] / "docs/hebbian.md"
FAMILIES = ("json.repair", "math.add")
BUDGETS = (6.25e9, 2.5e10, 1e11, 4e11)
"""Useful training FLOPs at which a run is measured; the last of them ends it."""
PER_CELL = 200
"""Held-out questions of each family."""
NARROW = ("down_proj",)
"""Fewer modules, less variance of a trace. Policy gradient does best with all of them."""
LOTS: dict[str, Any] = {"targets": NARROW, "questions": 8, "samples": 16, "learning_rate": 0.005}
RULES: dict[str, dict[str, Any]] = {
    "none": LOTS,
    "hebbian": {**LOTS, "perturbation": 2.0},
    "policy_gradient": {"targets": None, "questions": 4, "samples": 4, "learning_rate": 0.005},
    "expert_iteration": {"targets": NARROW, "questions": 8, "samples": 1, "learning_rate": 0.01},
}


@dataclass(frozen=True)
class Life:
    """One run: accuracy at each budget, rollouts, the part of its FLOPs that was learning, CPU
    seconds."""

    accuracy: tuple[float, ...]
    rollouts: int
    learning: float
    seconds: float


def main() -> int:
    """Runs every rule with every seed; 0 when the hebbian rule learns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    hosts = {setting["targets"]: build_host(configured(rule, 0)) for rule, setting in RULES.items()}
    lives: dict[str, list[Life]] = {rule: [] for rule in RULES}
    for seed in range(arguments.seeds):
        for rule, settings in RULES.items():
            lives[rule].append(live(configured(rule, seed), hosts[settings["targets"]]))
            print(seed, rule, lives[rule][-1], flush=True)
    result = summary(lives)
    print("PASS" if result["passed"] else "FAIL", json.dumps(result["hebbian - none"][-1]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        block, filled = r"(?s)(<!-- table -->\n).*?(<!-- /table -->)", rf"\1{table(result)}\2"
        PAGE.write_text(re.sub(block, filled, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0 if result["passed"] else 1


def configured(rule: str, seed: int) -> RunConfig:
    """One adapter under a rule, up to the first budget."""
    settings = dict(RULES[rule])
    noise = {"perturbation": settings.pop("perturbation")} if "perturbation" in settings else {}
    return RunConfig(
        seed=seed,
        host=HostConfig(slots=1, targets=settings.pop("targets")),
        tasks=TasksConfig(families=FAMILIES, depths=("short",)),
        strategy={"kind": "single", **settings},
        learning_rule={"kind": rule, **noise},
        run=LoopConfig(generations=10**6, checkpoint_every=10**6, train_flops=BUDGETS[0]),
    )


def live(config: RunConfig, host: Host) -> Life:
    """Lives a run from budget to budget."""
    began, seconds = time.process_time(), 0.0
    with tempfile.TemporaryDirectory(prefix="hebbian-") as name:
        folder, accuracy = Path(name) / "run", list[float]()
        start(config, folder, host=host)
        for budget in BUDGETS:
            if budget > BUDGETS[0]:
                began = time.process_time()
                resume(folder, overrides=[f"run.train_flops={budget}"], host=host)
            seconds += time.process_time() - began
            accuracy.append(examined(folder, config, host))
        train = checkpoint.load_state(folder).spent
        learned = sum(
            event.flops
            for event in read_events(folder / "events.jsonl")
            if isinstance(event, Learned)
        )
    return Life(tuple(accuracy), train.rows, round(learned / train.flops, 4), round(seconds, 1))


def examined(folder: Path, config: RunConfig, host: Host) -> float:
    """Share of the held-out questions that the one organelle of a run answers right."""
    (organelle,) = checkpoint.load_state(folder).population.values()
    host.place(0, BlobStore(folder / "blobs").weights(organelle.genome.weights))
    questions = draw_items(mixture(config), PER_CELL)
    texts = host.rollout(
        [Request(q.prompt, 0, q.reply_limit) for q in questions], None, Decoding()
    ).texts
    return float(np.mean([q.verifier(text) for q, text in zip(questions, texts, strict=True)]))


def summary(lives: dict[str, list[Life]]) -> dict[str, Any]:
    """Curves of all rules, and what the hebbian one gains on no learning at every budget."""
    curves = {
        rule: np.array([life.accuracy for life in rows]) for rule, rows in lives.items()
    }  # (seeds, budgets)
    gains = [
        asdict(paired_interval(*(curves[rule][:, place].tolist() for rule in ("hebbian", "none"))))
        for place in range(len(BUDGETS))
    ]
    return {
        "passed": gains[-1]["low"] > 0,
        "families": FAMILIES,
        "held_out": PER_CELL * len(FAMILIES),
        "seeds": len(lives["none"]),
        "train_flops": BUDGETS,
        "hebbian - none": gains,
        "rules": {
            rule: {
                **RULES[rule],
                "accuracy_mean": curves[rule].mean(0).round(4).tolist(),
                "accuracy_by_seed": curves[rule].round(4).tolist(),
                "rollouts": float(np.mean([life.rollouts for life in rows])),
                "learning_part_of_flops": round(
                    float(np.mean([life.learning for life in rows])), 4
                ),
                "cpu_seconds": round(float(np.mean([life.seconds for life in rows])), 1),
            }
            for rule, rows in lives.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """The curves in percent, a row per rule, and the gain of the hebbian one in points."""
    budgets = [f"{budget:.3g} FLOPs" for budget in result["train_flops"]]
    rows = [[f"percent right, mean of {result['seeds']} seeds", "rollouts", *budgets]]
    rows += [["---"] * len(rows[0])]
    for rule, row in result["rules"].items():
        shares = [f"{100 * share:.1f}" for share in row["accuracy_mean"]]
        rows += [[f"`{rule}`", f"{row['rollouts']:,.0f}", *shares]]
    gains = [
        {name: 100 * value for name, value in gain.items()} for gain in result["hebbian - none"]
    ]
    cells = ["{estimate:+.1f} [{low:+.1f}, {high:+.1f}]".format(**gain) for gain in gains]
    rows += [["hebbian − none, points [95 % over seeds]", "", *cells]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())

"""What admitted children of two organelles are worth on the embedded host, on questions nobody ever
met.

    python benchmarks/merging.py [--seeds 10] [--json docs/results/merging.json]

The world of config/experiments/life.yaml at rank 4, with merging switched on. Whenever the gate
admits a child, it and its parents as they are then answer the same held-out questions, in the cells
where the parents were at home, greedily. With ``--json`` the table in docs/merging.md is written,
too. Leaves with 1 unless the children beat the better of their parents, with a 95 % interval over
seeds that excludes 0.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from symbiont_ecology.config import load_config
from symbiont_ecology.ecology import EcologyState, Organelle
from symbiont_ecology.ecology.gate import Challenger
from symbiont_ecology.engine.build import build_host, mixture
from symbiont_ecology.engine.run import start
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.rng import Draw
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Decoding, Item, OrganelleId, Request, cell_name
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.blobs import BlobStore

ROOT = Path(__file__).parents[1]
PAGE, WORLD = ROOT / "docs/merging.md", ROOT / "config/experiments/life.yaml"
GENERATIONS, PER_CELL = 200, 100
CHANGES = (
    f"run.generations={GENERATIONS}",
    "run.checkpoint_every=1",  # so that whoever lives is on disk after every generation
    "host.rank=4",
    "strategy.mechanisms.merging={every: 5, at: 12000, questions: 4}",
)


@dataclass
class Child:
    """An admitted child: accuracy of its own and of its parents, how many of its answers differ
    from each parent's, in parts of 1, and how many generations it lived, up to the end of the
    run."""

    seed: int
    id: OrganelleId
    born: int
    cells: tuple[str, ...]
    accuracy: float
    parents: dict[OrganelleId, float]
    changed: dict[OrganelleId, float]
    generations: int = 0
    is_alive: bool = True

    @property
    def gain(self) -> float:
        """Over the better of its parents, chosen on the very questions that it is compared on."""
        return self.accuracy - max(self.parents.values())


class Observer:
    """Watches a run and examines every child that is admitted."""

    def __init__(self, seed: int, host: Host, tasks: TaskMixture, store: BlobStore) -> None:
        self.seed, self.host, self.tasks, self.store = seed, host, tasks, store
        self.proposed: dict[OrganelleId, Challenger] = {}
        self.children: dict[OrganelleId, Child] = {}
        self.bred = Counter[OrganelleId]()  # generations that each child of one parent lived

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """After every generation."""
        for organelle_id, organelle in state.population.items():
            if organelle_id in self.proposed and organelle_id not in self.children:
                self.children[organelle_id] = self._examined(organelle, state)
        self.bred.update(
            organelle_id for organelle_id, o in state.population.items() if len(o.parents) == 1
        )
        for child in self.children.values():
            child.is_alive = child.id in state.population
            child.generations += child.is_alive
        self.proposed |= {c.id: c for c in state.challengers.values() if len(c.parents) > 1}

    def _examined(self, child: Organelle, state: EcologyState) -> Child:
        homes = {name for cells in self.proposed[child.id].cells.values() for name in cells}
        items: list[Item] = []
        for cell in self.tasks.cells:
            if cell_name(cell) in homes:
                items += self.tasks.draw(
                    cell, PER_CELL, Draw(self.seed)("fresh", child.id, *cell), "holdout"
                )
        family = {child.id: self.store.weights(child.inborn)}
        for parent in child.parents:
            family[parent] = self.store.weights(state.population[parent].genome.weights)
        replies = answers(self.host, items, family)
        right = {
            organelle_id: float(
                np.mean([item.verifier(text) for item, text in zip(items, texts, strict=True)])
            )
            for organelle_id, texts in replies.items()
        }
        changed = {
            parent: float(
                np.mean([a != b for a, b in zip(replies[child.id], replies[parent], strict=True)])
            )
            for parent in child.parents
        }
        share = right.pop(child.id)
        return Child(self.seed, child.id, child.born, tuple(sorted(homes)), share, right, changed)


def answers(
    host: Host, items: Sequence[Item], family: Mapping[OrganelleId, AdapterWeights]
) -> dict[OrganelleId, tuple[str, ...]]:
    """What each of them says to the same questions, greedily."""
    replies = {}
    for slot, (organelle_id, weights) in enumerate(family.items()):
        host.place(slot, weights)
        rows = [Request(item.prompt, slot, item.reply_limit) for item in items]
        replies[organelle_id] = host.rollout(rows, None, Decoding()).texts
    return replies


def lived(seed: int) -> Observer:
    """One world, from beginning to end."""
    config = load_config(WORLD, [f"seed={seed}", *CHANGES])
    host = build_host(config)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        observer = Observer(seed, host, mixture(config), BlobStore(run / "blobs"))
        start(config, run, host=host, watch=observer)
    return observer


def summary(worlds: Sequence[Observer]) -> dict[str, Any]:
    """Everything, and the gain with its interval over seeds."""
    children = [child for world in worlds for child in world.children.values()]
    by_seed: dict[int, list[float]] = {}
    for child in children:
        by_seed.setdefault(child.seed, []).append(child.gain)
    means = [float(np.mean(gains)) for gains in by_seed.values()]
    return {
        "seeds": len(worlds),
        "generations": GENERATIONS,
        "per_cell": PER_CELL,
        "proposed": Counter(world.seed for world in worlds for _ in world.proposed),
        "gain": asdict(paired_interval(means, [0.0] * len(means))),
        "bred": [age for world in worlds for age in world.bred.values()],
        "children": [{**asdict(child), "gain": child.gain} for child in children],
    }


def told(result: dict[str, Any]) -> str:
    """The table of the page."""
    children, gain = result["children"], result["gain"]
    mean = {
        "child": np.mean([child["accuracy"] for child in children]),
        "better parent": np.mean([max(child["parents"].values()) for child in children]),
        "other parent": np.mean([min(child["parents"].values()) for child in children]),
    }
    worse = sum(child["gain"] < 0 for child in children)
    changed = min(min(child["changed"].values()) for child in children)
    ages, bred = [child["generations"] for child in children], result["bred"]
    seeds = len({child["seed"] for child in children})
    lines = [
        f"{result['seeds']} worlds of {result['generations']} generations: {len(children)} of "
        f"{sum(result['proposed'].values())} proposed children were admitted, in {seeds} of the "
        "worlds; "
        f"{result['per_cell']} held-out questions per cell.",
        "",
        "| on fresh questions of both parents' homes | |",
        "|---|---|",
        *(
            f"| accuracy of the {organelle_id} | {100 * value:.1f} % |"
            for organelle_id, value in mean.items()
        ),
        f"| child − better parent, mean over worlds | {100 * gain['estimate']:+.1f} points "
        f"[{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}] |",
        f"| children below their better parent | {worse} of {len(children)} |",
        f"| least share of answers that differ from a parent's | {100 * changed:.0f} % |",
        f"| generations that a child lived | median {np.median(ages):.0f}, {min(ages)} to "
        f"{max(ages)} |",
        f"| generations that the {len(bred)} children of one parent lived | median "
        f"{np.median(bred):.0f}, "
        f"{min(bred)} to {max(bred)} |",
        f"| alive at the end of the world | {sum(child['is_alive'] for child in children)} of "
        f"{len(children)} |",
    ]
    return "\n".join(lines)


def main() -> int:
    """Lives through all worlds; 0 when the promise is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    result = summary([lived(seed) for seed in track(range(arguments.seeds), "worlds")])
    print(told(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        block = re.compile(r"(<!-- children -->\n).*?(<!-- /children -->)", re.DOTALL)
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(block.sub(rf"\g<1>{told(result)}\n\2", text), encoding="utf-8")
    return 0 if result["gain"]["low"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

"""How often the instrument finds a difference where there is none: groups of runs that differ in
seed alone.

    python benchmarks/false_positives.py [--splits 200] [--pairs 8] [--processes 2] [--json FILE]

Every split founds two groups of toy runs of one config, asks each run the same holdout questions
through its learned router, pairs the groups as they come and tests the differences. No run serves
in two splits. The main test is ``sign_flip`` over the runs' accuracies: it is exact whatever the
spread looks like, and attains the largest multiple of 2 / 2ⁿ below the level. Its share of false
positives must lie in the central 95 % of a binomial of that chance. The t-test and the crossed
bootstrap (of fixed families) are reported beside it, with the band around the level itself. Leaves
with 1 when the main test is outside of its band.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.run import start
from symbiont_ecology.evaluation.items import draw_items
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.statistics import crossed_bootstrap, sign_flip
from symbiont_ecology.types import Item, cell_name

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from toy import ToyHost, toy_config, toy_ecology

LEVEL = 0.05
GENERATIONS = 8
PER_CELL = 12
"""Holdout questions of each of the toy's three cells."""


@dataclass(frozen=True)
class Split:
    """Two groups of runs that do not differ: their accuracies ``(2, pairs)``, and what each test
    says."""

    accuracies: np.ndarray
    sign_flip: float
    t_test: float
    is_zero_outside: bool
    """Whether the 95 % interval of the crossed bootstrap excludes 0."""


def main() -> int:
    """Runs all splits; 0 when the main test is wrong as often as it should be."""
    arguments = parse()
    began = time.perf_counter()
    with ProcessPoolExecutor(arguments.processes) as pool:
        splits = list(pool.map(partial(divide, arguments.pairs), range(arguments.splits)))
    result = summary(splits) | {"seconds": round(time.perf_counter() - began, 1)}
    print("PASS" if result["passed"] else "FAIL", json.dumps(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["passed"] else 1


def parse() -> argparse.Namespace:
    """The command line of this benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument(
        "--pairs", type=int, default=8, help="runs in each of the two groups of a split"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args()


def configured(seed: int) -> RunConfig:
    """A toy ecology that is still learning when it ends, so that its seeds differ in what they
    reach."""
    ecology = toy_ecology(founders=3, capacity=5, questions=2, samples=2)
    return toy_config(seed, GENERATIONS, strategy=ecology, checkpoint_every=GENERATIONS)


def divide(pairs: int, number: int) -> Split:
    """One split, from runs that no other split has."""
    questions = draw_items(mixture(configured(0)), PER_CELL)
    seeds = range(2 * pairs * number, 2 * pairs * (number + 1))
    with tempfile.TemporaryDirectory(prefix="false-positives-") as name:
        verdicts = np.array([examined(seed, Path(name) / str(seed), questions) for seed in seeds])
    groups = verdicts.reshape(2, pairs, len(questions))
    differences = groups[0] - groups[1]  # (pairs, questions)
    means = differences.mean(axis=1)
    names = [cell_name(item.cell) for item in questions]
    cells = np.unique(names, return_inverse=True)[1].tolist()
    interval = crossed_bootstrap(differences, cells, cells, number, 1 - LEVEL, is_clustered=False)
    return Split(
        groups.mean(axis=2),
        sign_flip(means.tolist()),
        float(stats.ttest_1samp(means, 0).pvalue) if np.ptp(means) else 1.0,
        not interval.low <= 0 <= interval.high,
    )


def examined(seed: int, folder: Path, questions: list[Item]) -> list[float]:
    """The verdicts on a run of that seed, question by question."""
    start(configured(seed), folder, host=ToyHost())
    return LoadedRun.of_run(folder).evaluate(questions, ToyHost(), "learned").verdicts


def summary(splits: list[Split]) -> dict[str, Any]:
    """Shares of false positives, each with the chance that it should have and the band around
    that."""
    accuracies = np.array([split.accuracies for split in splits])  # (splits, 2, pairs)
    pairs = accuracies.shape[2]
    attained = math.floor(LEVEL * 2 ** (pairs - 1)) / 2 ** (pairs - 1)
    tests = {
        "sign_flip": share([split.sign_flip <= LEVEL for split in splits], attained),
        "t_test": share([split.t_test <= LEVEL for split in splits], LEVEL),
        "crossed_bootstrap": share([split.is_zero_outside for split in splits], LEVEL),
    }
    return {
        "passed": tests["sign_flip"]["is_inside"],
        "main_test": "sign_flip",
        "splits": len(splits),
        "pairs": pairs,
        "generations": GENERATIONS,
        "questions_per_cell": PER_CELL,
        "level": LEVEL,
        "tests": tests,
        "accuracy_mean": round(float(accuracies.mean()), 4),
        "accuracy_deviation": round(float(accuracies.std(ddof=1)), 4),
    }


def share(found: list[bool], chance: float) -> dict[str, Any]:
    """How many were found, and the central 95 % of what ``chance`` alone would find, as shares."""
    low, high = (float(stats.binom.ppf(q, len(found), chance)) / len(found) for q in (0.025, 0.975))
    part = sum(found) / len(found)
    return {
        "found": sum(found),
        "share": round(part, 4),
        "expected": chance,
        "band": [low, high],
        "is_inside": low <= part <= high,
    }


if __name__ == "__main__":
    sys.exit(main())

"""What a generation of the default ecology spends on anything but the host: at most a tenth.

    python benchmarks/overhead.py [--quick] [--json FILE]

Whole runs of the demo, one per seed, with a clock around the host's two verbs (reading and
answering, and learning) and around each part of a generation. A part's time is its own: what other
parts and the host took in it is theirs. Events and checkpoints are counted; the start of a run is
not, since it is no generation.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from sides import arguments, machine, settle
from symbiont_ecology.config import load_config
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.engine import generation, living
from symbiont_ecology.engine.build import build_host
from symbiont_ecology.engine.run import start
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.event_log import EventLog
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.strategies.ecology import Ecology
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.weights.blobs import BlobStore

SEEDS, LIMIT = (0, 1, 2), 0.10
ANSWERING, LEARNING = "host: reading and answering", "host: learning"
PARTS: dict[tuple[Any, str], str] = {
    (Ecology, "ask"): "who is asked what",
    (TaskMixture, "draw"): "drawing questions",
    (generation, "act"): "rows, verdicts and their cost",
    (generation, "learn"): "lessons and their cost",
    (BlobStore, "put_weights"): "naming weights by their content",
    (BlobStore, "put_optimizer_state"): "naming weights by their content",
    (generation, "settle"): "the books",
    (generation, "update_posteriors"): "posteriors and archive",
    (Ecology, "tell"): "mechanisms decide",
    (EventLog, "emit"): "writing events",
    (living.LivingRun, "save"): "checkpoints",
    (living, "run_generation"): "everything else",
}
"""Where the clocks are, and what is shown for them."""


class Clocks:
    """Seconds by part; who is called by a part pauses its clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._paused: list[float] = []

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a clock."""

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            self._paused.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                duration = time.perf_counter() - began
                self.seconds[part] += duration - self._paused.pop()
                if self._paused:
                    self._paused[-1] += duration

        return timed


class TimedHost:
    """A host whose two verbs are clocked."""

    def __init__(self, host: Host, clocks: Clocks) -> None:
        self._host = host
        self.rollout = clocks.around(ANSWERING, host.rollout)
        self.learn = clocks.around(LEARNING, host.learn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def measure(seed: int, *extra: str) -> dict[str, Any]:
    """Milliseconds of a generation by part, and the share that is not the host's, over one whole
    run."""
    config = load_config("steady", [f"seed={seed}", *extra])
    host, clocks, marks = build_host(config), Clocks(), list[tuple[float, dict[str, float]]]()

    def watch(state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        marks.append((seconds, dict(clocks.seconds)))

    with tempfile.TemporaryDirectory() as folder:
        for (owner, name), part in PARTS.items():
            patch.object(owner, name, clocks.around(part, getattr(owner, name))).start()
        try:
            start(config, Path(folder) / "run", host=TimedHost(host, clocks), watch=watch)
        finally:
            patch.stopall()
    count, total = len(marks) - 1, sum(seconds for seconds, _ in marks[1:])  # the first warms up
    (_, first), (_, last) = marks[0], marks[-1]
    parts = {part: seconds - first.get(part, 0.0) for part, seconds in last.items()}
    rest = total - parts[ANSWERING] - parts[LEARNING]
    parts["everything else"] += total - sum(parts.values())
    return {
        "seed": seed,
        "generations": count,
        "share": rest / total,
        "milliseconds": {part: 1e3 * seconds / count for part, seconds in parts.items()},
    }


def main() -> None:
    """Prints the table; leaves with an error when the mean share is beyond the limit."""
    settle()
    options = arguments(__doc__ or "").parse_args()
    extra = ["run.generations=40", "run.train_flops=null"] if options.quick else []
    runs = [measure(seed, *extra) for seed in (SEEDS[:1] if options.quick else SEEDS)]
    share = sum(run["share"] for run in runs) / len(runs)
    table = Table("part", *(f"seed {run['seed']}, ms" for run in runs))
    for part in (ANSWERING, LEARNING, *dict.fromkeys(PARTS.values())):
        table.add_row(part, *(f"{run['milliseconds'][part]:.2f}" for run in runs))
    table.add_row("not the host", *(f"{run['share']:.1%}" for run in runs))
    Console().print(table)
    if options.json:
        report = {"machine": machine(), "limit": LIMIT, "share": share, "runs": runs}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if share > LIMIT:
        sys.exit(f"expected at most {LIMIT:.0%} of a generation outside the host, got {share:.1%}")


if __name__ == "__main__":
    main()

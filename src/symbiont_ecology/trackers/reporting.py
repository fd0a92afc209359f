"""Tells trackers of every generation. They may fail in any way: the run does not depend on them."""

from __future__ import annotations

import json
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.errors import EcologyWarning, RunError
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.files import write_whole
from symbiont_ecology.trackers import Plot, TrackedRun, trackers
from symbiont_ecology.types import cell_family

TRACKERS_FILE = "trackers.json"
"""In the folder of a run: its id, and the last generation that each tracker was told of."""
LONGEST_REASON = 200
"""Characters of a tracker's error that are shown."""


class Reports:
    """The curves of a run in the trackers that its config names.

    They begin with the first generation that is reported, so that a run without one leaves no
    trace. A tracker that fails is named in one warning, and left alone from then on.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._not_begun = tuple(dict.fromkeys(config.run.report_to))
        self._plots: dict[str, Plot] = {}
        self._contexts: dict[str, ExitStack] = {}
        self._id, self._reported = "", dict[str, int]()
        self._failed = set[str]()

    def __enter__(self) -> Reports:
        return self

    def __exit__(self, *_: object) -> None:
        for name, context in self._contexts.items():
            self._attempt(name, context.close)

    def report(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Adds a generation, and its wall-clock seconds, to the curves."""
        if self._not_begun:
            self._attempt(TRACKERS_FILE, partial(self._begin, summary.generation))
            self._not_begun = ()
        if not self._plots:
            return
        values = curve_values(state, summary, seconds)
        for name in list(self._plots):
            self._attempt(name, partial(self._plot, name, summary.generation, values))
            if name in self._failed:
                del self._plots[name]
        self._attempt(TRACKERS_FILE, self._remember)

    def _begin(self, first: int) -> None:
        """Begins the curves, or goes on with those of an earlier sitting."""
        self._recall()
        run = TrackedRun(self._id, self._folder, self._config, first)
        for name in self._not_begun:
            self._attempt(name, partial(self._begin_one, name, run))

    def _begin_one(self, name: str, run: TrackedRun) -> None:
        context = self._contexts[name] = ExitStack()
        self._plots[name] = context.enter_context(trackers.build(name).curves(run))

    def _plot(self, name: str, generation: int, values: dict[str, float]) -> None:
        if trackers[name].takes_back or generation > self._reported.get(name, -1):
            self._plots[name](generation, values)
            self._reported[name] = generation

    def _recall(self) -> None:
        path = self._folder / TRACKERS_FILE
        if not path.exists():
            # Not a named draw: two equal runs are two curves.
            self._id = uuid.uuid4().hex[:8]
            return
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._id, self._reported = str(stored["id"]), dict(stored["reported"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError("it is damaged: delete it, and the curves begin anew") from error

    def _remember(self) -> None:
        record = {"id": self._id, "reported": self._reported}
        write_whole(self._folder / TRACKERS_FILE, json.dumps(record) + "\n")

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        """Does something that may fail in any way; of each name the first failure is told."""
        try:
            action()
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                text = "".join(letter for letter in reason if letter.isprintable())
                warnings.warn(
                    f"{name} fails, and the run goes on without it: {text:.{LONGEST_REASON}}",
                    EcologyWarning,
                    stacklevel=2,
                )


def curve_values(state: EcologyState, summary: GenerationEnded, seconds: float) -> dict[str, float]:
    """The values of a generation: its summary, with energy in ATP, and success by family. In a
    world with habitats who serves them takes the place of families."""
    values: dict[str, float] = {
        "population": summary.population,
        "births": summary.births,
        "deaths": summary.deaths,
        "coverage": summary.coverage,
        "energy": summary.energy_total / 1000,
        "train_flops": summary.train_flops,
        "rows": summary.rows,
        "seconds": seconds,
    }
    if summary.accuracy is not None:  # nobody was asked
        values["accuracy"] = summary.accuracy
    if state.habitats:
        answers = [answer for habitat in state.habitats.values() for answer in habitat.answers]
        accepted = sum(answer.is_accepted for answer in answers)
        served = state.served
        values |= {
            "habitats": len(state.habitats),
            "habitats_served": sum(map(len, served.values())),
            "serving": len(served),
            "accepted_lately": accepted / max(len(answers), 1),
        }
        return values
    cells: dict[str, list[float]] = defaultdict(list)
    for cell, share in state.success.items():
        cells[cell_family(cell)].append(share)
    return values | {
        f"success/{family}": sum(shares) / len(shares) for family, shares in cells.items()
    }

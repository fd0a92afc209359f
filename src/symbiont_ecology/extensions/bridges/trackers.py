"""Curves of a run in TensorBoard, Trackio, and Weights & Biases, beside the run's own files.

A tracker is a class here. It says which package it needs, and how its curves are begun;
``CurveTracker`` does the rest.
"""

from __future__ import annotations

import json
import threading
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.run.config import RunConfig, dump_config
from symbiont_ecology.run.trackers import Generation, OnGeneration, trackers

PROJECT = "symbiont-ecology"
"""Name of the project in trackers that sort runs by project."""
TRACKERS_FILE = "trackers.json"
"""In the folder of a run: its id, and the last generation that each tracker was told of."""

Plot = Callable[[int, Mapping[str, float]], None]
"""Adds the values of one generation to the curves."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it. ``id`` stays the same however often it is resumed; ``first`` is
    the first generation that is reported in this sitting."""

    id: str
    folder: Path
    config: RunConfig
    first: int

    @property
    def name(self) -> str:
        """Name for people; other runs may have the same."""
        return self.folder.resolve().name


@dataclass(frozen=True)
class CurveTracker(ABC):
    """A tracker of curves.

    They begin with the first generation that is reported, so that a run without one leaves no
    trace. Unless a tracker ``takes_back`` points of ``TrackedRun.first`` and later generations
    that an earlier sitting has reported, it is not told of a generation twice.
    """

    package: ClassVar[str]
    takes_back: ClassVar[bool] = False

    @abstractmethod
    def curves(self, run: TrackedRun) -> AbstractContextManager[Plot]:
        """Begin the curves of a run or go on with them, until the context ends."""

    @contextmanager
    def follow(self, config: RunConfig, folder: Path) -> Iterator[OnGeneration]:
        name, plots, path = trackers.name_of(self), list[Plot](), folder / TRACKERS_FILE
        with ExitStack() as stack:

            def on_generation(generation: Generation) -> None:
                number, record = generation.summary.generation, _recalled(path)
                if not plots:
                    run = TrackedRun(record["id"], folder, config, number)
                    plots.append(stack.enter_context(self.curves(run)))
                if self.takes_back or number > record["reported"].get(name, -1):
                    record["reported"][name] = number
                    write_whole(path, json.dumps(record) + "\n")  # first: none is told twice
                    plots[0](number, curve_values(generation))

            yield on_generation


def _recalled(path: Path) -> dict[str, Any]:
    """Return id and reports of a run; an id that is new is no named draw: two equal runs are two
    curves."""
    if not path.exists():
        return {"id": uuid.uuid4().hex[:8], "reported": {}}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {"id": str(stored["id"]), "reported": dict(stored["reported"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path.name} is damaged: delete it, and curves begin anew") from error


def curve_values(generation: Generation) -> dict[str, float]:
    """Return the values of a generation: its summary, with energy in ATP, and success by family.
    In a world with habitats who serves them takes the place of families."""
    state, summary = generation.state, generation.summary
    names = ("population", "births", "deaths", "coverage", "train_flops", "rows")
    values: dict[str, float] = {name: getattr(summary, name) for name in names}
    values |= {"energy": summary.energy_total / 1000, "seconds": generation.seconds}
    if summary.accuracy is not None:  # nobody was asked
        values["accuracy"] = summary.accuracy
    if state.habitats:
        answers = [answer for habitat in state.habitats.values() for answer in habitat.answers]
        served = state.served
        return values | {
            "habitats": len(state.habitats),
            "habitats_served": sum(map(len, served.values())),
            "serving": len(served),
            "accepted_lately": sum(one.is_accepted for one in answers) / max(len(answers), 1),
        }
    cells: dict[str, list[float]] = defaultdict(list)
    for cell, share in state.success.items():
        cells[f"success/{cell_family(cell)}"].append(share)
    return values | {name: sum(shares) / len(shares) for name, shares in cells.items()}


@trackers.register("tensorboard")
@dataclass(frozen=True)
class TensorBoard(CurveTracker):
    """Event files in the folder ``tensorboard`` of the run, one for every sitting. The config is a
    text and the hyper-parameters. TensorBoard leaves out what a resumed run has lived again."""

    package: ClassVar[str] = "tensorboard"
    takes_back: ClassVar[bool] = True

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        place = str(run.folder / "tensorboard")
        with _quiet_threads(), SummaryWriter(place, purge_step=run.first) as writer:
            writer.add_text("config", f"```yaml\n{dump_config(run.config)}```", run.first)
            # Not add_hparams: it would make a second run in a folder of its own.
            for summary in hparams(_flat(run.config.model_dump(mode="json")), {"accuracy": 0}):
                writer.file_writer.add_summary(summary)

            def plot(generation: int, values: Mapping[str, float]) -> None:
                for name, value in values.items():
                    writer.add_scalar(name, value, generation)
                writer.flush()

            yield plot


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """Keep a thread of TensorBoard that dies, for example of a full disk, from printing a
    traceback: its error is raised again where the curves are drawn."""
    default_hook = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not type(failed.thread).__module__.startswith("tensorboard."):
            default_hook(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = default_hook


def _flat(value: object, key: str = "") -> dict[str, bool | int | float | str]:
    """Return nested values under dotted keys, as hyper-parameters must be."""
    if isinstance(value, dict):
        nested = [_flat(part, f"{key}.{name}" if key else name) for name, part in value.items()]
        return {name: leaf for leaves in nested for name, leaf in leaves.items()}
    return {key: value if isinstance(value, bool | int | float) else str(value)}


@trackers.register("trackio")
@dataclass(frozen=True)
class Trackio(CurveTracker):
    """A database for all runs of a user, on this machine unless trackio's own variables
    (``TRACKIO_DIR``, ``TRACKIO_SPACE_ID``) say otherwise."""

    package: ClassVar[str] = "trackio"

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        # Trackio prints to stdout when it is imported, begins and ends; stdout is for results.
        with redirect_stdout(StringIO()):
            import trackio

            tracked = trackio.init(
                PROJECT,
                # Trackio goes on with a run by its name, which other runs may have, too.
                name=f"{run.name}-{run.id}",
                resume="allow",
                config=run.config.model_dump(mode="json"),
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        try:
            yield lambda generation, values: tracked.log(dict(values), step=generation)
        finally:
            with redirect_stdout(StringIO()):
                tracked.finish()
                # Else trackio ends it again, in words, when the process ends.
                if trackio.context_vars.current_run.get() is tracked:
                    trackio.context_vars.current_run.set(None)


@trackers.register("wandb")
@dataclass(frozen=True)
class WeightsAndBiases(CurveTracker):
    """Files in the folder ``wandb`` of the run, one folder for every sitting. Nothing is uploaded,
    unless the variable ``WANDB_MODE`` or wandb's own settings say so; ``wandb sync`` does."""

    package: ClassVar[str] = "wandb"

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        import wandb

        is_chosen = "mode" in wandb.setup().settings.model_fields_set
        tracked = wandb.init(
            project=PROJECT,
            dir=str(run.folder),
            id=run.id,
            name=run.name,
            config=run.config.model_dump(mode="json"),
            resume="allow",
            reinit="create_new",  # another run of this process goes on beside it
            mode=None if is_chosen else "offline",
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,  # it would keep a diff of the folder that one happens to be in
                x_disable_stats=True,
                x_transaction_log_flush_interval=0.1,  # seconds; a kill takes what was not flushed
            ),
        )
        try:
            yield lambda generation, values: tracked.log(dict(values), step=generation, commit=True)
        finally:
            tracked.finish()

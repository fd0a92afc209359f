"""Curves of a run in TensorBoard, Trackio, and Weights & Biases, beside the run's own files.

A tracker is a class here. It says which package it needs, and how its curves are begun;
``CurveTracker`` does the rest.
"""

from __future__ import annotations

import json
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
class CurveTracker(ABC):
    """A tracker of curves.

    They begin with the first generation that is reported, so that a run without one leaves no
    trace. It is not told of a generation twice: what a resumed run lives again is the same.
    """

    package: ClassVar[str]

    @abstractmethod
    def curves(self, run: str, folder: Path, config: RunConfig) -> AbstractContextManager[Plot]:
        """Begin the curves of a run or go on with them, until the context ends. ``run`` is its id,
        which stays the same however often it is resumed."""

    @contextmanager
    def follow(self, config: RunConfig, folder: Path) -> Iterator[OnGeneration]:
        name, plots, path = trackers.name_of(self), list[Plot](), folder / TRACKERS_FILE
        with ExitStack() as stack:

            def on_generation(generation: Generation) -> None:
                number, record = generation.summary.generation, _recalled(path)
                if not plots:
                    curves = self.curves(record["id"], folder.resolve(), config)
                    plots.append(stack.enter_context(curves))
                if number > record["reported"].get(name, -1):
                    record["reported"][name] = number
                    write_whole(path, json.dumps(record) + "\n")  # first: none is told twice
                    plots[0](number, curve_values(generation))

            yield on_generation


def _recalled(path: Path) -> dict[str, Any]:
    """Return id and reports of a run; an id that is new is no named draw: two equal runs are two
    curves."""
    new = json.dumps({"id": uuid.uuid4().hex[:8], "reported": {}})
    try:
        stored = json.loads(path.read_text(encoding="utf-8") if path.exists() else new)
        return {"id": str(stored["id"]), "reported": dict(stored["reported"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path.name} is damaged: delete it, and curves begin anew") from error


def curve_values(generation: Generation) -> dict[str, float]:
    """Return the values of a generation: its summary, with energy in ATP, and success by family.
    In a world with users who serves them takes the place of families."""
    state, summary = generation.state, generation.summary
    names = ("population", "births", "deaths", "coverage", "train_flops", "rows")
    values: dict[str, float] = {name: getattr(summary, name) for name in names}
    values |= {"energy": summary.energy_total / 1000, "seconds": generation.seconds}
    if summary.accuracy is not None:  # nobody was asked
        values["accuracy"] = summary.accuracy
    if users := state.users.values():
        verdicts = [answer.is_accepted for user in users for answer in user.answers]
        lately = sum(verdicts) / max(len(verdicts), 1)
        serving = len(state.served)
        return values | {"users": len(users), "serving": serving, "accepted_lately": lately}
    cells: dict[str, list[float]] = defaultdict(list)
    for cell, share in state.success.items():
        cells[f"success/{cell_family(cell)}"].append(share)
    return values | {name: sum(shares) / len(shares) for name, shares in cells.items()}


@trackers.register("tensorboard")
@dataclass(frozen=True)
class TensorBoard(CurveTracker):
    """Event files in the folder ``tensorboard`` of the run, one for every sitting."""

    package: ClassVar[str] = "tensorboard"

    @contextmanager
    def curves(self, run: str, folder: Path, config: RunConfig) -> Iterator[Plot]:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(folder / "tensorboard")) as writer:
            writer.add_text("config", f"```yaml\n{dump_config(config)}```")

            def plot(generation: int, values: Mapping[str, float]) -> None:
                for name, value in values.items():
                    writer.add_scalar(name, value, generation)
                writer.flush()

            yield plot


@trackers.register("trackio")
@dataclass(frozen=True)
class Trackio(CurveTracker):
    """A database for all runs of a user, on this machine unless trackio's own variables
    (``TRACKIO_DIR``, ``TRACKIO_SPACE_ID``) say otherwise."""

    package: ClassVar[str] = "trackio"

    @contextmanager
    def curves(self, run: str, folder: Path, config: RunConfig) -> Iterator[Plot]:
        # Trackio prints to stdout when it is imported, begins and ends; stdout is for results.
        with redirect_stdout(StringIO()):
            import trackio

            # It goes on with a run by its name, which other runs may have, too.
            name, values = f"{folder.name}-{run}", config.model_dump(mode="json")
            tracked = trackio.init(PROJECT, name=name, resume="allow", config=values, embed=False)
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
    def curves(self, run: str, folder: Path, config: RunConfig) -> Iterator[Plot]:
        import wandb

        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,  # it would keep a diff of the folder that one happens to be in
            x_transaction_log_flush_interval=0.1,  # seconds; a kill takes what was not flushed
        )
        is_chosen = "mode" in wandb.setup().settings.model_fields_set
        with wandb.init(
            project=PROJECT,
            dir=str(folder),
            id=run,
            name=folder.name,
            config=config.model_dump(mode="json"),
            resume="allow",
            reinit="create_new",  # another run of this process goes on beside it
            mode=None if is_chosen else "offline",
            settings=settings,
        ) as tracked:
            yield lambda generation, values: tracked.log(dict(values), step=generation, commit=True)

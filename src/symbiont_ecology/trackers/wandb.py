"""Weights & Biases, offline: files in the folder of the run that ``wandb sync`` uploads."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.trackers import PROJECT, Plot, TrackedRun, trackers


@trackers.register("wandb")
@dataclass(frozen=True)
class WeightsAndBiases:
    """Files in the folder ``wandb`` of the run. Nothing is uploaded, unless the variable
    ``WANDB_MODE`` or wandb's own settings say so."""

    package: ClassVar[str] = "wandb"
    takes_back: ClassVar[bool] = False

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        """A folder for every sitting, all of them with the id of the run."""
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

        def plot(generation: int, values: Mapping[str, float]) -> None:
            """One step of the run."""
            tracked.log(dict(values), step=generation, commit=True)

        try:
            yield plot
        finally:
            tracked.finish()

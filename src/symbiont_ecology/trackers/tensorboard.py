"""TensorBoard: event files in the folder of the run. ``tensorboard --logdir artifacts``."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.config import dump_config
from symbiont_ecology.trackers import Plot, TrackedRun, trackers


@trackers.register("tensorboard")
@dataclass(frozen=True)
class TensorBoard:
    """Event files in the folder ``tensorboard`` of the run. The config is a text and the
    hyper-parameters. TensorBoard leaves out what a resumed run has lived again."""

    package: ClassVar[str] = "tensorboard"
    takes_back: ClassVar[bool] = True

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        """An event file for every sitting."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        place = str(run.folder / "tensorboard")
        with _quiet_threads(), SummaryWriter(place, purge_step=run.first) as writer:
            writer.add_text("config", f"```yaml\n{dump_config(run.config)}```", run.first)
            # Not add_hparams: it would make a second run in a folder of its own.
            for summary in hparams(_flat(run.config.model_dump(mode="json")), {"accuracy": 0}):
                writer.file_writer.add_summary(summary)

            def plot(generation: int, values: Mapping[str, float]) -> None:
                """A scalar of every value, on disk when this returns."""
                for name, value in values.items():
                    writer.add_scalar(name, value, generation)
                writer.flush()

            yield plot


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """A thread of TensorBoard that dies, for example of a full disk, prints no traceback: its error
    is raised again where the curves are drawn."""
    default_hook = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        """Tells of all other threads."""
        if not type(failed.thread).__module__.startswith("tensorboard."):
            default_hook(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = default_hook


def _flat(value: object, key: str = "") -> dict[str, bool | int | float | str]:
    """Nested values under dotted keys, as hyper-parameters must be."""
    if isinstance(value, dict):
        nested = [_flat(part, f"{key}.{name}" if key else name) for name, part in value.items()]
        return {name: leaf for leaves in nested for name, leaf in leaves.items()}
    return {key: value if isinstance(value, bool | int | float) else str(value)}

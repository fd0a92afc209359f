"""Trackio: a local database for all runs of a user. ``trackio show --project symbiont-ecology``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import ClassVar

from symbiont_ecology.trackers import PROJECT, Plot, TrackedRun, trackers


@trackers.register("trackio")
@dataclass(frozen=True)
class Trackio:
    """A database in trackio's own folder, on this machine unless trackio's own variables
    (``TRACKIO_DIR``, ``TRACKIO_SPACE_ID``) say otherwise."""

    package: ClassVar[str] = "trackio"
    takes_back: ClassVar[bool] = False

    @contextmanager
    def curves(self, run: TrackedRun) -> Iterator[Plot]:
        """The run of that name and id in the project, begun or continued."""
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

        def plot(generation: int, values: Mapping[str, float]) -> None:
            """One row of the database; trackio writes it within a second."""
            tracked.log(dict(values), step=generation)

        try:
            yield plot
        finally:
            with redirect_stdout(StringIO()):
                tracked.finish()
                # Else trackio ends it again, in words, when the process ends.
                if trackio.context_vars.current_run.get() is tracked:
                    trackio.context_vars.current_run.set(None)

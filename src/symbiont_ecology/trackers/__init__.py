"""Experiment trackers: where the curves of a run are drawn, beside its own files.

``run.report_to`` names them. A tracker is one file here. It says which package it needs, and how
its curves are begun; ``reporting`` does the rest. The package itself is imported when a run lives.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from symbiont_ecology.config import RunConfig
from symbiont_ecology.errors import MissingExtraError
from symbiont_ecology.registry import Registry

PROJECT = "symbiont-ecology"
"""What trackers that sort runs by project call ours."""

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
        """For people; other runs may have the same."""
        return self.folder.resolve().name


class Tracker(Protocol):
    """A frozen dataclass.

    Attributes:
        package: what must be installed; the extra of this package has the same name.
        takes_back: points of ``TrackedRun.first`` and later generations that an earlier sitting
            has reported are dropped. Another tracker is not told of a generation twice.
    """

    package: ClassVar[str]
    takes_back: ClassVar[bool]

    def curves(self, run: TrackedRun) -> AbstractContextManager[Plot]:
        """Begins the curves of a run or goes on with them, until the context ends."""


trackers: Registry[Tracker] = Registry("tracker", "symbiont_ecology.trackers")


def check_trackers(names: tuple[str, ...]) -> None:
    """Whether all of these trackers are known and installed; none is imported.

    Raises:
        ConfigError: no tracker has that name.
        MissingExtraError: its package is not installed.
    """
    for name in names:
        package = trackers[name].package
        if find_spec(package) is None:
            raise MissingExtraError(f"run.report_to: {name}", package, name)

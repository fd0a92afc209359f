"""Trackers: parts that follow a run generation by generation, and are closed when it ends.

``run.report_to`` names them. They may fail in any way: the run does not depend on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from symbiont_ecology.base.errors import EcologyWarning, MissingExtraError
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.transcripts import plain
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.run.config import RunConfig

MAX_REASON = 200
"""Characters of a tracker's error that are shown."""


@dataclass(frozen=True)
class Generation:
    """The state after one generation, its summary, and its wall-clock seconds."""

    state: EcologyState
    summary: GenerationEnded
    seconds: float


OnGeneration = Callable[[Generation], None]


class Tracker(Protocol):
    """A frozen dataclass.

    ``package`` must be installed; the extra of this package has the same name. It is imported when
    a run lives.
    """

    package: ClassVar[str]

    def follow(self, config: RunConfig, folder: Path) -> AbstractContextManager[OnGeneration]:
        """Begin to follow the run in a folder, or go on with it. What is entered is called after
        each generation, until the context ends."""


trackers: Registry[Tracker] = Registry("tracker", __name__)


def check_trackers(names: tuple[str, ...]) -> None:
    """Refuse trackers that are unknown or not installed; none is imported.

    Raises:
        ConfigError: no tracker has that name.
        MissingExtraError: its package is not installed.
    """
    for name in names:
        package = trackers[name].package
        if find_spec(package) is None:
            raise MissingExtraError(f"run.report_to: {name}", package, name)


class Followers:
    """The trackers that a config names. One that fails is named in one warning, and left alone
    from then on."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._followers = [_follower(name, config, folder) for name in config.run.report_to]
        self.tell(None)

    def tell(self, generation: Generation | None) -> None:
        """Call each tracker; without a generation they begin, or end."""
        for follower in self._followers:
            with suppress(StopIteration):
                follower.send(generation)

    def close(self) -> None:
        """End them all."""
        self.tell(None)


def _follower(
    name: str, config: RunConfig, folder: Path
) -> Generator[None, Generation | None, None]:
    try:
        with trackers.build(name).follow(config, folder) as tell:
            while (generation := (yield)) is not None:
                tell(generation)
    except Exception as error:  # foreign code, which may fail in any way
        reason = plain(f"{type(error).__name__}: {' '.join(str(error).split())}", MAX_REASON)
        line = f"{name} fails, and the run goes on without it: {reason}"
        warnings.warn(line, EcologyWarning, stacklevel=2)

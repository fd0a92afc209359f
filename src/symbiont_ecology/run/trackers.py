"""Trackers: parts that follow a run generation by generation, and are closed when it ends.

``run.report_to`` names them. They may fail in any way: the run does not depend on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
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
        self._contexts = {name: ExitStack() for name in config.run.report_to}
        self._callbacks: dict[str, OnGeneration] = {}
        self._failed = set[str]()
        for name in self._contexts:
            self._attempt(name, partial(self._begin, name, config, folder))

    def tell(self, generation: Generation) -> None:
        """Call each tracker."""
        for name in [name for name in self._contexts if name not in self._failed]:
            self._attempt(name, partial(self._callbacks[name], generation))

    def close(self) -> None:
        """End them all."""
        for name, context in self._contexts.items():
            self._attempt(name, context.close)

    def _begin(self, name: str, config: RunConfig, folder: Path) -> None:
        follower = trackers.build(name).follow(config, folder)
        self._callbacks[name] = self._contexts[name].enter_context(follower)

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # foreign code, which may fail in any way
            if name in self._failed:
                return
            self._failed.add(name)
            reason = plain(f"{type(error).__name__}: {' '.join(str(error).split())}", MAX_REASON)
            line = f"{name} fails, and the run goes on without it: {reason}"
            warnings.warn(line, EcologyWarning, stacklevel=2)

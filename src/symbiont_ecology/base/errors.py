"""Everything this library raises on purpose.

A message says what was expected, what came, and what to do. The command line prints it as one line
and leaves with ``exit_code``.
"""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


class EcologyError(Exception):
    """Base class: catch this to catch everything that the library raises on purpose."""

    exit_code = 1


class EcologyWarning(UserWarning):
    """Something that a user should know, although the work goes on: one line on stderr."""


class ConfigError(EcologyError, ValueError):
    """A config or a command line names something that does not exist or has the wrong type."""

    exit_code = 2


class DataError(EcologyError, ValueError):
    """A data file (holdout, selection, lines to learn from) breaks its schema."""

    exit_code = 2


class AdapterError(EcologyError, ValueError):
    """An adapter folder cannot be attached: damaged, of another host, or of a kind not
    supported."""

    exit_code = 2


class HostError(EcologyError):
    """The host model cannot be loaded, or it is not the host that a run was made with."""

    exit_code = 2


class RunError(EcologyError):
    """A run cannot go on: its folder is locked, damaged, or belongs to another config."""


class LockedError(RunError):
    """Another process is writing to a run."""


class MissingExtraError(EcologyError):
    """A package is not installed that only some uses need."""

    exit_code = 3

    def __init__(self, use: str, package: str, extra: str) -> None:
        super().__init__(
            f"{use} needs the package {package}: pip install 'symbiont-ecology[{extra}]'"
        )


def lines_of(error: BaseException) -> list[str]:
    """Return the text of an error, line by line without empty ones; the name of its type if it says
    nothing."""
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    return [line for line in lines if line] or [type(error).__name__]

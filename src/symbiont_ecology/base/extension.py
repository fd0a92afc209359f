"""Extensions: packages that add commands and parts to the core, which imports none of them.

An extension is a module with a value ``EXTENSION``. A distribution names the module in the
entry-point group ``symbiont_ecology.extensions``; those of this package are in ``extensions/``::

    EXTENSION = Extension(
        parts={"strategy": ("my_package.swarm",)},
        commands={"swarm": Command("my_package.cli:swarm", panel="Other methods")},
    )

Registering imports nothing heavy: modules of parts are imported when their registry is first used,
modules of commands when the command line is built.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from itertools import chain
from typing import Any

from symbiont_ecology.base.errors import ConfigError

GROUP = "symbiont_ecology.extensions"


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    target: str
    """``package.module:name`` of a function, or of a ``typer.Typer`` with subcommands."""
    panel: str = "More commands"
    """Heading under which ``symbiont --help`` lists it."""
    passes_unknown_options: bool = False

    def load(self) -> Any:
        """Return the function or the application."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class Extension:
    """Parts, commands and names that an extension adds."""

    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Modules that register parts, by the kind of their registry, such as ``learning rule``."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Modules of names that ``symbiont_ecology`` itself offers, such as ``Suite``."""


@cache
def extensions() -> Mapping[str, Extension]:
    """Return all installed extensions by name. Those of this package may have been taken out.

    Raises:
        ConfigError: an extension cannot be imported.
    """
    found = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            name = getattr(error, "name", None) or ""
            if isinstance(error, ModuleNotFoundError) and name.startswith(GROUP):
                continue
            raise ConfigError(
                f"extension {entry.value!r} cannot be imported ({error}): mend or uninstall the "
                "package that declares it"
            ) from error
    return found


def import_parts(kind: str) -> None:
    """Import the modules in which extensions register parts of a kind.

    Raises:
        ConfigError: one cannot be imported.
    """
    modules = [extension.parts.get(kind, ()) for extension in extensions().values()]
    for module in chain.from_iterable(modules):
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"extension module {module!r} cannot be imported ({error}): mend or uninstall it"
            ) from error


def commands() -> Mapping[str, Command]:
    """Return the commands of all extensions by name."""
    return ChainMap(*(dict(extension.commands) for extension in extensions().values()))


def names() -> Mapping[str, str]:
    """Return the modules of the names that extensions add to ``symbiont_ecology``."""
    return ChainMap(*(dict(extension.names) for extension in extensions().values()))

"""``list`` and ``explain``: every part that a config can name, with its knobs; presets and
protocols."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from symbiont_ecology.registry import Knob, Registry

REGISTRIES = {
    "tasks": "symbiont_ecology.tasks:tasks",
    "sources": "symbiont_ecology.tasks:task_sources",
    "graders": "symbiont_ecology.tasks.grading:graders",
    "styles": "symbiont_ecology.tasks.synthetic.styles:prompt_styles",
    "rewards": "symbiont_ecology.learning:reward_rules",
    "operators": "symbiont_ecology.operators:operators",
    "learning_rules": "symbiont_ecology.learning:learning_rules",
    "curricula": "symbiont_ecology.routing.curricula:curricula",
    "allocators": "symbiont_ecology.routing.allocators:allocators",
    "routings": "symbiont_ecology.inference.routings:routings",
    "shifts": "symbiont_ecology.evaluation.shifts:shifts",
    "routers": "symbiont_ecology.inference.routers:routers",
    "strategies": "symbiont_ecology.strategies:strategies",
    "mechanisms": "symbiont_ecology.strategies.mechanisms:mechanisms",
}
FILES = ("presets", "protocols")
"""Kinds that are YAML files: what ``run`` and what ``suite`` takes."""
KIND_NAMES = ", ".join([*REGISTRIES, *FILES])


def list_names(
    kind: Annotated[
        str | None, typer.Argument(help=f"One of {KIND_NAMES}.", show_default="all")
    ] = None,
) -> None:
    """List what a config can name, and the protocols of suites."""
    for one in [*REGISTRIES, *FILES] if kind is None else [_plural(kind)]:
        if kind is None:
            print(f"{one}:")
        for name, doc in _entries(one):
            print(f"{'  ' if kind is None else ''}{name:34s} {doc}".rstrip())


def explain(
    kind: Annotated[str, typer.Argument(help=f"One of {KIND_NAMES}; or config.")],
    name: Annotated[
        str | None, typer.Argument(help="As listed by symbiont list KIND.", show_default=False)
    ] = None,
) -> None:
    """Say what a part is and which knobs it has: explain strategies ecology; or explain config."""
    if kind == "config":
        return _explain_config()
    kind = _plural(kind)
    if name is None and kind not in (*REGISTRIES, *FILES):
        named = [one for one in REGISTRIES if kind in registry(one).names()]
        if named:
            raise ConfigError(
                f"{kind!r} is one of the {named[0]}: symbiont explain {named[0]} {kind}"
            )
        registry(kind)  # says which kinds there are
    if name is None:
        raise ConfigError(f"explain {kind}: expected a name too, see symbiont list {kind}")
    if kind in FILES:
        print(_find(kind, name).read_text(encoding="utf-8"), end="")
        return None
    about = registry(kind).describe(name)
    print(f"{name} ({about.kind}, {about.module})\n\n{about.doc}")
    if about.knobs:
        print()
        _tell_knobs(about.knobs)
    return None


def registry(kind: str) -> Registry[Any]:
    """The registry of a kind as the command line calls it.

    Raises:
        ConfigError: no such kind.
    """
    from symbiont_ecology.registry import did_you_mean

    if kind not in REGISTRIES:
        raise ConfigError(
            f"no kind {kind!r};{did_you_mean(kind, [*REGISTRIES, *FILES])} known: {KIND_NAMES}"
        )
    module, _, name = REGISTRIES[kind].partition(":")
    found: Registry[Any] = getattr(importlib.import_module(module), name)
    return found


def _entries(kind: str) -> list[tuple[str, str]]:
    """Names with the first sentence of what is said about them."""
    if kind in FILES:
        comments = {
            name: path.read_text(encoding="utf-8").splitlines()[0]
            for name, path in _files(kind).items()
        }
        return [
            (name, line.lstrip("# ") if line.startswith("#") else "")
            for name, line in comments.items()
        ]
    entries = registry(kind)
    return [(name, _first_sentence(entries.doc(name))) for name in entries.names()]


def _plural(kind: str) -> str:
    """The kind, also where one of it was named: ``protocol``, ``strategy``."""
    for one in (*REGISTRIES, *FILES):
        if kind in (one.removesuffix("s"), one.removesuffix("ies") + "y"):
            return one
    return kind


def _files(kind: str) -> dict[str, Path]:
    """The YAML files of a kind by name."""
    from symbiont_ecology.config import presets
    from symbiont_ecology.experiments.protocol import protocols

    return presets() if kind == "presets" else protocols()


def _find(kind: str, name: str) -> Path:
    """The file of that name."""
    from symbiont_ecology.config import find_preset
    from symbiont_ecology.experiments.protocol import find_protocol

    return find_preset(name) if kind == "presets" else find_protocol(name)


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<!et al\.)(?<=[.!?]) ", paragraph, maxsplit=1)[0]


def _explain_config() -> None:
    from symbiont_ecology import config
    from symbiont_ecology.economics.prices import Prices
    from symbiont_ecology.registry import knobs

    sections = {
        "": config.RunConfig,
        "host": config.HostConfig,
        "tasks": config.TasksConfig,
        "economy": Prices,
        "climate": config.Climate,
        "run": config.LoopConfig,
    }
    for prefix, schema in sections.items():
        print(f"{prefix or 'top level'}: {(schema.__doc__ or '').splitlines()[0]}")
        _tell_knobs(
            [knob for knob in knobs(schema) if prefix or knob.name not in sections],
            prefix and f"{prefix}.",
        )
        print()
    print(
        "A component, such as the strategy, is a name or {kind: name, knob: value}; "
        "its knobs: symbiont explain KIND NAME"
    )


def _tell_knobs(entries: Iterable[Knob], prefix: str = "") -> None:
    for knob in entries:
        value = "required" if knob.default is None else knob.default
        line = f"  {prefix}{knob.name} = {value}"
        print(f"{line:42s}  # {knob.comment}" if knob.comment else line)

"""``list`` and ``explain``: every part that a config can name, with its knobs; presets and
protocols."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Annotated, Any, get_type_hints

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import (
    Knob,
    Registry,
    did_you_mean,
    knobs,
    load_plugin,
    nested_schema,
)
from symbiont_ecology.base.shipped import find_preset, find_protocol, presets, protocols
from symbiont_ecology.cli.options import PluginsOption, argument

REGISTRIES = {
    "tasks": "symbiont_ecology.tasks:tasks",
    "sources": "symbiont_ecology.tasks:task_sources",
    "graders": "symbiont_ecology.tasks.grading:graders",
    "styles": "symbiont_ecology.tasks.synthetic.styles:prompt_styles",
    "rewards": "symbiont_ecology.ecology.learning:reward_rules",
    "operators": "symbiont_ecology.adapters.operators:operators",
    "learning_rules": "symbiont_ecology.ecology.learning:learning_rules",
    "curricula": "symbiont_ecology.ecology.routing.allocators:curricula",
    "allocators": "symbiont_ecology.ecology.routing.allocators:allocators",
    "routings": "symbiont_ecology.evaluate.routings:routings",
    "shifts": "symbiont_ecology.evaluate.shifts:shifts",
    "readers": "symbiont_ecology.evaluate.export:readers",
    "routers": "symbiont_ecology.ecology.routing.routers:routers",
    "strategies": "symbiont_ecology.ecology.strategies:strategies",
    "mechanisms": "symbiont_ecology.ecology.strategies.mechanisms:mechanisms",
    "executors": "symbiont_ecology.run.executors:executors",
    "trackers": "symbiont_ecology.run.trackers:trackers",
    "engines": "symbiont_ecology.model.engines:engines",
}
FILES = {"presets": (presets, find_preset), "protocols": (protocols, find_protocol)}
"""Kinds that are YAML files: what ``run`` and what ``suite`` takes."""
KINDS = (*REGISTRIES, *FILES)
KIND_NAMES = ", ".join(KINDS)


def list_names(
    kind: Annotated[str | None, argument(f"One of {KIND_NAMES}.", default="all")] = None,
    plugin: PluginsOption = None,
) -> None:
    """List what a config can name, and the protocols of suites."""
    for path in plugin or ():
        load_plugin(path)
    for listed in [kind] if kind else KINDS:
        if kind is None:
            print(f"{listed}:")
        for name, doc in _entries(listed).items():
            paragraph = " ".join(doc.partition("\n\n")[0].split())
            sentence = re.split(r"(?<!et al\.)(?<=[.!?]) ", paragraph, maxsplit=1)[0]
            print(f"{'  ' * (kind is None)}{name:34s} {sentence}".rstrip())


def explain(
    kind: Annotated[str, argument(f"One of {KIND_NAMES}; or config.")],
    name: Annotated[str | None, argument("As listed by symbiont list KIND.")] = None,
    plugin: PluginsOption = None,
) -> None:
    """Say what a part is and which knobs it has: explain strategies ecology; or explain config."""
    for path in plugin or ():
        load_plugin(path)
    if kind == "config":
        from symbiont_ecology.run.config import RunConfig

        _explain_config(RunConfig)
        print("A component is a name or {kind: name, knob: value}: symbiont explain KIND NAME")
    elif name is None:
        raise ConfigError(f"explain {kind}: expected a name too, see symbiont list {kind}")
    elif kind in FILES:
        print(FILES[kind][1](name).read_text(encoding="utf-8"), end="")
    else:
        parts = registry(kind)
        print(f"{name} ({parts.kind}, {parts[name].__module__})\n\n{parts.doc(name)}\n")
        _tell_knobs(knobs(parts[name]))


def registry(kind: str) -> Registry[Any]:
    """Return the registry of a kind as the command line calls it.

    Raises:
        ConfigError: no such kind.
    """
    if kind not in REGISTRIES:
        hint = did_you_mean(kind, KINDS)
        raise ConfigError(f"no kind {kind!r};{hint} known: {', '.join(KINDS)}")
    module, _, name = REGISTRIES[kind].partition(":")
    entries: Registry[Any] = getattr(importlib.import_module(module), name)
    return entries


def _entries(kind: str) -> dict[str, str]:
    """Return the docstrings of a kind by name; a YAML file's is the comment in front."""
    if kind not in FILES:
        return {name: registry(kind).doc(name) for name in registry(kind).names()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in FILES[kind][0]().items()}
    comments = {name: re.findall(r"\A(?:#.*\n)*", text)[0] for name, text in texts.items()}
    return {name: comment.replace("#", " ") for name, comment in comments.items()}


def _explain_config(schema: type, prefix: str = "") -> None:
    """Print the keys of a config, section by section."""
    inner = {name: nested_schema(hint) for name, hint in get_type_hints(schema).items()}
    print(f"{prefix or 'top level'}: {(schema.__doc__ or '').splitlines()[0]}")
    above = prefix and f"{prefix}."
    _tell_knobs((knob for knob in knobs(schema) if not inner[knob.name]), above)
    print()
    for name, part in inner.items():
        if part is not None:
            _explain_config(part, f"{above}{name}")


def _tell_knobs(entries: Iterable[Knob], prefix: str = "") -> None:
    for knob in entries:
        value = "required" if knob.default is None else knob.default
        line = f"  {prefix}{knob.name} = {value}"
        print(f"{line:42s}  # {knob.comment}" if knob.comment else line)

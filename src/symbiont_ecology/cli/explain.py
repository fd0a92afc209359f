"""``list`` and ``explain``: every part that a config can name, with its knobs; presets and
protocols."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from symbiont_ecology.cli.options import PluginsOption, argument
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
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
    "executors": "symbiont_ecology.engine.executors:executors",
    "trackers": "symbiont_ecology.trackers:trackers",
    "engines": "symbiont_ecology.host.engines:engines",
}
FILES = ("presets", "protocols")
"""Kinds that are YAML files: what ``run`` and what ``suite`` takes."""
KINDS = (*REGISTRIES, *FILES)
KIND_NAMES = ", ".join(KINDS)


def list_names(
    kind: Annotated[str | None, argument(f"One of {KIND_NAMES}.", default="all")] = None,
    plugin: PluginsOption = None,
) -> None:
    """List what a config can name, and the protocols of suites."""
    _load(plugin)
    indent = "  " if kind is None else ""
    for listed in KINDS if kind is None else [_plural(kind)]:
        if kind is None:
            print(f"{listed}:")
        for name, doc in _entries(listed):
            print(f"{indent}{name:34s} {doc}".rstrip())


def explain(
    kind: Annotated[str, argument(f"One of {KIND_NAMES}; or config.")],
    name: Annotated[str | None, argument("As listed by symbiont list KIND.")] = None,
    plugin: PluginsOption = None,
) -> None:
    """Say what a part is and which knobs it has: explain strategies ecology; or explain config."""
    _load(plugin)
    plural = _plural(kind)
    if kind == "config":
        _explain_config()
    elif name is None:
        raise ConfigError(_which_is_meant(plural))
    elif plural in FILES:
        print(_file(plural, name).read_text(encoding="utf-8"), end="")
    else:
        about = registry(plural).describe(name)
        print(f"{name} ({about.kind}, {about.module})\n\n{about.doc}")
        if about.knobs:
            print()
            _tell_knobs(about.knobs)


def registry(kind: str) -> Registry[Any]:
    """The registry of a kind as the command line calls it.

    Raises:
        ConfigError: no such kind.
    """
    if kind not in REGISTRIES:
        raise ConfigError(_unknown(kind))
    module, _, name = REGISTRIES[kind].partition(":")
    entries: Registry[Any] = getattr(importlib.import_module(module), name)
    return entries


def _load(plugins: list[Path] | None) -> None:
    from symbiont_ecology.registry import load_plugin

    for path in plugins or ():
        load_plugin(path)


def _plural(kind: str) -> str:
    """The kind, also where its singular was typed: ``protocol``, ``strategy``."""
    singulars = {name.removesuffix("s"): name for name in KINDS}
    singulars |= {name.removesuffix("ies") + "y": name for name in KINDS}
    return singulars.get(kind, kind)


def _which_is_meant(kind: str) -> str:
    """What to type instead of a kind without a name, or of a name without a kind."""
    if kind in KINDS:
        return f"explain {kind}: expected a name too, see symbiont list {kind}"
    for plural in REGISTRIES:
        if kind in registry(plural).names():
            return f"{kind!r} is one of the {plural}: symbiont explain {plural} {kind}"
    return _unknown(kind)


def _unknown(kind: str) -> str:
    from symbiont_ecology.registry import did_you_mean

    return f"no kind {kind!r};{did_you_mean(kind, KINDS)} known: {KIND_NAMES}"


def _entries(kind: str) -> list[tuple[str, str]]:
    """Names with the first sentence of what is said about them."""
    if kind not in FILES:
        entries = registry(kind)
        return [(name, _first_sentence(entries.doc(name))) for name in entries.names()]
    from symbiont_ecology.shipped import presets, protocols

    files = presets() if kind == "presets" else protocols()
    return [(name, _first_sentence(_comment(path))) for name, path in files.items()]


def _comment(file: Path) -> str:
    """What a YAML file says of itself, in front."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text("utf-8").splitlines())
    return " ".join(line.lstrip("# ") for line in lines)


def _file(kind: str, name: str) -> Path:
    """The YAML file of that name."""
    from symbiont_ecology.shipped import find_preset, find_protocol

    return find_preset(name) if kind == "presets" else find_protocol(name)


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<!et al\.)(?<=[.!?]) ", paragraph, maxsplit=1)[0]


def _explain_config() -> None:
    from symbiont_ecology import config
    from symbiont_ecology.economics.prices import Prices
    from symbiont_ecology.registry import knobs

    sections: dict[str, type] = {"": config.RunConfig, "host": config.HostConfig}
    sections |= {"tasks": config.TasksConfig, "tasks.flip": config.Flip}
    sections |= {"tasks.habitats": config.HabitatsConfig, "economy": Prices}
    sections |= {"climate": config.Climate, "run": config.LoopConfig}
    for prefix, schema in sections.items():
        print(f"{prefix or 'top level'}: {(schema.__doc__ or '').splitlines()[0]}")
        entries = [knob for knob in knobs(schema) if prefix or knob.name not in sections]
        _tell_knobs(entries, prefix and f"{prefix}.")
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

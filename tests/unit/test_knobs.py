"""Knobs: the default ecology has few, all together are bounded, and each says what it is."""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

import symbiont_ecology
from symbiont_ecology.base.registry import Registry, knobs
from symbiont_ecology.ecology.prices import Climate, Prices
from symbiont_ecology.run.config import HostConfig, LoopConfig, RunConfig
from symbiont_ecology.tasks.config import Flip, TasksConfig


def knobs_of(schema: Any) -> int:
    """Leaves of a schema: one for every field, or as many as the schema within it has."""
    if get_args(schema):
        return max(map(knobs_of, get_args(schema)))
    if not isinstance(schema, type) or not (is_dataclass(schema) or issubclass(schema, BaseModel)):
        return 1
    return sum(knobs_of(get_type_hints(schema)[knob.name]) for knob in knobs(schema))


def registries() -> dict[str, Registry[Any]]:
    """Every registry that a module of the library defines, but for those that need torch to be
    imported."""
    found: dict[str, Registry[Any]] = {}
    root = Path(symbiont_ecology.__file__).parent
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).with_suffix("")
        if place.parts[0] != "host" and "Registry(" in path.read_text(encoding="utf-8"):
            name = ".".join(("symbiont_ecology", *place.parts)).removesuffix(".__init__")
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, Registry):
                    found[value.kind] = value
    return found


def test_all_knobs_together_are_bounded() -> None:
    found = registries()
    assert {"task", "task source", "prompt style", "grader", "routing", "shift"} <= set(found)
    components = sum(knobs_of(entry[name]) for entry in found.values() for name in entry.names())
    assert knobs_of(RunConfig) + components <= 420


def test_every_knob_says_what_it_is_in_its_line() -> None:
    sections = (HostConfig, TasksConfig, Flip, Climate, LoopConfig, Prices)
    shown = [knob for section in sections for knob in knobs(section)]
    for registry in registries().values():
        shown += [knob for name in registry.names() for knob in registry.describe(name).knobs]
    assert [knob.name for knob in shown if not knob.comment] == []

"""Knobs: the default ecology has few, all together are bounded, and each says what it is."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import symbiont_ecology
from symbiont_ecology.base.registry import Registry, knobs
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.config import HostConfig, LoopConfig
from symbiont_ecology.tasks.config import Flip, TasksConfig


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


def test_every_knob_says_what_it_is_in_its_line() -> None:
    sections = (HostConfig, TasksConfig, Flip, LoopConfig, Prices)
    shown = [knob for section in sections for knob in knobs(section)]
    for registry in registries().values():
        shown += [knob for name in registry.names() for knob in knobs(registry[name])]
    assert [knob.name for knob in shown if not knob.comment] == []

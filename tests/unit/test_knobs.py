"""Knobs: the default ecology has few, all together are bounded, and each says what it is."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

import symbiont_ecology
from symbiont_ecology.base.registry import Registry, knobs
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.strategies.mechanisms.population import Breeding
from symbiont_ecology.run.config import HostConfig, LoopConfig, RunConfig
from symbiont_ecology.tasks.config import Flip, TasksConfig


def values_of(part: object) -> int:
    """Values that a part is made of, those of the parts within it included."""
    if isinstance(part, BaseModel):
        return sum(values_of(getattr(part, name)) for name in type(part).model_fields)
    if is_dataclass(part):
        return sum(values_of(getattr(part, field.name)) for field in fields(part) if field.init)
    return 1


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


def test_a_run_of_the_default_ecology_has_few_knobs() -> None:
    found, config = registries(), RunConfig(tasks=TasksConfig(families=("math.add",)))
    ecology = found["strategy"].build(config.strategy)
    (mutation,) = (way.mutation for way in ecology.built_mechanisms if isinstance(way, Breeding))
    chosen = {
        "learning rule": config.learning_rule,
        "reward rule": config.reward,
        "allocator": config.allocator,
        "curriculum": ecology.curriculum,
        "router": config.router,
        "prompt style": config.tasks.style,
        "operator": mutation,
    }
    parts = [
        config,
        ecology,
        *ecology.built_mechanisms,
        *(found[kind].build(spec) for kind, spec in chosen.items()),
    ]
    assert sum(map(values_of, parts)) <= 81


def test_all_knobs_together_are_bounded() -> None:
    found = registries()
    assert {"task", "task source", "prompt style", "grader", "routing", "shift"} <= set(found)
    components = sum(knobs_of(entry[name]) for entry in found.values() for name in entry.names())
    assert knobs_of(RunConfig) + components <= 420


def test_every_knob_says_what_it_is_in_its_line() -> None:
    sections = (HostConfig, TasksConfig, Flip, LoopConfig, Prices)
    shown = [knob for section in sections for knob in knobs(section)]
    for registry in registries().values():
        shown += [knob for name in registry.names() for knob in knobs(registry[name])]
    assert [knob.name for knob in shown if not knob.comment] == []

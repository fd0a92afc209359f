"""Everything that earlier versions had: names of parts, keys of configs and fields of files.

A part that is gone is refused in one line that says so. A name that changed is read under the new
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from symbiont_ecology.base.errors import ConfigError

V = TypeVar("V")
ADVICE = "leave it out, or use commit 2c78cec9; why is in docs/history/removed"
"""The last commit that has all of them, and the pages that keep their figures."""
REMOVED = {
    "mechanism": "canaries thrift",
    "strategy": "bank clove corp cycleqd ifca m2n2 mixing randopt swarm tpe",
    "engine": "sglang",
    "operator": "crossover fisher layers linear shrink slerp split",
    "learning rule": "heritable",
    "reward rule": "human",
    "grader": "contains regex",
    "allocator": "ucb",
    "routing": "cascade cell committed majority map scaled surest vote",
    "shift": "perturbed",
    "key of a protocol": "also chosen elicitation goals repeats",
    "key of task source 'file'": "config dataset split",
    "key of task source 'log'": "grade",
}
"""Names of parts, by kind."""
REMOVED_KEYS: Mapping[str, Mapping[str, object]] = {
    "run": {"mirror": None, "train_rollouts": None},
    "host": {"is_checkpointing": False},
    "climate": {"catastrophes": [], "toll": 0.5, "year": 0, "winter": 0.5},
}
"""Keys of configs, by section, with the values that old configs have there: these are read."""
RENAMED_KEYS = {"plasticity": "learning_rule"}
RENAMED_TASK_KEYS = {"habitats": "users"}
"""Keys of configs, on top and of the section ``tasks``, and what they are called now."""
FORMER_FIELDS = {"habitat": "user", "habitats": "users"}
"""Fields in files, and what they are called now."""


def with_present_fields(values: Mapping[str, V]) -> dict[str, V]:
    """Return what a file of any version says, under the names of today."""
    return {FORMER_FIELDS.get(name, name): value for name, value in values.items()}


def is_removed(kind: str, name: str) -> bool:
    """Return true for a part that an earlier version had."""
    return name in REMOVED.get(kind, "").split()


def refuse_removed(kind: str, name: str) -> None:
    """Refuse a part that is gone.

    Raises:
        ConfigError: it is.
    """
    if is_removed(kind, name):
        raise ConfigError(f"{kind} {name!r} is gone: {ADVICE}")

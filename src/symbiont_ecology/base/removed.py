"""Registered parts that are gone, with the figures that speak against them, and former names.

A config of an earlier version may still name one: it is refused in one line that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from symbiont_ecology.base.errors import ConfigError

V = TypeVar("V")
LAST_COMMIT = "2c78cec9"
"""The last commit that has all of them."""
RECORD = "docs/history/removed"
"""Folder of the pages that keep their figures."""
_NO_GRADIENT = "it stayed at the level of the host, 17 to 20 % right where one adapter has 96"
_ONE_RUN = "tuning left no merging in it, so its runs were those of specialists behind a router"
_BELOW = "the ecology was ahead of it in every world: take nearest"
_NO_BETTER = "the router alone answers as well in distribution: take learned"
_NO_PAGE = "packs of today do not show what it made"
REMOVED: Mapping[tuple[str, str], str] = {
    (
        "mechanism",
        "thrift",
    ): "ΔW × 0.65 after training keeps more, and it cost 6.1 points of a flip",
    ("mechanism", "canaries"): "no ablation saw an effect of it",
    **{("strategy", name): _NO_GRADIENT for name in ("corp", "randopt")},
    **{("strategy", name): _ONE_RUN for name in ("cycleqd", "m2n2", "swarm")},
    ("strategy", "mixing"): "no comparison measured it",
    ("strategy", "tpe"): "hyper is as good, 96 and 97 % right",
    ("engine", "sglang"): "it was never tried on a real server: take vllm",
    ("operator", "slerp"): "no preset or result used it: take svd",
    ("operator", "shrink"): "thrift alone used it",
    ("operator", "split"): "m2n2 alone used it",
    ("operator", "crossover"): "it mattered little what a crossover mixes: take directions",
    ("operator", "layers"): "it mattered little what a crossover mixes: take directions",
    ("learning rule", "heritable"): "no preset or comparison used it",
    ("reward rule", "human"): "symbiont serve asks people now",
    ("reward rule", "overlap"): "no preset or result used it: take shaped",
    (
        "reward rule",
        "graded",
    ): "no preset or result used it: take verdict, with the grader in grade",
    ("grader", "contains"): "a reply that lists many answers was right: take stated",
    ("grader", "regex"): "no preset used it: take a grader of your own",
    ("allocator", "ucb"): "no comparison used it: take thompson",
    **{("strategy", name): _BELOW for name in ("ifca", "clove", "bank")},
    ("routing", "majority"): "it was for randopt, which stayed at the host",
    **{
        ("routing", name): _NO_BETTER for name in ("vote", "cascade", "surest", "cell", "committed")
    },
    ("routing", "scaled"): "symbiont export --scale writes a part of an adapter",
    ("routing", "map"): "no comparison used it: take learned",
    ("shift", "perturbed"): "no comparison asked it",
    **{
        ("key of a protocol", name): _NO_PAGE for name in ("also", "chosen", "elicitation", "goals")
    },
    ("key of a protocol", "repeats"): "births and deaths have rates now",
}
"""Reasons by kind and name."""
FORMER_FIELDS = {"habitat": "user", "habitats": "users"}
"""Fields in the files of earlier versions, and what they are called now."""


def with_present_fields(values: Mapping[str, V]) -> dict[str, V]:
    """Return what a file of any version says, under the names of today."""
    return {FORMER_FIELDS.get(name, name): value for name, value in values.items()}


def is_removed(kind: str, name: str) -> bool:
    """Return true for a part that an earlier version had."""
    return (kind, name) in REMOVED


def refuse_removed(kind: str, name: str) -> None:
    """Refuse a part that is gone.

    Raises:
        ConfigError: it is.
    """
    if reason := REMOVED.get((kind, name)):
        raise ConfigError(
            f"{kind} {name!r} is gone, because {reason}: leave it out, or use commit "
            f"{LAST_COMMIT}; figures are in {RECORD}"
        )

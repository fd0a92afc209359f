"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.budget import milestones
from symbiont_ecology.engine.runtime import Host, Runtime
from symbiont_ecology.errors import ConfigError, DataError
from symbiont_ecology.inference.routers import routers
from symbiont_ecology.learning import learning_rules
from symbiont_ecology.routing.allocators import allocators
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.tasks import (
    WrittenFamily,
    prompt_styles,
    reward_rules,
    task_families,
    task_sources,
)
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.weights.blobs import BlobStore

EVALUATED = ("shared", "unrelated")
"""Roles of families that no adapter may train on."""


def components(config: RunConfig) -> tuple[Any, ...]:
    """Every part that a config names, built; equal parts look equal, defaults of their fields
    included.

    Raises:
        ConfigError: one line that says which key is wrong and how.
    """
    strategy = strategies.build(config.strategy)
    named = (
        (learning_rules, config.plasticity),
        (reward_rules, config.reward),
        (routers, config.router),
        (allocators, config.allocator),
        (prompt_styles, config.tasks.style),
    )
    return (strategy, *(registry.build(spec) for registry, spec in named))


def check(config: RunConfig) -> None:
    """Builds every part but the host, so that a mistake is found before a model is loaded.

    Raises:
        ConfigError: one line that says which key is wrong and how.
    """
    strategy, *_ = components(config)
    mixture(config)
    knobs = vars(strategy)
    if "ranks" in knobs and knobs["ranks"] < (founded := knobs["founders"] * config.host.rank):
        raise ConfigError(
            f"strategy.ranks: expected at least {founded}, host.rank ({config.host.rank}) for each of "
            f"{knobs['founders']} founders, got {knobs['ranks']}"
        )
    if knobs.get("samples") == 0 and not learning_rules.build(config.plasticity).sees_gold:
        raise ConfigError(
            "strategy.samples: 0 asks for no rollouts, and plasticity "
            f"{config.plasticity!r} learns from nothing else: set samples, or plasticity=supervised"
        )


def mixture(config: RunConfig) -> TaskMixture:
    """The task mix of a config; refuses families that adapters must not train on. Reads data, if it
    has any.

    Raises:
        ConfigError: the families do not fit each other, the depths or the flip.
        DataError: data cannot be read, or a split of them is empty.
    """
    roles = {name: task_families[name].role for name in task_families.names()}
    trainable = [name for name, role in roles.items() if role not in EVALUATED]
    written = _written(config)
    for name in config.tasks.families:
        if name in (family.name for family in written):
            continue
        if task_families[name].role in EVALUATED:
            raise ConfigError(
                f"tasks.families: {name!r} is kept for evaluation (family shift, {roles[name]}), "
                f"choose among {', '.join(trainable)}"
            )
    flip = config.tasks.flip
    if flip is not None and (unknown := set(flip.families) - set(config.tasks.families)):
        raise ConfigError(f"tasks.flip.families: {sorted(unknown)} are not among tasks.families")
    if flip is not None and (fixed := {family.name for family in written} & set(flip.families)):
        raise ConfigError(
            f"tasks.flip.families: {sorted(fixed)} are data, which have one convention only"
        )
    style = prompt_styles.build(config.tasks.style)
    if flip is not None and style.tells_convention:
        raise ConfigError(
            f"tasks.flip: style {config.tasks.style!r} says in the prompt which convention is wanted, "
            "so a change would be told: leave the flip out"
        )
    return TaskMixture(config.tasks.families, config.tasks.depths, style, flip, written=written)


def _written(config: RunConfig) -> tuple[WrittenFamily, ...]:
    """The families that are data, with lines for every depth and split that the config asks for."""
    sources = [task_sources.build(spec) for spec in config.tasks.sources]
    if taken := {source.name for source in sources} & set(task_families.names()):
        raise ConfigError(
            f"tasks.sources: {sorted(taken)} are names of task families: choose others"
        )
    written = tuple(source.family() for source in sources if source.name in config.tasks.families)
    for family in written:
        if missing := [depth for depth in config.tasks.depths if depth not in family.depths]:
            raise ConfigError(
                f"tasks.depths: {family.source} has no {' or '.join(missing)} lines: set "
                f"tasks.depths=[{','.join(family.depths)}], or say depths in a column 'depth'"
            )
        for depth in config.tasks.depths:
            counts = {split: len(family.part(depth, split)) for split in get_args(Split)}
            if not all(counts.values()):
                found = ", ".join(f"{count} {split}" for split, count in counts.items())
                raise DataError(
                    f"{family.source} is too small: of its {sum(counts.values())} {depth} lines {found}, and "
                    "each split needs one; about 7, 1 and 2 of 10 fall to them, so 50 lines do"
                )
    _check_apart(written)
    return written


@lru_cache(maxsize=16)
def _check_apart(written: tuple[WrittenFamily, ...]) -> None:
    """Refuses data with a prompt in common: it could train as the one and be held out as the other.

    Raises:
        DataError: there is such a prompt.
    """
    owner: dict[str, WrittenFamily] = {}
    for family in written:
        for line in family.lines:
            other = owner.setdefault(family.split_key(line.prompt), family)
            if other is not family:
                raise DataError(
                    f"{family.source} and {other.source} have the prompt {line.prompt!r:.60} in common, "
                    "which may be in train here and in holdout there: take it out of one"
                )


def build_host(config: RunConfig) -> Host:
    """Loads the host with the threads that the config names. Torch is imported here and not
    before."""
    import torch

    from symbiont_ecology.host.kernel import HostKernel

    torch.set_num_threads(config.host.threads)
    return HostKernel.from_pretrained(
        config.host.model,
        slots=config.host.slots,
        rank=config.host.rank,
        targets=config.host.targets,
        device=config.host.device,
        dtype=config.host.dtype,
        memory_mb=config.host.memory_mb,
        is_checkpointing=config.host.is_checkpointing,
        is_chat=prompt_styles.build(config.tasks.style).is_chat,
    )


def build_world(config: RunConfig, host: Host, folder: Path) -> Runtime:
    """All parts of a run around a host."""
    return Runtime(
        host=host,
        store=BlobStore(folder / "blobs"),
        scene=StrategyContext(
            mixture(config), config.economy, allocators.build(config.allocator), config.host.rank
        ),
        strategy=strategies.build(config.strategy),
        plasticity=learning_rules.build(config.plasticity),
        reward=reward_rules.build(config.reward),
        milestones=milestones(config),
        climate=config.climate,
    )

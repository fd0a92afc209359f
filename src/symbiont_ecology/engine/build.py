"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.world import Host, World
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.operators import operators
from symbiont_ecology.plasticity import plasticities
from symbiont_ecology.routing.allocators import allocators
from symbiont_ecology.routing.routers import routers
from symbiont_ecology.strategies import Scene, strategies
from symbiont_ecology.tasks import prompt_styles, reward_rules, task_families
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.weights.blobs import BlobStore


def check(config: RunConfig) -> None:
    """Builds every part but the host, so that a mistake is found before a model is loaded.

    Raises:
        ConfigError: one line that says which key is wrong and how.
    """
    strategy = strategies.build(config.strategy)
    if hasattr(strategy, "mutation"):
        operators.build(strategy.mutation)
    for registry, spec in (
        (plasticities, config.plasticity),
        (reward_rules, config.reward),
        (routers, config.router),
        (allocators, config.allocator),
    ):
        registry.build(spec)
    mixture(config)
    rule = plasticities.build(config.plasticity)
    if vars(strategy).get("samples") == 0 and not rule.sees_gold:
        raise ConfigError(
            "strategy.samples: 0 asks for no rollouts, and plasticity "
            f"{config.plasticity!r} learns from nothing else: set samples, or plasticity=supervised"
        )


def mixture(config: RunConfig) -> TaskMixture:
    """The task mix of a config; refuses families that adapters must not train on."""
    kept = {name: task_families[name].role for name in task_families.names()}
    trainable = [name for name, role in kept.items() if role not in ("shared", "unrelated")]
    for name in config.tasks.families:
        if task_families[name].role in ("shared", "unrelated"):
            raise ConfigError(
                f"tasks.families: {name!r} is kept for evaluation (family shift, {kept[name]}), "
                f"choose among {', '.join(trainable)}"
            )
    flip = config.tasks.flip
    if flip is not None and (unknown := set(flip.families) - set(config.tasks.families)):
        raise ConfigError(f"tasks.flip.families: {sorted(unknown)} are not among tasks.families")
    return TaskMixture(
        config.tasks.families, config.tasks.depths, prompt_styles.build(config.tasks.style), flip
    )


def build_host(config: RunConfig) -> Host:
    """Loads the host with the threads that the config names. Torch is imported here and not before."""
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


def build_world(config: RunConfig, host: Host, folder: Path) -> World:
    """All parts of a run around a host."""
    return World(
        host=host,
        store=BlobStore(folder / "blobs"),
        scene=Scene(mixture(config), config.economy, allocators.build(config.allocator), config.host.rank),
        strategy=strategies.build(config.strategy),
        plasticity=plasticities.build(config.plasticity),
        reward=reward_rules.build(config.reward),
        train_flops=config.run.train_flops,
    )

"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.fence import blamed
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE, TranscriptLog
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.ecology.learning import LearningRule, RewardRule, learning_rules, reward_rules
from symbiont_ecology.ecology.learning.rules import NoLearning
from symbiont_ecology.ecology.routing.allocators import Allocator, allocators
from symbiont_ecology.ecology.routing.routers import Router, routers
from symbiont_ecology.ecology.strategies import Strategy, strategies
from symbiont_ecology.ecology.strategies.ecology import Ecology
from symbiont_ecology.ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.model.engines import engines
from symbiont_ecology.model.locating import lacks_chat_template
from symbiont_ecology.run.budget import milestones
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.executors import KernelSource, executors
from symbiont_ecology.run.runtime import Host, Runtime
from symbiont_ecology.run.trackers import check_trackers
from symbiont_ecology.tasks import Task, task_sources, tasks
from symbiont_ecology.tasks.data import DataTask, check_apart, check_splits
from symbiont_ecology.tasks.logs import LogTask, users_of
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles
from symbiont_ecology.tasks.users import SyntheticUsers, Users


class Components(NamedTuple):
    """The parts that a config names, built once and passed on. Equal parts look equal, default
    fields included."""

    strategy: Strategy
    learning_rule: LearningRule
    reward: RewardRule
    router: Router
    allocator: Allocator
    style: PromptStyle


def components(config: RunConfig) -> Components:
    """Build every part that a config names.

    Raises:
        ConfigError: one line that says which key is wrong and how.
    """
    return Components(
        strategies.build(config.strategy),
        learning_rules.build(config.learning_rule),
        reward_rules.build(config.reward),
        routers.build(config.router),
        allocators.build(config.allocator),
        prompt_styles.build(config.tasks.style),
    )


def check(config: RunConfig, *, is_new: bool = False) -> None:
    """Build every part but the host, so that a mistake is found before a model is loaded.

    Raises:
        ConfigError: one line that says which key is wrong and how.
        MissingExtraError: the package of the executor or of a tracker is not installed.
        AdapterError: a new run founds with an adapter that cannot be used.
    """
    with blamed(ConfigError):
        parts, mix = components(config), mixture(config)
        executors.build(config.executor).check()
        engines.build(config.host.engine).check(config.host.slots)
        check_trackers(config.run.report_to)
        parts.strategy.check(config.host.rank, parts.learning_rule)
        if is_new and isinstance(parts.strategy, Ecology):
            for mechanism in parts.strategy.built_mechanisms:
                mechanism.check(config.host.rank, config.host.model)
        faults = [
            *_misfits(config, parts),
            *_misfits_of_style(config, parts.style, mix),
            *_misfits_of_world(config, parts.strategy, mix),
            *_unanswered(config, parts, mix),
        ]
        if faults:
            raise ConfigError(faults[0])


def _misfits(config: RunConfig, parts: Components) -> Iterator[str]:
    """Yield which parts of a config do not go together, and would do nothing, or something else."""
    rule, reward, name = parts.learning_rule, parts.reward, kind_of(config.learning_rule)
    places = kind_of(config.host.engine) == "kernel", kind_of(config.executor) == "local"
    if not (all(places) if rule.estimator else any(places)):
        yield (
            f"learning_rule: {name!r} works within the kernel, and engines in this process: set "
            "host.engine=kernel and executor=local"
        )
    if rule.needs_verdicts and not reward.follows_verdict:
        yield (
            f"reward: {name} imitates what is worth 1: expected one that is 1 for right answers, "
            f"got {kind_of(config.reward)!r}: set reward=verdict"
        )
    is_comparing = parts.strategy.compares_rewards and isinstance(rule, NoLearning)
    if reward.reads and not is_comparing:
        yield (
            f"reward: nobody replies where {kind_of(config.reward)} reads reference answers: set "
            "learning_rule=none and strategy=es or strategy=genetic, or another reward"
        )
    if config.learns_from_log and (rule.estimator or parts.strategy.samples != 1):
        yield (
            "tasks: a logged question has one reply, by somebody else: set strategy.samples=1 and "
            "learning_rule=expert_iteration"
        )


def _misfits_of_style(config: RunConfig, style: PromptStyle, mix: TaskMixture) -> Iterator[str]:
    """Yield what a style of prompts would tell, or what it needs of the host's files."""
    is_secret = config.tasks.flip or isinstance(mix.users, SyntheticUsers)
    is_told = style.tells_convention and any(isinstance(one, SyntheticTask) for one in mix.tasks)
    if is_secret and is_told:
        yield f"tasks.style: {config.tasks.style!r} tells what is right, which is to be found out"
    if style.is_chat and lacks_chat_template(config.host.model):
        yield (
            f"tasks.style: expected a host with a chat template, {config.host.model!r} has none: "
            "set tasks.style.is_chat=false"
        )


def _misfits_of_world(config: RunConfig, strategy: Strategy, mix: TaskMixture) -> Iterator[str]:
    """Yield why a strategy does not fit a world with users, or one without."""
    where = f"strategy: {kind_of(config.strategy)!r}"
    if config.tasks.users is None:
        if "cells" not in strategy.worlds:
            yield f"{where} is about users: set tasks.users, as in the preset habitats/town"
        return
    if "users" not in strategy.worlds:
        parts = strategy.built_mechanisms if isinstance(strategy, Ecology) else ()
        kinds = [mechanisms.name_of(part) for part in parts if "users" not in part.worlds]
        if kinds:
            yield (
                f"strategy.mechanisms: {kinds[0]!r} is for worlds without users: set "
                f"strategy.mechanisms.{kinds[0]}=false"
            )
        else:
            yield f"{where} asks its own questions, as users do: take another"
    if "kinds" in strategy.wants and not isinstance(mix.users, SyntheticUsers):
        yield f"{where} is told kinds of users, which data do not say: take another"


def _unanswered(config: RunConfig, parts: Components, mix: TaskMixture) -> Iterator[str]:
    """Yield what learns from reference answers where tasks have none."""
    readers = {
        "reward": parts.reward.sees_gold,
        "learning_rule": parts.learning_rule.sees_gold,
        "strategy.warm": parts.strategy.warm,
    }
    for key in (key for key, reads in readers.items() if reads):
        for family, depth in mix.cells:
            task, generator = mix.families[family], Draw(config.seed)("read", family, depth)
            if isinstance(task, LogTask) or not task.sample(depth, generator).answer:
                yield f"{key}: expected reference answers, {family!r} has none: leave it out"


def mixture(config: RunConfig) -> TaskMixture:
    """Return the task mix of a config. Reads the data, if it has any.

    Raises:
        ConfigError: the tasks do not fit each other, the depths or the flip, or adapters must not
            train on them.
        DataError: data cannot be read, or a split of them is empty.
    """
    style, depths = prompt_styles.build(config.tasks.style), config.tasks.depths
    chosen = _tasks(config, style)
    mix = TaskMixture(chosen, depths, config.tasks.flip, arrivals=config.tasks.arrivals)
    data = tuple(task for task in chosen if isinstance(task, DataTask))
    mix.check()
    if config.tasks.users:
        mix = replace(mix, users=_users(config, mix))
    elif with_users := [task for task in data if task.users]:
        raise ConfigError(
            f"{with_users[0].source} says who asks, and the config has no users: set "
            "tasks.users, such as tasks.users.questions=24"
        )
    data = tuple(task for task in data if not isinstance(task, LogTask))
    for task in data:
        check_splits(task, mix.depths_of(task))
    check_apart(data)
    return mix


def _tasks(config: RunConfig, style: PromptStyle) -> tuple[Task, ...]:
    """Return the tasks that a config names, in its order and style."""
    sources = {source.name: source for source in map(task_sources.build, config.tasks.sources)}
    chosen: list[Task] = []
    for name in config.tasks.families:
        task = sources[name].task() if name in sources else tasks.build(name)
        if task.role != "trained":
            raise ConfigError(f"tasks.families: {name!r} is kept for evaluation: choose another")
        chosen.append(task.in_style(style) if isinstance(task, SyntheticTask | DataTask) else task)
    return tuple(chosen)


def _users(config: RunConfig, mix: TaskMixture) -> Users:
    """Return the users of a config: of synthetic tasks, or those that data bring."""
    users = config.tasks.users
    assert users is not None
    if config.train_budgets:
        key = f"run.{config.train_budgets[0]}"
        raise ConfigError(f"{key}: users end a run by run.generations alone: set {key}=null")
    if mix.flip or mix.arrivals:
        raise ConfigError("tasks.users change by drift_at: set tasks.flip=null and no arrivals")
    brought = (task.own_users(users) for task in mix.tasks)
    if own := next((found for found in brought if found is not None), None):
        return own
    data = tuple(task for task in mix.tasks if isinstance(task, DataTask))
    if len(data) == len(mix.tasks):
        return users_of(data, users, config.seed)
    return SyntheticUsers(users, mix.tasks, mix.cells, config.seed)


def host_source(config: RunConfig) -> KernelSource:
    """Return the recipe of the host of a config."""
    return KernelSource(config.host, prompt_styles.build(config.tasks.style).is_chat)


def build_host(config: RunConfig) -> Host:
    """Load the host of a config, where its executor has it and with what answers in its place."""
    source = host_source(config)
    if kind_of(config.executor) == "local":
        return engines.build(config.host.engine).host(source.load)
    return executors.build(config.executor).host(source)


def build_runtime(config: RunConfig, host: Host, folder: Path) -> Runtime:
    """Return all parts of a run around a host."""
    parts = components(config)
    return Runtime(
        host=host,
        store=BlobStore(folder / "blobs"),
        tasks=mixture(config),
        prices=config.economy,
        allocator=parts.allocator,
        rank=config.host.rank,
        strategy=parts.strategy,
        learning_rule=parts.learning_rule,
        reward=parts.reward,
        practice=Decoding(parts.learning_rule.temperature, stop=parts.style.stops),
        transcripts=TranscriptLog(folder / TRANSCRIPTS_FILE, config.run.transcripts),
        milestones=milestones(config),
    )

"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError, DataError
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
from symbiont_ecology.model.locating import has_chat_template
from symbiont_ecology.run.config import HostConfig, RunConfig
from symbiont_ecology.run.executors import executors
from symbiont_ecology.run.runtime import Host, Runtime
from symbiont_ecology.run.trackers import check_trackers
from symbiont_ecology.tasks import Task, task_sources, tasks
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.logs import LogTask, users_of
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles
from symbiont_ecology.tasks.users import SyntheticUsers, Users

if TYPE_CHECKING:
    from symbiont_ecology.model.codec import CodecReader
    from symbiont_ecology.model.kernel import HostKernel


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


def check(config: RunConfig) -> None:
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
    if style.is_chat and has_chat_template(config.host.model) is False:
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
        where = f"strategy.mechanisms: {kinds[0]!r}" if kinds else where
        yield f"{where} asks its own questions, as users do: switch it off (false)"
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
    _check_depths(mix)
    _check_changes(config, mix)
    if config.tasks.users:
        mix = replace(mix, users=_users(config, mix))
    elif with_users := [task for task in data if task.users]:
        raise ConfigError(
            f"{with_users[0].source} says who asks, and the config has no users: set "
            "tasks.users, such as tasks.users.questions=24"
        )
    data = tuple(task for task in data if not isinstance(task, LogTask))
    for task in data:
        _check_splits(task, mix.depths_of(task))
    _check_apart(data)
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


def _check_depths(mix: TaskMixture) -> None:
    choices = list(dict.fromkeys(depth for task in mix.tasks for depth in task.depths))
    unknown = [depth for depth in mix.depths or () if depth not in choices]
    if bad := unknown or [task.name for task in mix.tasks if not mix.depths_of(task)]:
        raise ConfigError(
            f"tasks.depths: {mix.depths} do not fit {bad[0]!r}: choose among {', '.join(choices)}"
        )


def _check_changes(config: RunConfig, mix: TaskMixture) -> None:
    """Refuse a flip, or families that arrive, which do not fit the tasks."""
    flip, coming = config.tasks.flip, len(mix.tasks) - 1
    if mix.arrivals and len(mix.arrivals) != coming:
        raise ConfigError(
            f"tasks.arrivals: expected {coming} moments, one for each family after the first, got "
            f"{len(mix.arrivals)}"
        )
    flippable = [task.name for task in mix.tasks if task.flipped() is not None]
    if fixed := set(flip.families if flip else ()).difference(flippable):
        raise ConfigError(
            f"tasks.flip.families: {sorted(fixed)} are not among tasks.families, or have one way "
            "to be right only"
        )
    if config.tasks.users and (flip or mix.arrivals):
        raise ConfigError("tasks.users change by drift_at: set tasks.flip=null and no arrivals")


def _users(config: RunConfig, mix: TaskMixture) -> Users:
    """Return the users of a config: of synthetic tasks, or those that data bring."""
    users = config.tasks.users
    assert users is not None
    if config.train_budgets:
        key = f"run.{config.train_budgets[0]}"
        raise ConfigError(f"{key}: users end a run by run.generations alone: set {key}=null")
    brought = (task.own_users(users) for task in mix.tasks)
    if own := next((found for found in brought if found is not None), None):
        return own
    data = tuple(task for task in mix.tasks if isinstance(task, DataTask))
    if len(data) == len(mix.tasks):
        return users_of(data, users, config.seed)
    return SyntheticUsers(users, mix.tasks, mix.cells, config.seed)


def _check_splits(task: DataTask, depths: tuple[str, ...]) -> None:
    """Refuse data without lines of every split at some depth."""
    for depth in depths:
        counts = {split: len(task.part(depth, split)) for split in get_args(Split)}
        if not all(counts.values()):
            parts = ", ".join(f"{count} {split}" for split, count in counts.items())
            raise DataError(
                f"{task.source} is too small: of its {sum(counts.values())} {depth} lines {parts}, "
                "and each split needs one; about 7, 1 and 2 of 10 fall to them, so 50 lines do"
            )


@lru_cache(maxsize=16)
def _check_apart(data: tuple[DataTask, ...]) -> None:
    """Refuse a prompt that two tasks have: it could train as the one, be held out as the other."""
    owner: dict[str, DataTask] = {}
    for task in data:
        for line in task.lines:
            first = owner.setdefault(task.split_key(line.question), task)
            if first is not task:
                raise DataError(
                    f"{task.source} and {first.source} have the prompt {line.prompt!r:.60} in "
                    "common, which may be in train here and in holdout there: take it out of one"
                )


@dataclass(frozen=True)
class KernelSource:
    """Recipe of the host of a config, for whatever process its executor wants it in. Torch is
    imported when it is loaded, and not before."""

    config: HostConfig
    is_chat: bool
    threads: int
    needs_gpu: bool

    def load(self, slots: int | None = None) -> HostKernel:
        """Load the host in this process."""
        import torch

        from symbiont_ecology.model.kernel import HostKernel

        torch.set_num_threads(self.config.threads)
        knobs = self.config.model_dump(exclude={"model", "threads", "engine"})
        knobs["slots"] = slots or self.config.slots
        return HostKernel.from_pretrained(self.config.model, **knobs, is_chat=self.is_chat)

    def reader(self, vocab: int) -> CodecReader:
        """Return its tokenizer alone."""
        from symbiont_ecology.model.codec import CodecReader

        return CodecReader.of(self.config.model, vocab, self.is_chat)


def host_source(config: RunConfig) -> KernelSource:
    """Return the recipe of the host of a config."""
    host, is_chat = config.host, prompt_styles.build(config.tasks.style).is_chat
    return KernelSource(host, is_chat, host.threads, host.device.startswith("cuda"))


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
    )

"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

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
from symbiont_ecology.ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.model.engines import engines
from symbiont_ecology.model.locating import has_chat_template
from symbiont_ecology.run.config import HostConfig, RunConfig
from symbiont_ecology.run.executors import executors
from symbiont_ecology.run.runtime import Host, Reporter, Runtime
from symbiont_ecology.run.trackers import check_trackers
from symbiont_ecology.tasks import Task, task_sources, tasks
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.data_habitats import habitats_of
from symbiont_ecology.tasks.habitats import Habitats, SyntheticHabitats
from symbiont_ecology.tasks.logs import LogTask
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles

if TYPE_CHECKING:
    from symbiont_ecology.model.codec import CodecReader
    from symbiont_ecology.model.kernel import HostKernel


@dataclass(frozen=True)
class Components:
    """The parts that a config names, built once and passed on. Equal parts look equal, default
    fields included."""

    strategy: Strategy
    learning_rule: LearningRule
    reward: RewardRule
    router: Router
    allocator: Allocator
    style: PromptStyle

    def __iter__(self) -> Iterator[object]:
        return iter(vars(self).values())


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
        _check_host(config, parts.learning_rule)
        check_trackers(config.run.report_to)
        parts.strategy.check(config.host.rank, parts.learning_rule)
        _check_rewards(config, parts)
        _check_answers(config, parts, mix)
        _check_habitats(config, parts.strategy, mix)
        if any(isinstance(task, LogTask) for task in mix.tasks):
            _check_log(config, parts)
        if parts.style.is_chat and has_chat_template(config.host.model) is False:
            raise ConfigError(
                f"tasks.style: expected a host with a chat template, {config.host.model!r} has "
                "none: set tasks.style.is_chat=false, or choose another host"
            )
        if is_new and (faults := parts.strategy.founding_faults(config.host.rank)):
            raise ConfigError(faults[0])


def _check_host(config: RunConfig, rule: LearningRule) -> None:
    engine, executor = kind_of(config.host.engine), kind_of(config.executor)
    executors.build(config.executor).check()
    engines.build(config.host.engine).check(config.host.slots)
    if rule.estimator is not None and (engine, executor) != ("kernel", "local"):
        raise ConfigError(
            f"learning_rule: {kind_of(config.learning_rule)!r} works within the kernel, so "
            "expected host.engine=kernel and executor=local: set both, or another rule"
        )
    if engine != "kernel" and executor != "local":
        raise ConfigError(
            f"executor: expected local beside host.engine {engine!r}, which spreads its work by "
            f"itself, got {executor!r}"
        )


def _check_rewards(config: RunConfig, parts: Components) -> None:
    """Refuse a reward that the strategy or the learning rule can do nothing with."""
    reward, rule, name = parts.reward, kind_of(config.learning_rule), kind_of(config.reward)
    if parts.learning_rule.needs_verdicts and not reward.follows_verdict:
        raise ConfigError(
            f"reward: {rule} imitates what is worth 1, so expected one that is 1 for right "
            f"answers, got {name!r}: set reward=verdict, or learning_rule=policy_gradient"
        )
    nobody = f"reward: nobody replies where {name} reads reference answers"
    if reward.reads and not parts.strategy.compares_rewards:
        raise ConfigError(
            f"{nobody}, so expected a strategy that only compares rewards, got "
            f"{kind_of(config.strategy)!r}: set strategy=es or strategy=genetic, or another reward"
        )
    if reward.reads and not isinstance(parts.learning_rule, NoLearning):
        raise ConfigError(
            f"{nobody}, so there is nothing to learn from, got learning_rule {rule!r}: set "
            "learning_rule=none, or another reward"
        )


def _check_answers(config: RunConfig, parts: Components, mix: TaskMixture) -> None:
    """Refuse tasks without reference answers where something learns from them."""
    readers = {
        "reward": parts.reward.sees_gold,
        "learning_rule": parts.learning_rule.sees_gold,
        "strategy.warm": parts.strategy.warm,
    }
    for key in (key for key, reads in readers.items() if reads):
        for family, depth in mix.cells:
            task, generator = mix.families[family], Draw(config.seed)("read", family, depth)
            if isinstance(task, LogTask) or not task.sample(depth, generator).answer:
                raise ConfigError(
                    f"{key}: expected tasks with reference answers, and {family!r} has none: leave "
                    f"it out, or change {key}"
                )


def _check_habitats(config: RunConfig, strategy: Strategy, mix: TaskMixture) -> None:
    """Refuse a strategy that does not fit a world with habitats, or one without."""
    where = f"strategy: {kind_of(config.strategy)!r}"
    if config.tasks.habitats is None:
        if "cells" not in strategy.worlds:
            raise ConfigError(
                f"{where} is about habitats: set tasks.habitats, as in the preset habitats/town"
            )
        return
    misfits = [
        kind for kind in strategy.mechanism_names if "habitats" not in mechanisms[kind].worlds
    ]
    where = f"strategy.mechanisms: {misfits[0]!r}" if misfits else where
    if "habitats" not in strategy.worlds:
        raise ConfigError(f"{where} asks its own questions, as habitats do: switch it off (false)")
    if "kinds" in strategy.wants and not isinstance(mix.habitats, SyntheticHabitats):
        raise ConfigError(f"{where} is told kinds of habitats, which data do not say: take another")


def _check_log(config: RunConfig, parts: Components) -> None:
    """Refuse a strategy or a rule that cannot learn from replies that others gave."""
    if parts.learning_rule.estimator is not None:
        raise ConfigError(
            f"learning_rule: {kind_of(config.learning_rule)!r} learns while the kernel answers, "
            "and a log has replies of others: choose another one, such as expert_iteration"
        )
    if (samples := parts.strategy.samples) != 1:
        raise ConfigError(
            f"strategy.samples: a logged question has one reply, got {samples}: leave it out"
        )


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
    _check_changes(config, mix, style)
    if config.tasks.habitats:
        mix = replace(mix, habitats=_habitats(config, mix, style))
    elif with_habitats := [task for task in data if task.habitats]:
        raise ConfigError(
            f"{with_habitats[0].source} says who asks, and the config has no habitats: set "
            "tasks.habitats, such as tasks.habitats.questions=24"
        )
    data = tuple(task for task in data if not isinstance(task, LogTask))
    for task in data:
        _check_splits(task, mix.depths_of(task))
    _check_apart(data)
    return mix


def _tasks(config: RunConfig, style: PromptStyle) -> tuple[Task, ...]:
    """Return the tasks that a config names, in its order and style."""
    sources = {source.name: source for source in map(task_sources.build, config.tasks.sources)}
    if taken := set(sources) & set(tasks.names()):
        raise ConfigError(f"tasks.sources: {sorted(taken)} are names of tasks: choose others")
    chosen: list[Task] = []
    for name in config.tasks.families:
        task = sources[name].task() if name in sources else tasks.build(name)
        if task.role != "trained":
            trainable = [option for option in tasks.names() if tasks[option].role == "trained"]
            raise ConfigError(
                f"tasks.families: {name!r} is kept for evaluation ({task.role}), choose among "
                f"{', '.join(trainable)}"
            )
        chosen.append(task.in_style(style) if isinstance(task, SyntheticTask | DataTask) else task)
    return tuple(chosen)


def _check_depths(mix: TaskMixture) -> None:
    choices = list(dict.fromkeys(depth for task in mix.tasks for depth in task.depths))
    if missing := [depth for depth in mix.depths or () if depth not in choices]:
        raise ConfigError(
            f"tasks.depths: no task has the depth {missing[0]!r}: choose among {', '.join(choices)}"
        )
    if empty := [task for task in mix.tasks if not mix.depths_of(task)]:
        raise ConfigError(
            f"tasks.depths: expected one of {', '.join(empty[0].depths)} for {empty[0].name!r}: "
            "add it, or leave the task out"
        )


def _check_changes(config: RunConfig, mix: TaskMixture, style: PromptStyle) -> None:
    """Refuse a flip, or families that arrive, which do not fit the tasks."""
    flip, by_name = config.tasks.flip, {task.name: task for task in mix.tasks}
    if mix.arrivals and len(mix.arrivals) != len(mix.tasks) - 1:
        raise ConfigError(
            f"tasks.arrivals: expected {len(mix.tasks) - 1} moments, one for each family after the "
            f"first, got {len(mix.arrivals)}"
        )
    if flip is None:
        return
    if unknown := set(flip.families) - set(by_name):
        raise ConfigError(f"tasks.flip.families: {sorted(unknown)} are not among tasks.families")
    if fixed := [name for name in flip.families if by_name[name].flipped() is None]:
        raise ConfigError(f"tasks.flip.families: {fixed} have one way to be right only")
    if style.tells_convention:
        raise ConfigError(
            f"tasks.flip: style {config.tasks.style!r} tells what is right, so a change would be "
            "told: leave the flip out"
        )


def _habitats(config: RunConfig, mix: TaskMixture, style: PromptStyle) -> Habitats:
    """Return the habitats of a config: of synthetic tasks, or those that data bring."""
    habitats = config.tasks.habitats
    assert habitats is not None
    if config.train_budgets:
        key = f"run.{config.train_budgets[0]}"
        raise ConfigError(f"{key}: habitats end a run by run.generations alone: set {key}=null")
    brought = (task.own_habitats(habitats) for task in mix.tasks)
    if own := next((found for found in brought if found is not None), None):
        return own
    data = tuple(task for task in mix.tasks if isinstance(task, DataTask))
    if len(data) == len(mix.tasks):
        return habitats_of(data, habitats, config.seed)
    if fixed := [task.name for task in mix.tasks if task.variants == 1]:
        raise ConfigError(
            f"tasks.habitats: {fixed[0]!r} has one way to be right only, and kinds of habitats "
            "need several: leave it out, or take data that say who asks"
        )
    if mix.flip or mix.arrivals:
        key = "flip" if mix.flip else "arrivals"
        raise ConfigError(f"tasks.{key}: habitats change by tasks.habitats.drift_at: leave it out")
    if style.tells_convention and any(isinstance(task, SyntheticTask) for task in mix.tasks):
        raise ConfigError(
            f"tasks.habitats: style {config.tasks.style!r} tells what is right, so kinds would be "
            "told: choose another one"
        )
    return SyntheticHabitats(habitats, mix.tasks, mix.cells, config.seed)


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

    @property
    def threads(self) -> int:
        """CPU threads that a copy computes with."""
        return self.config.threads

    @property
    def needs_gpu(self) -> bool:
        """True if a copy takes a GPU."""
        return self.config.device.startswith("cuda")

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
    return KernelSource(config.host, prompt_styles.build(config.tasks.style).is_chat)


def build_host(config: RunConfig) -> Host:
    """Load the host of a config, where its executor has it and with what answers in its place."""
    source = host_source(config)
    if kind_of(config.executor) == "local":
        return engines.build(config.host.engine).host(source.load)
    return executors.build(config.executor).host(source)


def build_runtime(
    config: RunConfig, host: Host, folder: Path, reporter: Reporter | None = None
) -> Runtime:
    """Return all parts of a run around a host."""
    parts = components(config)
    return Runtime(
        host=host,
        store=BlobStore(folder / "blobs"),
        tasks=mixture(config),
        prices=config.economy,
        climate=config.climate,
        allocator=parts.allocator,
        rank=config.host.rank,
        strategy=parts.strategy,
        learning_rule=parts.learning_rule,
        reward=parts.reward,
        practice=Decoding(parts.learning_rule.temperature, stop=parts.style.stops),
        transcripts=TranscriptLog(folder / TRANSCRIPTS_FILE, config.run.transcripts),
        reporter=reporter or Reporter(),
    )

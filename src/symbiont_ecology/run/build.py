"""The composition root: the one place that turns a config into parts."""

from __future__ import annotations

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
from symbiont_ecology.ecology.learning import learning_rules, reward_rules
from symbiont_ecology.ecology.learning.rules import NoLearning
from symbiont_ecology.ecology.routing.allocators import allocators
from symbiont_ecology.ecology.routing.routers import routers
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.model.chat_template import has_chat_template
from symbiont_ecology.model.engines import engines
from symbiont_ecology.run.config import HostConfig, RunConfig
from symbiont_ecology.run.executors import executors
from symbiont_ecology.run.runtime import Host, Runtime
from symbiont_ecology.run.trackers import check_trackers
from symbiont_ecology.run.warm import warm_examples
from symbiont_ecology.tasks import Task, task_sources, tasks
from symbiont_ecology.tasks.config import HabitatsConfig
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.habitats import Habitats, SyntheticHabitats, habitats_of
from symbiont_ecology.tasks.logs import LogTask
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.model.reading import CodecReader


def components(config: RunConfig) -> tuple[object, ...]:
    """Every part that a config names, built; equal parts look equal, default fields included.

    Raises:
        ConfigError: one line that says which key is wrong and how.
    """
    return (
        strategies.build(config.strategy),
        learning_rules.build(config.learning_rule),
        reward_rules.build(config.reward),
        routers.build(config.router),
        allocators.build(config.allocator),
        prompt_styles.build(config.tasks.style),
    )


def check(config: RunConfig) -> None:
    """Builds every part but the host, so that a mistake is found before a model is loaded.

    Raises:
        ConfigError: one line that says which key is wrong and how.
        MissingExtraError: the package of the executor or of a tracker is not installed.
    """
    with blamed(ConfigError):
        _check(config)


def _check(config: RunConfig) -> None:
    components(config)
    executors.build(config.executor).check()
    engine, rule = engines.build(config.host.engine), learning_rules.build(config.learning_rule)
    is_kernel, is_local = (
        kind_of(config.host.engine) == "kernel",
        kind_of(config.executor) == "local",
    )
    if rule.estimator is not None and not (is_kernel and is_local):
        raise ConfigError(
            f"learning_rule: {kind_of(config.learning_rule)!r} works within the kernel while it "
            "answers, so expected host.engine=kernel and executor=local: set both, or another rule"
        )
    if not is_kernel and not is_local:
        raise ConfigError(
            f"executor: expected local beside host.engine {kind_of(config.host.engine)!r}, got "
            f"{kind_of(config.executor)!r}: a server spreads its work by itself"
        )
    check_trackers(config.run.report_to)
    mix, strategy = mixture(config), strategies.build(config.strategy)
    strategy.check(config.host.rank, rule)
    engine.check(config.host.slots)
    if rule.needs_verdicts and not reward_rules.build(config.reward).follows_verdict:
        raise ConfigError(
            f"reward: {kind_of(config.learning_rule)} imitates what is worth 1, so expected one "
            f"that is 1 for right answers, got {kind_of(config.reward)!r}: set reward=verdict, or "
            "learning_rule=policy_gradient"
        )
    _check_reading(config)
    _check_answers(config, mix)
    _check_habitats(config, mix)
    if strategy.warm:
        warm_examples(mix, 1, Draw(config.seed))  # a task without answers shows here
    _check_chat(config)


def mixture(config: RunConfig) -> TaskMixture:
    """The task mix of a config. Reads the data, if it has any.

    Raises:
        ConfigError: the tasks do not fit each other, the depths or the flip, or adapters must not
            train on them.
        DataError: data cannot be read, or a split of them is empty.
    """
    chosen = _tasks(config)
    depths = config.tasks.depths
    mix = TaskMixture(chosen, depths, config.tasks.flip, arrivals=config.tasks.arrivals)
    choices = list(dict.fromkeys(depth for task in chosen for depth in task.depths))
    if missing := [depth for depth in depths or () if depth not in choices]:
        raise ConfigError(
            f"tasks.depths: no task has the depth {missing[0]!r}: choose among {', '.join(choices)}"
        )
    if empty := [task for task in chosen if not mix.depths_of(task)]:
        raise ConfigError(
            f"tasks.depths: {empty[0].name!r} has none of {', '.join(depths or ())}: leave it "
            f"out, or add one of {', '.join(empty[0].depths)}"
        )
    data = tuple(task for task in chosen if isinstance(task, DataTask))
    if (arrivals := config.tasks.arrivals) and len(arrivals) != len(chosen) - 1:
        raise ConfigError(
            f"tasks.arrivals: expected a moment for each family after the first, {len(chosen) - 1} "
            f"of them, got {len(arrivals)}"
        )
    if config.tasks.habitats:
        mix = replace(mix, habitats=_habitats(config, config.tasks.habitats, mix))
    elif with_habitats := [task for task in data if task.habitats]:
        raise ConfigError(
            f"{with_habitats[0].source} says who asks, and the config has no habitats: set "
            "tasks.habitats, such as tasks.habitats.questions=24"
        )
    _check_flip(config, chosen)
    data = tuple(task for task in data if not isinstance(task, LogTask))
    for task in data:
        _check_splits(task, mix.depths_of(task))
    _check_apart(data)
    return mix


def _tasks(config: RunConfig) -> tuple[Task, ...]:
    """The tasks that a config names, in its order and style."""
    sources = {source.name: source for source in map(task_sources.build, config.tasks.sources)}
    if taken := set(sources) & set(tasks.names()):
        raise ConfigError(f"tasks.sources: {sorted(taken)} are names of tasks: choose others")
    style = prompt_styles.build(config.tasks.style)
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


def _check_chat(config: RunConfig) -> None:
    """Whether a host that is to be asked in a chat can be, as far as its files tell."""
    style, model = prompt_styles.build(config.tasks.style), config.host.model
    if style.is_chat and has_chat_template(model) is False:
        raise ConfigError(
            f"tasks.style: expected a host with a chat template, and {model!r} has none: set "
            "tasks.style.is_chat=false, or choose another host"
        )


def _check_reading(config: RunConfig) -> None:
    """Whether everything else does without replies, if the reward reads reference answers."""
    name, strategy = kind_of(config.reward), strategies.build(config.strategy)
    if not reward_rules.build(config.reward).reads:
        return
    if not strategy.compares_rewards:
        raise ConfigError(
            f"reward: nobody replies where {name} reads reference answers, so expected a strategy "
            f"that only compares rewards, got {kind_of(config.strategy)!r}: set strategy=es or "
            "strategy=genetic, or another reward"
        )
    if not isinstance(learning_rules.build(config.learning_rule), NoLearning):
        raise ConfigError(
            f"reward: nobody replies where {name} reads reference answers, so there is nothing to "
            f"learn from, got learning_rule {kind_of(config.learning_rule)!r}: set "
            "learning_rule=none, or another reward"
        )


def _check_answers(config: RunConfig, mix: TaskMixture) -> None:
    """Whether every task has reference answers, if the rule or the reward sees them."""
    if reward_rules.build(config.reward).sees_gold:
        part, name = "reward", kind_of(config.reward)
    elif learning_rules.build(config.learning_rule).sees_gold:
        part, name = "learning_rule", kind_of(config.learning_rule)
    else:
        return
    for family, depth in mix.cells:
        if not mix.families[family].sample(depth, Draw(config.seed)("read", family, depth)).answer:
            raise ConfigError(
                f"{part}: {name} reads reference answers, and {family!r} has none: leave it out, "
                f"or set another {part}"
            )


def _check_habitats(config: RunConfig, mix: TaskMixture) -> None:
    """Whether strategy, rule and world agree on habitats."""
    strategy, name = strategies.build(config.strategy), kind_of(config.strategy)
    if config.tasks.habitats and not strategy.fits_habitats:
        misfits = [kind for kind in strategy.mechanism_names if not mechanisms[kind].fits_habitats]
        parts = f"strategy.mechanisms: {misfits[0]!r}" if misfits else f"strategy: {name!r}"
        hint = "switch it off (false)" if misfits else "choose another one"
        raise ConfigError(
            f"{parts} asks questions of its own, and in this world habitats ask theirs: {hint}"
        )
    if config.tasks.habitats and strategy.habitat_faults:
        raise ConfigError(strategy.habitat_faults[0])
    if not config.tasks.habitats and strategy.needs_habitats:
        raise ConfigError(
            f"strategy: {name!r} is about habitats, and the tasks have none: set tasks.habitats, "
            "as in the preset habitats/town"
        )
    if strategy.needs_kinds and not isinstance(mix.habitats, SyntheticHabitats):
        raise ConfigError(
            f"strategy: {name!r} is told the kind of every habitat, and data do not say it: choose "
            "another one"
        )
    if any(isinstance(task, LogTask) for task in mix.tasks):
        _check_log(config)


def _check_log(config: RunConfig) -> None:
    """Whether strategy and rule can learn from replies that others gave."""
    rule, kind = learning_rules.build(config.learning_rule), kind_of(config.learning_rule)
    if rule.estimator is not None or rule.sees_gold:
        source = "reference answers" if rule.sees_gold else "what the kernel does in answers"
        raise ConfigError(
            f"learning_rule: {kind!r} learns from {source}, and a log has replies of others: "
            "choose another one, such as expert_iteration"
        )
    strategy = strategies.build(config.strategy)
    if strategy.warm:
        raise ConfigError(
            f"strategy.warm: a log has no reference answers, got {strategy.warm}: leave it out"
        )
    if (samples := strategy.samples) != 1:
        raise ConfigError(
            f"strategy.samples: a logged question has one reply, got {samples}: leave it out"
        )


def _habitats(config: RunConfig, habitats: HabitatsConfig, mix: TaskMixture) -> Habitats:
    """The habitats of a config: of synthetic tasks, or those that data bring."""
    if config.train_budgets:
        key = f"run.{config.train_budgets[0]}"
        raise ConfigError(
            f"{key}: habitats ask the same questions of every strategy, so a run ends by "
            f"run.generations alone: set {key}=null, or leave it out"
        )
    brought = (task.own_habitats(habitats) for task in mix.tasks)
    if own := next((found for found in brought if found is not None), None):
        return own
    data = tuple(task for task in mix.tasks if isinstance(task, DataTask))
    if len(data) == len(mix.tasks):
        return habitats_of(data, habitats, config.seed)
    if fixed := [task.name for task in mix.tasks if task.variants == 1]:
        raise ConfigError(
            f"tasks.habitats: {fixed[0]!r} has one way to be right only, and habitats of several "
            "kinds need tasks of several variants, or data that say who asks: leave it out"
        )
    if config.tasks.flip or config.tasks.arrivals:
        key = "flip" if config.tasks.flip else "arrivals"
        raise ConfigError(f"tasks.{key}: habitats change by tasks.habitats.drift_at: leave it out")
    has_style = any(isinstance(task, SyntheticTask) for task in mix.tasks)
    if has_style and prompt_styles.build(config.tasks.style).tells_convention:
        raise ConfigError(
            f"tasks.habitats: style {config.tasks.style!r} says in the prompt which convention is "
            "wanted, so kinds would be told: choose another one"
        )
    return SyntheticHabitats(habitats, mix.tasks, mix.cells, config.seed)


def _check_flip(config: RunConfig, chosen: tuple[Task, ...]) -> None:
    flip, by_name = config.tasks.flip, {task.name: task for task in chosen}
    if flip is None:
        return
    if unknown := set(flip.families) - set(by_name):
        raise ConfigError(f"tasks.flip.families: {sorted(unknown)} are not among tasks.families")
    if fixed := [name for name in flip.families if by_name[name].flipped() is None]:
        raise ConfigError(f"tasks.flip.families: {fixed} have one way to be right only")
    if prompt_styles.build(config.tasks.style).tells_convention:
        raise ConfigError(
            f"tasks.flip: style {config.tasks.style!r} says in the prompt which convention is "
            "wanted, so a change would be told: leave the flip out"
        )


def _check_splits(task: DataTask, depths: tuple[str, ...]) -> None:
    """Every depth of data needs lines of every split."""
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
    """Refuses a prompt that two tasks have: it could train as the one, be held out as the other."""
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
    """How the host of a config is made, wherever its executor wants it. Torch is imported when it
    is, and not before."""

    config: HostConfig
    is_chat: bool

    @property
    def threads(self) -> int:
        """CPU threads that a copy computes with."""
        return self.config.threads

    @property
    def needs_gpu(self) -> bool:
        """Whether a copy takes a GPU."""
        return self.config.device.startswith("cuda")

    def load(self, slots: int | None = None) -> HostKernel:
        """Loads the host in this process."""
        import torch

        from symbiont_ecology.model.kernel import HostKernel

        torch.set_num_threads(self.config.threads)
        knobs = self.config.model_dump(exclude={"model", "threads", "engine"})
        knobs["slots"] = slots or self.config.slots
        return HostKernel.from_pretrained(self.config.model, **knobs, is_chat=self.is_chat)

    def reader(self, vocab: int) -> CodecReader:
        """Its tokenizer alone."""
        from symbiont_ecology.model.reading import CodecReader

        return CodecReader.of(self.config.model, vocab, self.is_chat)


def host_source(config: RunConfig) -> KernelSource:
    """How the host of a config is made."""
    return KernelSource(config.host, prompt_styles.build(config.tasks.style).is_chat)


def build_host(config: RunConfig) -> Host:
    """The host of a config, where its executor has it and with what answers in its place."""
    source = host_source(config)
    if kind_of(config.executor) == "local":
        return engines.build(config.host.engine).host(source.load)
    return executors.build(config.executor).host(source)


def build_runtime(config: RunConfig, host: Host, folder: Path) -> Runtime:
    """All parts of a run around a host."""
    return Runtime(
        host=host,
        store=BlobStore(folder / "blobs"),
        tasks=mixture(config),
        prices=config.economy,
        allocator=allocators.build(config.allocator),
        rank=config.host.rank,
        strategy=strategies.build(config.strategy),
        learning_rule=learning_rules.build(config.learning_rule),
        reward=reward_rules.build(config.reward),
        transcripts=TranscriptLog(folder / TRANSCRIPTS_FILE, config.run.transcripts),
        climate=config.climate,
        stops=prompt_styles.build(config.tasks.style).stops,
    )

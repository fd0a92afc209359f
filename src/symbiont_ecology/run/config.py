"""The config of a run: YAML files composed by ``extends``, overrides from the command line, typed
values.

    extends: [base, strategy/ecology]   # presets, or files beside this one
    run: {generations: 100}

Files are deep-merged, later wins, lists replace. A component is its name or
``{kind: name, **fields}``, and a change of kind drops the fields of the old one. ``host: smollm2``
brings the preset of that host. It may say ``host.learning_rate``, with which a strategy learns that
says no other. A config is data from anyone: it can neither run code nor read the environment, and
every mistake is one line before a model is loaded. Defaults live below and nowhere else; components
are checked by their registries when a run is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat

from symbiont_ecology.base.config_layers import merge, parse_override, read_layers, with_known_keys
from symbiont_ecology.base.registry import (
    DATE,
    Date,
    LoraRank,
    Megabytes,
    Modest,
    Seed,
    Slots,
    Spec,
    Threads,
    kind_of,
    load_plugin,
    validate,
)
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.model.locating import has_chat_template, read_json
from symbiont_ecology.tasks.config import TasksConfig

Positive = Annotated[int, Field(ge=1)]
_Schema = ConfigDict(extra="forbid", frozen=True)


Device = Annotated[str, Field(pattern=r"^(cpu|cuda|mps|xpu)(:\d{1,3})?$")]


class HostConfig(BaseModel):
    """The frozen language model and how it is run; all of it is part of a run's identity."""

    model_config = _Schema

    model: str = "embedded"  # or smollm2, a folder, a GGUF file, a name on the Hugging Face hub
    slots: Slots = 32  # adapters in memory at once; a larger population goes in waves
    rank: LoraRank = 4  # of a founder's adapter, and the most that any can have
    targets: tuple[str, ...] | None = None  # linear modules that carry LoRA; None is all
    device: Device = "cpu"  # or cuda, mps, xpu; with a number, such as cuda:1
    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"  # int8: weights alone
    threads: Threads = 1  # of the CPU; another number may move logits in the last bits
    memory_mb: Megabytes = 2048  # for one batch; larger batches go in pieces
    date: Date = DATE  # that a chat template prints as today's
    engine: Spec = "kernel"  # what answers: the kernel, or a server beside it


RATE_BY_WIDTH = 0.5
"""Learning rate times hidden size: 9e-4 at the width of SmolLM2, 5e-4 at that of Qwen3-0.6B."""
_Layer = str | Path | Mapping[str, object]


class LoopConfig(BaseModel):
    """End of a run, and what it leaves behind."""

    model_config = _Schema

    generations: NonNegativeInt = 40  # how many are lived, unless a budget ends the run before
    checkpoint_every: Positive = 5  # generations
    train_flops: PositiveFloat | None = None  # the run stops when they are spent
    train_tokens: PositiveFloat | None = None  # likewise, to a generation; lessons included
    train_seconds: PositiveFloat | None = None  # likewise, on the clock
    transcripts: Modest = 20.0  # megabytes of replies, from the first on; 0 keeps none
    report_to: tuple[str, ...] = ()  # trackers that draw curves: tensorboard, trackio, wandb
    final_holdout: str | None = None  # JSONL file that is answered at the end
    final_holdout_samples: Positive | None = None  # so many of its questions; None is all


class RunConfig(BaseModel):
    """The config of a run: everything that decides it."""

    model_config = _Schema

    seed: Seed = 0  # of every draw
    host: HostConfig = HostConfig()
    tasks: TasksConfig
    strategy: Spec = "ecology"  # who is founded, asked, born and retired
    learning_rule: Spec = "expert_iteration"  # rollouts to weighted targets
    reward: Spec = "verdict"  # what a rollout is worth to learning
    allocator: Spec = "epsilon_greedy"  # who meets which question in a run
    router: Spec = "lexical"  # who answers a prompt without a label
    economy: Prices = Prices()
    run: LoopConfig = LoopConfig()
    executor: Spec = "local"  # where the host does its work
    plugins: tuple[str, ...] = ()  # Python files, below the current folder, that register parts

    @property
    def learns_from_log(self) -> bool:
        """True for a run whose verdicts are on replies of others."""
        return any(source.get("kind") == "log" for source in self.tasks.sources)

    @property
    def train_budgets(self) -> tuple[str, ...]:
        """The keys of ``run`` that limit training, as far as they are set."""
        keys = ("train_flops", "train_tokens", "train_seconds")
        return tuple(key for key in keys if getattr(self.run, key) is not None)


def load_config(
    name_or_path: str | Path, overrides: Sequence[str] = (), *, runs_plugins: bool = True
) -> RunConfig:
    """Return the config of a preset or a file, with overrides such as ``run.generations=8``
    on top. Who only looks at a run that somebody sent does not run its plug-ins.

    Raises:
        ConfigError: one line with the dotted key, what was expected, what came and the nearest
            known key.

    Example:
        >>> from symbiont_ecology import load_config
        >>> config = load_config("demo", ["run.generations=8"])
        >>> config.host.model, config.run.generations
        ('embedded', 8)
    """
    where = f"config {str(name_or_path)!r}"
    return compose((name_or_path,), overrides, where, runs_plugins=runs_plugins)


def compose(
    layers: Sequence[_Layer], overrides: Sequence[str], where: str, *, runs_plugins: bool = True
) -> RunConfig:
    """Return the config of presets, files and values, each over those before it, and overrides.

    Raises:
        ConfigError: as ``load_config``; ``where`` begins the line.
    """
    data = _default_components()
    changes = [with_known_keys(parse_override(override), where) for override in overrides]
    values = (layer if isinstance(layer, Mapping) else read_layers(layer) for layer in layers)
    for layer in (*values, *changes):
        data = merge(data, layer)
    data, rate = _without_rate(data)
    config = validate(RunConfig, _with_sources(data), where)
    for plugin in config.plugins if runs_plugins else ():
        load_plugin(Path(plugin))
    return config if rate is None else _with_rate(config, rate)


def proposed_changes(folder: Path) -> list[str]:
    """Return the overrides to try first with a host that has no preset: a learning rate that falls
    with its width (Yang et al. 2022, arXiv:2203.03466), and its chat template, if it has one.

    Raises:
        HostError: its files cannot be read.
    """
    facts, changes = read_json(folder / "config.json"), []
    width = facts.get("text_config", facts).get("hidden_size") or facts.get("n_embd")
    if isinstance(width, int) and width > 0:
        changes += [f"host.learning_rate={RATE_BY_WIDTH / width:.0e}"]
    if has_chat_template(folder):
        changes += ["tasks.style={kind: natural, is_chat: true}"]
    return changes


def dump_config(config: RunConfig) -> str:
    """Return the whole config as YAML, defaults included; equal configs give equal text, and it can
    be loaded."""
    return str(OmegaConf.to_yaml(_ordered(config.model_dump(mode="json"))))


def _ordered(value: object) -> object:
    """Return a value whose components have their fields in alphabetical order behind the kind:
    their order in a file means nothing."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (key != "kind", key)) if "kind" in value else value
        return {key: _ordered(value[key]) for key in keys}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _default_components() -> dict[str, object]:
    """Return the components that a config has without naming them, so that it can set their fields
    alone."""
    fields = RunConfig.model_fields
    top = {name: field.default for name, field in fields.items() if field.annotation == Spec}
    return {**top, "tasks": {"style": TasksConfig.model_fields["style"].default}}


def _without_rate(data: Mapping[str, object]) -> tuple[dict[str, object], object]:
    """Return the same without the learning rate that suits the host, and that rate, if it is
    said."""
    if not isinstance(host := data.get("host"), Mapping):
        return dict(data), None  # which the schema refuses
    rest = {key: value for key, value in host.items() if key != "learning_rate"}
    return {**data, "host": rest}, host.get("learning_rate")


def _with_rate(config: RunConfig, rate: object) -> RunConfig:
    """Return the same, whose strategy learns with a rate, if it learns and says no other."""
    spec = {"kind": config.strategy} if isinstance(config.strategy, str) else config.strategy
    kind = strategies.present_name(kind_of(spec))
    can_learn = kind in strategies.names() and hasattr(strategies[kind], "learning_rate")
    if not can_learn or kind_of(config.learning_rule) == "none" or "learning_rate" in spec:
        return config
    return config.model_copy(update={"strategy": {**spec, "learning_rate": rate}})


def _with_sources(data: Mapping[str, object]) -> Mapping[str, object]:
    """Return the same with mappings among the task families under ``tasks.sources``, and names in
    their place. Sources that no family names are left out: they are of a layer whose families
    were replaced."""
    tasks = data.get("tasks")
    if not isinstance(tasks, Mapping) or not isinstance(tasks.get("families"), list):
        return data  # which the schema refuses
    families, sources = tasks["families"], tasks.get("sources", [])
    inline = [family for family in families if isinstance(family, Mapping)]
    names = [one.get("name", one) if isinstance(one, Mapping) else one for one in families]
    if isinstance(sources, list) and all(isinstance(source, Mapping) for source in sources):
        sources = [source for source in sources if source.get("name") in names] + inline
    return {**data, "tasks": {**tasks, "families": names, "sources": sources}}

"""A protocol: which arms are compared, on what, with how many seeds, fixed in a file before
anything runs.

    name: embedded-v2
    base: [demo, tasks/trained]        # presets that every arm extends
    unit_flops: 2.0e+11                # budgets are multiples of this
    arms:
      single:
        about: one adapter
        set: [strategy.kind=single]
        tune: [[strategy.learning_rate=0.002], …]

Everything that a comparison chooses (arms, budgets, seeds, shifts, levels) is in it, and results
name it by its hash: a protocol that was changed afterwards has another one. What it takes to claim
a difference is the same for all protocols (``analysis.comparison``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from symbiont_ecology.config import Flip, RunConfig, compose
from symbiont_ecology.config_layers import merge, parse_override, read_layers
from symbiont_ecology.ecology import HOST
from symbiont_ecology.engine.build import components
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.registry import did_you_mean, validate
from symbiont_ecology.rng import Draw
from symbiont_ecology.shipped import config_folder

PositiveCount = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
DECIDES_NOTHING: dict[str, bool | set[str]] = {
    "run": {"report_to", "transcripts"},
    "executor": True,
}
"""Keys of a config that no result depends on: who looks on, and who computes it."""
FEW_REPLIES = "run.transcripts=0.5"
"""What the hundreds of runs of a suite keep of their replies, unless the protocol says more."""
_Schema = ConfigDict(extra="forbid", frozen=True)
_Plan = TypeVar("_Plan")


def arm_key(config: RunConfig) -> str:
    """A config without its seed and without what is no part of a life: what decides nothing, how
    often the run is saved, what it is asked at its end. Runs of one arm have the same."""
    fixed = {"checkpoint_every": 1, "final_holdout": None, "final_holdout_samples": None}
    life = config.run.model_copy(update=fixed)
    core = config.model_copy(update={"seed": 0, "run": life})
    return core.model_dump_json(exclude=DECIDES_NOTHING)


class Arm(BaseModel):
    """One side of the comparison."""

    model_config = _Schema

    about: str  # what it is, in a few words
    # What it learned from: nothing, verdicts, gold answers, or after a warm start
    # "verdicts, 4 gold examples per cell", which tables say then.
    sees: str = "verdicts"
    set: tuple[str, ...] = ()  # overrides of the base
    tune: tuple[tuple[str, ...], ...] = ((),)  # alternatives; selection chooses one per budget
    of: str | None = None  # the arm whose runs it answers with, when only its routing is another
    routing: str = "learned"  # how it answers
    also: tuple[str, ...] = ()  # other routings, for the tables on routing


def _some_once(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"expected one or more, each of them once, got {list(values)}")
    return values


Once = AfterValidator(_some_once)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Names of protocols and arms are names of folders, too."""


class FlipPlan(BaseModel):
    """The convention flip: half of the families change at ``at``, and back at ``back`` (in units of
    FLOPs).

    After each change the arms are measured when they have spent each of ``extra`` beyond it.
    """

    model_config = _Schema

    at: PositiveFloat
    back: PositiveFloat
    extra: tuple[Annotated[float, Field(ge=0)], ...]
    per_cell: PositiveCount = 50  # questions per cell and measurement, others in each

    @model_validator(mode="after")
    def _is_in_order(self) -> FlipPlan:
        extra = self.extra
        if len(extra) < 2 or extra[0] != 0 or any(b <= a for a, b in pairwise(extra)):
            raise ValueError(f"extra: expected 0 and rising numbers behind it, got {list(extra)}")
        if self.back < self.at + extra[-1]:
            raise ValueError(f"back: expected at least at + the last extra, got {self.back}")
        return self


class Protocol(BaseModel):
    """The whole comparison."""

    model_config = _Schema

    name: Name
    question: str  # what it is meant to answer
    base: tuple[str, ...]  # presets that every arm extends
    set: tuple[str, ...] = ()  # overrides for every arm
    unit_flops: PositiveFloat
    budgets: Annotated[tuple[PositiveFloat, ...], Once]  # in units, rising
    seeds: Annotated[tuple[int, ...], Once]
    tuning_seeds: tuple[int, ...] = ()
    arms: dict[Name, Arm]
    main: str = "ecology"  # the arm that is compared with all others
    second: str | None = None  # the arm of a second table: beside those that see gold answers
    shifts: Annotated[tuple[str, ...], Once] = ("in-distribution",)
    per_cell: PositiveCount = 200  # questions per cell and shift
    tuning_per_cell: PositiveCount = 20  # selection questions per cell when tuning
    # Options of a tuning whose accuracies differ by no more than this are chosen by retention.
    tie: Annotated[float, Field(ge=0, lt=1)] = 0
    # The cue ceiling from which on a cell counts as elicitation.
    elicitation: Annotated[float, Field(ge=0, le=1)] = 0.85
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05  # false discovery rate of a family of tests
    flip: FlipPlan | None = None
    stage_per_cell: Annotated[int, Field(ge=0)] = 0  # questions per cell whenever a family came

    @model_validator(mode="after")
    def _is_fair(self) -> Protocol:
        counts = {name: len(self.arms[name].tune) for name in self.own_arms}
        if len(set(counts.values())) > 1:
            raise ValueError(f"every arm gets the same number of tuning configs, got {counts}")
        if max(counts.values(), default=0) > 1 and not self.tuning_seeds:
            raise ValueError("tuning needs tuning_seeds")
        if overlap := set(self.seeds) & set(self.tuning_seeds):
            raise ValueError(f"seeds that tune cannot be reported: {sorted(overlap)}")
        for key, name in (("main", self.main), ("second", self.second or self.main)):
            if name not in self.arms:
                raise ValueError(f"{key}: {name!r} is none of the arms {', '.join(self.arms)}")
        if HOST in self.arms:
            raise ValueError(f"arms: {HOST!r} is the bare host, which is always asked")
        if list(self.budgets) != sorted(self.budgets):
            raise ValueError(f"budgets: expected rising numbers, got {list(self.budgets)}")
        for name, arm in self.arms.items():
            if not arm.tune:
                raise ValueError(f"arms.{name}.tune: expected one config or more")
            if arm.of is not None and (arm.of not in self.own_arms or arm.set or len(arm.tune) > 1):
                raise ValueError(
                    f"arms.{name}: of names an arm with runs of its own, and leaves set and tune "
                    "out"
                )
        return self

    @property
    def own_arms(self) -> tuple[str, ...]:
        """The arms that have runs of their own."""
        return tuple(name for name, arm in self.arms.items() if arm.of is None)

    @property
    def warm_arms(self) -> str:
        """The arms that began with some gold examples, and what they saw; empty if there are
        none."""
        groups: dict[str, list[str]] = {}
        for name, arm in self.arms.items():
            if "gold examples" in arm.sees:
                groups.setdefault(arm.sees, []).append(name)
        return "; ".join(f"{', '.join(names)} saw {sees}" for sees, names in groups.items())

    def runs_of(self, arm: str) -> str:
        """The arm whose runs an arm answers with: itself, unless only its routing is another."""
        return self.arms[arm].of or arm

    def routings(self, arm: str) -> tuple[str, ...]:
        """How the runs of an arm answer everything: its own way, and those of arms that share its
        runs."""
        shared = (side.routing for side in self.arms.values() if side.of == arm)
        return tuple(dict.fromkeys((self.arms[arm].routing, *shared)))

    @cached_property
    def digest(self) -> str:
        """Hash of everything in it, of the presets that it extends and of the parts that they
        name; but not of trackers, which decide nothing."""
        digest = hashlib.sha256(self.model_dump_json().encode())
        for arm in self.own_arms if self.base else ():
            config = self.config(arm, 1.0, 0)
            digest.update(config.model_dump_json(exclude=DECIDES_NOTHING).encode())
            # With the defaults of their fields, and of the parts that they have built for
            # themselves.
            digest.update(repr([vars(part) for part in components(config)]).encode())
        return digest.hexdigest()[:16]

    def config(self, arm: str, budget: float, seed: int, tuned: tuple[str, ...] = ()) -> RunConfig:
        """The config of one run; it ends when the budget (in units) is spent."""
        loop = (
            f"seed={seed}",
            f"run.train_flops={budget * self.unit_flops}",
            "run.generations=1000000",
        )
        overrides = (
            FEW_REPLIES,
            *self.set,
            *self.arms[arm].set,
            "run.checkpoint_every=1",
            "executor=local",  # a job is the work of one process
            *loop,
            *tuned,
        )
        return compose(self.base, overrides, f"protocol {self.name!r}, arm {arm!r}")

    def of_arms(self, names: Sequence[str]) -> Protocol:
        """The same with these arms alone: another protocol, with a name and a digest of its own.

        Raises:
            ConfigError: it has no such arm, or one that answers with the runs of one left out.
        """
        for name in names:
            if name not in self.arms:
                hint = did_you_mean(name, self.arms)
                arms = ", ".join(self.arms)
                raise ConfigError(
                    f"protocol {self.name!r} has no arm {name!r};{hint} it has {arms}"
                )
            if self.runs_of(name) not in names:
                raise ConfigError(
                    f"arm {name!r} answers with the runs of {self.runs_of(name)!r}: name both"
                )
        changes = {
            "name": ".".join((self.name, *names)),
            "arms": {name: self.arms[name] for name in names},
            "main": self.main if self.main in names else names[0],
            "second": self.second if self.second in names else None,
        }
        return validate(Protocol, {**dict(self), **changes}, f"protocol {self.name!r}")

    def arrivals(self, budget: float) -> tuple[float, ...]:
        """The training FLOPs at which families come in the main arm's world."""
        return self.config(self.main, budget, 0).tasks.arrivals

    def flipped(self, config: RunConfig) -> RunConfig:
        """The config with the protocol's flip; the seed draws which half of the families
        changes."""
        assert self.flip is not None
        names = config.tasks.families
        if len(names) < 2:
            raise ConfigError(
                f"flip: expected two families or more, half of which change, got {list(names)}"
            )
        order = Draw(config.seed)("flip").permutation(len(names))
        half = tuple(names[index] for index in sorted(order[: len(names) // 2]))
        flip = Flip(
            families=half,
            at_flops=self.flip.at * self.unit_flops,
            back_flops=self.flip.back * self.unit_flops,
        )
        return config.model_copy(update={"tasks": config.tasks.model_copy(update={"flip": flip})})


def protocols() -> dict[str, Path]:
    """Every protocol by name: the files of ``config/protocols``."""
    return {file.stem: file for file in sorted((config_folder() / "protocols").glob("*.yaml"))}


def find_protocol(name_or_path: str | Path) -> Path:
    """The file of a protocol, by its name or its path.

    Raises:
        ConfigError: there is none.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        paths = protocols()
        if str(name_or_path) not in paths:
            hint = did_you_mean(str(name_or_path), paths)
            raise ConfigError(
                f"no protocol {str(name_or_path)!r};{hint} known: {', '.join(paths) or 'none'}"
            )
        path = paths[str(name_or_path)]
    if not path.is_file():
        raise ConfigError(f"no protocol file {str(path)!r}")
    return path


def load_protocol(
    name_or_path: str | Path, overrides: Sequence[str] = (), additions: Sequence[str] = ()
) -> Protocol:
    """A protocol by name or path, changed: that is another protocol, with another digest.

    ``overrides`` such as ``seeds=[0]`` or ``arms.single.about=…`` replace fields of the protocol
    itself; ``additions`` such as ``host.device=cpu`` are put at the end of its ``set``, for the
    config of every arm.

    Raises:
        ConfigError: there is none, or it does not fit its schema.
    """
    return load_as(Protocol, find_protocol(name_or_path), overrides, additions)


def load_as(
    schema: type[_Plan], path: Path, overrides: Sequence[str], additions: Sequence[str]
) -> _Plan:
    """A protocol of any kind from a file, changed as ``load_protocol`` says.

    Raises:
        ConfigError: it does not fit its schema.
    """
    data = read_layers(path)
    for override in overrides:
        data = merge(data, parse_override(override))
    where = f"protocol {path.stem!r}"
    plan = validate(schema, data, where)
    if not additions:
        return plan
    own = cast("Sequence[str]", data.get("set", ()))
    return validate(schema, {**data, "set": [*own, *additions]}, where)

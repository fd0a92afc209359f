"""A protocol: which arms are compared, on what, with how many seeds; fixed in a file before
anything runs.

    name: embedded-v2                    name: habitats-v1
    base: [tasks/trained]                worlds:
    unit_flops: 2.0e+11                    city: {about: …, base: [habitats/city], arms: [told, …]}
    budgets: [0.25, 1, 4]                arms:
    arms:                                  told: {about: one adapter per kind, set: [strategy=told]}
      single:
        about: one adapter
        set: [strategy.kind=single]
        tune: [[strategy.learning_rate=0.002], …]

Without worlds there is one, which ``base`` makes: every arm lives a run for each budget of training
FLOPs and is asked held-out questions. In worlds with users a run ends by its generations, every
arm meets the same questions for a seed, and what counts is what users accepted on the way. All else
is alike. Results name the protocol by its hash: one that was changed afterwards has another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from symbiont_ecology.base.config_layers import merge, parse_override, read_layers
from symbiont_ecology.base.registry import did_you_mean, validate
from symbiont_ecology.base.removed import refuse_removed
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.shipped import find_protocol
from symbiont_ecology.ecology import HOST
from symbiont_ecology.run.build import components
from symbiont_ecology.run.config import RunConfig, compose
from symbiont_ecology.tasks.config import Flip

FEW_REPLIES = "run.transcripts=0.5"
"""What the hundreds of runs of a suite keep of their replies, unless the protocol says more."""
DECIDES_NOTHING: dict[str, bool | set[str]] = {
    "run": {"report_to", "transcripts"},
    "executor": True,
}
"""Keys of a config that no result depends on: who looks on, and who computes it."""


def _some_once(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"expected one or more, each of them once, got {list(values)}")
    return values


Once = AfterValidator(_some_once)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Names of protocols and arms are names of folders, too."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arm(_Part):
    """One side of the comparison."""

    about: str  # what it is, in a few words
    # What it learned from: nothing, verdicts, gold answers, or after a warm start
    # "verdicts, 4 gold examples per cell", which tables say then.
    sees: str = "verdicts"
    set: tuple[str, ...] = ()  # overrides of the world
    tune: Annotated[tuple[tuple[str, ...], ...], Once] = ((),)  # alternatives; tuning chooses
    of: str | None = None  # the arm whose runs it answers with, when only its routing is another
    routing: str = "learned"  # how it answers


class World(_Part):
    """A world and the arms that are compared in it."""

    about: str  # what it is, in a few words
    base: tuple[str, ...]  # presets that it is made of
    set: tuple[str, ...] = ()  # overrides of them
    arms: Annotated[tuple[Name, ...], Once]


class FlipPlan(_Part):
    """The convention flip: half of the families change at ``at``, and back at ``back`` (in units of
    FLOPs).

    After each change the arms are measured when they have spent each of ``extra`` beyond it.
    """

    at: PositiveFloat
    back: PositiveFloat
    extra: Annotated[tuple[float, ...], Field(min_length=2)]
    per_cell: PositiveInt = 50  # questions per cell and measurement, others in each


class Protocol(_Part):
    """The whole comparison."""

    name: Name
    question: str  # what it is meant to answer
    base: tuple[str, ...] = ()  # presets that every arm extends, where there are no worlds
    set: tuple[str, ...] = ()  # overrides for every arm
    worlds: dict[Name, World] = {}
    unit_flops: PositiveFloat = 1.0
    budgets: Annotated[tuple[PositiveFloat, ...], Once] = (1.0,)  # in units, rising
    seeds: Annotated[tuple[int, ...], Once]
    tuning_seeds: tuple[int, ...] = ()
    arms: dict[Name, Arm]
    main: str = "ecology"  # the arm that is compared with all others
    second: str | None = None  # the arm of a second table: beside those that see gold answers
    shifts: Annotated[tuple[str, ...], Once] = ("in-distribution",)
    per_cell: PositiveInt = 200  # questions per cell and shift
    tuning_per_cell: PositiveInt = 20  # selection questions per cell when tuning
    # Options of a tuning whose accuracies differ by no more than this are chosen by retention.
    tie: Annotated[float, Field(ge=0, lt=1)] = 0
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05  # false discovery rate of a family of tests
    flip: FlipPlan | None = None
    stage_per_cell: NonNegativeInt = 0  # questions per cell whenever a family came

    @model_validator(mode="after")
    def _fits_together(self) -> Protocol:
        for where, name, names in self._mentioned():
            if name not in names:
                hint = did_you_mean(name, names) or f" expected one of {', '.join(names)}"
                raise ValueError(f"{where}: {name!r} is not there;{hint}")
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def _mentioned(self) -> Iterator[tuple[str, str, Collection[str]]]:
        """Yield every name that refers to something, where it stands, and what there is."""
        yield "main", self.main, self.arms
        yield "second", self.second or self.main, self.arms
        for name, arm in self.arms.items():
            yield f"arms.{name}.of", arm.of or self.own_arms[0], self.own_arms
        for name, world in self.worlds.items():
            where = f"worlds.{name}.arms"
            yield f"{where}: main", self.main, world.arms
            for arm_name in world.arms:
                yield where, arm_name, self.arms

    def _faults(self) -> Iterator[str]:
        """Yield what contradicts itself."""
        for name, arm in self.arms.items():
            if name == HOST:
                yield f"arms: {HOST!r} is the bare host, which is always asked"
            if arm.of and (arm.set or len(arm.tune) > 1):
                yield f"arms.{name}.of: it answers with runs of another arm: leave set and tune out"
            if len(arm.tune) > 1 and not self.tuning_seeds:
                yield f"tuning_seeds: expected some: arms.{name} has configs to choose from"
        counts = {len(self.arms[name].tune) for name in self.own_arms}
        if not self.worlds and not {"unit_flops", "budgets"} <= self.model_fields_set:
            yield "expected unit_flops and budgets, or worlds"
        if list(self.budgets) != sorted(self.budgets):
            yield f"budgets: expected rising numbers, got {list(self.budgets)}"
        if not self.worlds and len(counts) > 1:
            yield f"every arm gets the same number of tuning configs, got {sorted(counts)}"
        if (flip := self.flip) and (
            flip.extra != tuple(sorted({0, *flip.extra})) or flip.back < flip.at + flip.extra[-1]
        ):
            yield "flip: expected extra to rise from 0, and back behind the last of it"
        if overlap := {*self.seeds} & {*self.tuning_seeds}:
            yield f"seeds that tune cannot be reported: {sorted(overlap)}"

    @property
    def own_arms(self) -> tuple[str, ...]:
        """The arms that have runs of their own."""
        return tuple(name for name, arm in self.arms.items() if arm.of is None)

    @property
    def places(self) -> dict[str, World]:
        """The worlds by name; without any, the one that ``base`` makes, which has none."""
        return self.worlds or {"": World(about="", base=self.base, arms=self.own_arms)}

    @property
    def run_budgets(self) -> tuple[float, ...]:
        """The budgets of an arm's runs; 0 in worlds, where generations end a run."""
        return (0.0,) if self.worlds else self.budgets

    @property
    def planned_runs(self) -> int:
        """Number of runs that are reported."""
        arms = sum(len(place.arms) for place in self.places.values())
        per_arm = len(self.run_budgets) + (self.flip is not None)
        return arms * per_arm * len(self.seeds)

    def runs_of(self, arm: str) -> str:
        """Return the arm whose runs an arm answers with: itself, unless only its routing is
        another."""
        return self.arms[arm].of or arm

    def routings(self, arm: str) -> tuple[str, ...]:
        """Return how the runs of an arm answer everything: its own way, and those of arms that
        share its runs."""
        shared = (side.routing for side in self.arms.values() if side.of == arm)
        return tuple(dict.fromkeys((self.arms[arm].routing, *shared)))

    @cached_property
    def digest(self) -> str:
        """Hash of everything in it, of the presets that it extends and of the parts that they
        name; but not of trackers, which decide nothing."""
        digest = hashlib.sha256(self.model_dump_json().encode())
        for world, place in self.places.items():
            for arm in place.arms if place.base else ():
                config = self.config(arm, 1.0, 0, world=world)
                digest.update(config.model_dump_json(exclude=DECIDES_NOTHING).encode())
                # With the defaults of their fields, and of the parts that they have built for
                # themselves.
                digest.update(repr([vars(part) for part in components(config)]).encode())
        return digest.hexdigest()[:16]

    def config(
        self, arm: str, budget: float, seed: int, option: int = 0, world: str = ""
    ) -> RunConfig:
        """Return the config of one run. Without worlds it ends when the budget (in units) is
        spent."""
        place, side = self.places[world], self.arms[arm]
        loop = (
            f"run.train_flops={budget * self.unit_flops}",
            "run.generations=1000000",
            "run.checkpoint_every=1",
        )
        changes = (*self.set, *place.set, *side.set, *(() if self.worlds else loop))
        own = (*side.tune[option], f"seed={seed}", "executor=local")  # one process
        where = ", ".join([f"protocol {self.name!r}", *([world] if world else []), f"arm {arm!r}"])
        return compose(place.base, (FEW_REPLIES, *changes, *own), where)

    def flipped(self, config: RunConfig) -> RunConfig:
        """Return the config with the protocol's flip; the seed draws which half of the families
        changes."""
        assert self.flip is not None
        names = config.tasks.families
        order = Draw(config.seed)("flip").permutation(len(names))
        half = tuple(names[index] for index in sorted(order[: len(names) // 2]))
        flip = Flip(
            families=half,
            at_flops=self.flip.at * self.unit_flops,
            back_flops=self.flip.back * self.unit_flops,
        )
        return config.model_copy(update={"tasks": config.tasks.model_copy(update={"flip": flip})})


def load_protocol(
    name_or_path: str | Path, overrides: Sequence[str] = (), additions: Sequence[str] = ()
) -> Protocol:
    """Return a protocol by name or path, changed: that is another protocol, with another digest.

    ``overrides`` such as ``seeds=[0]`` or ``arms.single.about=…`` replace fields of the protocol
    itself; ``additions`` such as ``host.device=cpu`` are put at the end of its ``set``, for the
    config of every arm.

    Raises:
        ConfigError: there is none, or it does not fit its schema.
    """
    path = find_protocol(name_or_path)
    data = read_changed(path, overrides)
    arms = data.get("arms")
    for part in (data, *(arms.values() if isinstance(arms, dict) else ())):
        for key in part if isinstance(part, dict) else ():
            refuse_removed("key of a protocol", key)
    if additions and isinstance(own := data.get("set", []), list):
        data = {**data, "set": [*own, *additions]}
    return validate(Protocol, data, f"protocol {path.stem!r}")


def read_changed(path: Path, overrides: Sequence[str]) -> dict[str, object]:
    """Return the layers of a file with overrides on top."""
    data = read_layers(path)
    for override in overrides:
        data = merge(data, parse_override(override))
    return data

"""A protocol of worlds with habitats: which arms live in which world, with which seeds.

    name: habitats-v1
    worlds:
      city:
        about: two hundred users of six kinds
        base: [habitats/city]            # presets
        arms: [ecology, told, single]
    arms:
      single: {about: one adapter, set: [strategy=single]}

A world asks the same questions of every arm for a seed, so a run ends by its generations, and arms
are compared question by question. Tuning is done in the world in which an arm is compared, on other
seeds; ``chosen`` holds what it chose, so that a comparison need not tune again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from symbiont_ecology.config import RunConfig, compose
from symbiont_ecology.engine.build import check, components, mixture
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.experiments.protocol import DECIDES_NOTHING, FEW_REPLIES, Name, Once
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks.habitats import SyntheticHabitats

_Schema = ConfigDict(extra="forbid", frozen=True)


class World(BaseModel):
    """A world and the arms that are compared in it."""

    model_config = _Schema

    about: str  # what it is, in a few words
    base: tuple[str, ...]  # presets that it is made of
    set: tuple[str, ...] = ()  # overrides of them
    arms: Annotated[tuple[Name, ...], Once]


class WorldArm(BaseModel):
    """One side of the comparison."""

    model_config = _Schema

    about: str  # what it is, in a few words
    set: tuple[str, ...] = ()  # overrides of the world
    tune: tuple[tuple[str, ...], ...] = ((),)  # alternatives, of which acceptance chooses
    repeats: Name | None = None  # the arm whose births and deaths happen at the same times here


class Goal(BaseModel):
    """What the main arm is meant to reach, fixed before the seeds are looked at.

    It is about the mean over seeds of a measure; or of its difference to another arm, to another
    world, or of both.
    """

    model_config = _Schema

    about: str  # in a few words
    world: Name
    measure: str  # one of analysis.streams
    minus: Name | None = None  # an arm
    than: Name | None = None  # a world whose value is subtracted
    at_least: float | None = None  # in the unit of the measure; shares are between 0 and 1
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> Goal:
        if self.at_least is None and self.at_most is None:
            raise ValueError("expected at_least or at_most")
        return self


class WorldsProtocol(BaseModel):
    """The whole comparison."""

    model_config = _Schema

    name: Name
    question: str  # what it is meant to answer
    set: tuple[str, ...] = ()  # overrides for every world
    seeds: Annotated[tuple[int, ...], Once]
    tuning_seeds: tuple[int, ...] = ()
    worlds: dict[Name, World]
    arms: dict[Name, WorldArm]
    goals: tuple[Goal, ...] = ()
    main: Name = "ecology"  # the arm that is compared with all others
    chosen: dict[Name, dict[Name, int]] = {}  # by world and arm, what tuning chose before
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05  # false discovery rate of a family of tests

    @model_validator(mode="after")
    def _fits(self) -> WorldsProtocol:
        for name, arm in self.arms.items():
            if not arm.tune:
                raise ValueError(f"arms.{name}.tune: expected one config or more")
            if arm.repeats is None:
                continue
            _check_known(arm.repeats, self.arms, f"arms.{name}.repeats", "arms")
            if self.arms[arm.repeats].repeats is not None:
                raise ValueError(f"arms.{name}.repeats: expected an arm that repeats none")
            if len(arm.tune) > 1:
                raise ValueError(
                    f"arms.{name}.tune: what it repeats is there after tuning only: leave it out"
                )
        for name, world in self.worlds.items():
            for side in world.arms:
                _check_known(side, self.arms, f"worlds.{name}.arms", "arms")
                model = self.arms[side].repeats
                if model is not None and model not in world.arms:
                    raise ValueError(
                        f"worlds.{name}.arms: {side!r} repeats {model!r}, which is not among them: "
                        "add it"
                    )
            if self.main not in world.arms:
                raise ValueError(f"worlds.{name}.arms: expected {self.main!r} among them")
        for goal in self.goals:
            for name in (goal.world, goal.than or goal.world):
                _check_known(name, self.worlds, "goals", "worlds")
                if goal.minus and goal.minus not in self.worlds[name].arms:
                    raise ValueError(f"goals: {goal.minus!r} does not live in {name}")
        for name, options in self.chosen.items():
            _check_known(name, self.worlds, "chosen", "worlds")
            for side, option in options.items():
                _check_known(side, self.worlds[name].arms, f"chosen.{name}", "arms")
                if option not in range(len(self.arms[side].tune)):
                    raise ValueError(f"chosen.{name}.{side}: no option {option}")
        untuned = (
            f"arms.{side}"
            for name, world in self.worlds.items()
            for side in world.arms
            if self.options_left(name, side) and not self.tuning_seeds
        )
        if example := next(untuned, None):
            raise ValueError(f"tuning_seeds: expected some: {example} has configs to choose from")
        if overlap := {*self.seeds} & {*self.tuning_seeds}:
            raise ValueError(f"seeds that tune cannot be reported: {sorted(overlap)}")
        return self

    @cached_property
    def digest(self) -> str:
        """Hash of everything in it, of the presets that it extends and of the parts that they
        name; but not of trackers, which decide nothing."""
        digest = hashlib.sha256(self.model_dump_json().encode())
        for name, world in self.worlds.items():
            for arm in world.arms:
                config = self.config(name, arm, 0)
                digest.update(config.model_dump_json(exclude=DECIDES_NOTHING).encode())
                digest.update(repr([vars(part) for part in components(config)]).encode())
        return digest.hexdigest()[:16]

    def config(
        self, world: str, arm: str, seed: int, option: int = 0, more: Sequence[str] = ()
    ) -> RunConfig:
        """The config of one run."""
        place, side = self.worlds[world], self.arms[arm]
        changes = (*place.set, *side.set, *side.tune[option], *more, f"seed={seed}")
        overrides = (FEW_REPLIES, *self.set, *changes, "executor=local")
        return compose(place.base, overrides, f"protocol {self.name!r}, {world}, arm {arm!r}")

    def options_left(self, world: str, arm: str) -> int:
        """How many configs of an arm are to be tried in a world; 0 if the choice is made."""
        count = len(self.arms[arm].tune)
        return 0 if count == 1 or arm in self.chosen.get(world, {}) else count


def _check_known(name: str, names: Collection[str], where: str, kind: str) -> None:
    """Refuses a name that a protocol does not explain."""
    if name not in names:
        hint = did_you_mean(name, names) or f" there are {', '.join(names)}"
        raise ValueError(f"{where}: {name!r} is none of the {kind};{hint}")


def check_worlds(protocol: WorldsProtocol) -> None:
    """Builds every part of every arm in every world but the host. All arms of a world must meet
    the same questions; how these are put is an arm's own affair.

    Raises:
        ConfigError: one line that says which arm and what is wrong.
    """
    for name, world in protocol.worlds.items():
        first = _stream(protocol.config(name, protocol.main, 0))
        for arm in world.arms:
            for option in range(len(protocol.arms[arm].tune)):
                config = protocol.config(name, arm, 0, option)
                try:
                    check(config)
                    _check_measurable(config)
                    for part, value in _stream(config).items():
                        if value != first[part]:
                            raise ConfigError(f"{part}: expected that of {protocol.main!r}")
                except ConfigError as error:
                    raise ConfigError(f"protocol, {name}, arm {arm}: {error}") from error


def _stream(config: RunConfig) -> dict[str, object]:
    """What decides which questions a run meets, and whose answers they get."""
    return {
        "tasks": config.tasks.model_dump(exclude={"style": True, "habitats": {"shown"}}),
        "run.generations": config.run.generations,
        "host.model": config.host.model,
    }


def _check_measurable(config: RunConfig) -> None:
    """Whether there will be a verdict on every question, and a kind of every user."""
    habitats = mixture(config).habitats
    if not isinstance(habitats, SyntheticHabitats):
        habitat_kind = "none" if habitats is None else "users of data, whose kinds nobody knows"
        raise ConfigError(f"expected a world with habitats that the seed draws, got {habitat_kind}")
    if strategies.build(config.strategy).samples == 0:
        raise ConfigError(
            "strategy.samples: expected an arm that answers its users, and with 0 it only reads "
            "reference answers: leave it out"
        )

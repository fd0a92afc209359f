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
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from symbiont_ecology.config import RunConfig, compose
from symbiont_ecology.config_layers import merge, parse_override, read_layers
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.engine import living, provenance
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.budget import is_complete
from symbiont_ecology.engine.build import check, components, mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.evaluation.general import general_of_servers, general_reader, knows_english
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, Born, Event, GenerationEnded, Retired, Served
from symbiont_ecology.experiments.jobs import OUTCOME_FILE, Stopped, host_of, read_outcome
from symbiont_ecology.experiments.outcomes import (
    OUTCOME_SCHEMA,
    TUNED_FILE,
    JobOutcome,
    StreamOutcome,
    Tuning,
)
from symbiont_ecology.experiments.protocol import DECIDES_NOTHING, FEW_REPLIES, Name, Once
from symbiont_ecology.files import write_whole
from symbiont_ecology.registry import did_you_mean, validate
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks.habitats import Habitats, SyntheticHabitats
from symbiont_ecology.types import OrganelleId

_Schema = ConfigDict(extra="forbid", frozen=True)
WorldJobKind = Literal["tune", "stream"]


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


@dataclass(frozen=True)
class WorldJob:
    """A run of one arm in one world with one seed: to tune, or to be reported."""

    kind: WorldJobKind
    world: str
    arm: str
    seed: int
    option: int = 0

    @property
    def name(self) -> str:
        """Folder below the suite's."""
        return f"{self.kind}/{self.world}/{self.arm}/option-{self.option}/seed-{self.seed}"

    def work(self, protocol: str, folder: Path, should_stop: Callable[[], bool]) -> JobOutcome:
        """Lives the run to its end, or what is left of it, and returns what it leaves.

        Raises:
            Stopped: ``should_stop`` said so; the run has checkpointed and can go on.
            RunError: the run cannot go on.
        """
        plan, place = WorldsProtocol.model_validate_json(protocol), folder / self.name
        existing = read_outcome(place, plan)
        if existing is not None:
            return existing
        more = self._times(plan, folder)
        config = plan.config(self.world, self.arm, self.seed, self.option, more)
        host = host_of(config)
        is_begun, blobs = (place / STATE_FILE).exists(), place / "blobs"
        if is_begun and not blobs.exists() and is_complete(config, load_state(place)):
            shutil.rmtree(place)  # it was done, and its outcome was deleted: it is lived anew
            is_begun = False
        if is_begun:
            result = runs.resume(place, should_stop=should_stop, host=host)
        else:
            result = runs.start(config, place, should_stop=should_stop, host=host)
        if not result.is_complete:
            raise Stopped
        facts = {**asdict(self), "protocol": plan.digest, **_general(place, host)}
        outcome = stream_outcome(place, config, facts)
        write_whole(place / OUTCOME_FILE, outcome.to_json())
        shutil.rmtree(blobs, ignore_errors=True)  # a hundred runs fill a disk
        return outcome

    def _times(self, plan: WorldsProtocol, folder: Path) -> tuple[str, ...]:
        """The births and deaths of the run that this one repeats, as overrides."""
        model = plan.arms[self.arm].repeats
        if model is None:
            return ()
        chosen = Tuning.model_validate_json((folder / TUNED_FILE).read_bytes()).chosen
        option = chosen.get(self.world, {}).get(model, 0)
        job = WorldJob("stream", self.world, model, self.seed, option)
        outcome = read_outcome(folder / job.name, plan)
        if not isinstance(outcome, StreamOutcome):
            raise RunError(f"{self.name} repeats {job.name}, which is not done")
        births = [list(birth) for birth in outcome.births]
        return (f"strategy.births={births}", f"strategy.deaths={list(outcome.deaths)}")


def _general(place: Path, host: Host) -> dict[str, object]:
    """What plain English is to each adapter that serves in a run, if the host knows any."""
    if not knows_english(host):
        return {}
    run = LoadedRun.of_run(place)
    reader = general_reader(run.config, run.pool, host)
    return {"general": general_of_servers(reader, run.pool)} if reader else {}


def stream_outcome(folder: Path, config: RunConfig, about: Mapping[str, object]) -> StreamOutcome:
    """What a run in a world with habitats leaves; ``about`` says which run it is."""
    state, events = load_state(folder), list(read_events(folder / living.EVENTS_FILE))
    world = mixture(config).habitats
    assert world is not None
    return StreamOutcome.model_validate(
        {
            "schema": OUTCOME_SCHEMA,
            "source": provenance.source(),
            **about,
            "kind": "stream",
            **course_of(events, world, state.served),
            "train": state.spent,
            "scored": state.scored,
        }
    )


def course_of(
    events: Sequence[Event], world: Habitats, served: Mapping[OrganelleId, Sequence[str]]
) -> dict[str, object]:
    """What became of every question, and of everybody; ``served`` are the habitats of each living
    organelle at the end.

    ``verdicts`` has a letter per question in the order of the stream: 1 for accepted, 0 for
    refused, and ``-`` for a question that nobody answered.
    """
    verdicts, generations = list[str](), 0
    answers: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    numbers: dict[str, int] = {}
    population, births, deaths = list[int](), list[tuple[int, int]](), list[int]()
    servers: dict[str, str] = {}
    moves = list[tuple[int, int, int]]()
    birth_of: dict[str, int] = {}
    for event in events:
        match event:
            case Acted(purpose="practice"):
                for place, item in enumerate(event.items):
                    answers[event.generation, event.habitat, item].append(
                        event.verdicts[place * event.samples]
                    )
                if servers.get(event.habitat) != event.id:
                    servers[event.habitat] = event.id
                    number = numbers.setdefault(event.id, len(numbers))
                    moves.append((event.generation, world.number(event.habitat), number))
            case Born() if event.operator != "founder":
                birth_of[event.id] = len(births)
                births.append((event.generation, 0))
            case Served():
                for name, count in Counter(event.servers.values()).items():
                    if name in birth_of and births[birth_of[name]] == (event.generation, 0):
                        births[birth_of[name]] = (event.generation, count)
            case Retired():
                deaths.append(event.generation)
            case GenerationEnded():
                population.append(event.population)
                generations = event.generation + 1
            case _:
                pass
    for generation in range(generations):
        counts = Counter[tuple[int, str, str]]()
        for question in world.questions(generation):
            key = (generation, question.habitat, question.id)
            marks, place = answers.get(key, []), counts[key]
            counts[key] += 1
            verdicts.append(str(int(marks[place] >= 0.5)) if place < len(marks) else "-")
    served_by = dict.fromkeys(world.names, -1)
    for organelle_id, habitats in served.items():
        served_by |= dict.fromkeys(habitats, numbers.setdefault(organelle_id, len(numbers)))
    return {
        "verdicts": "".join(verdicts),
        "moves": moves,
        "served_by": list(served_by.values()),
        "population": population,
        "births": births,
        "deaths": deaths,
    }


def tuning_runs(protocol: WorldsProtocol) -> list[WorldJob]:
    """Every config that is to be tried."""
    return [
        WorldJob("tune", name, arm, seed, option)
        for name, world in protocol.worlds.items()
        for arm in world.arms
        for option in range(protocol.options_left(name, arm))
        for seed in protocol.tuning_seeds
    ]


def reported_runs(
    protocol: WorldsProtocol, chosen: Mapping[str, Mapping[str, int]]
) -> list[WorldJob]:
    """The runs that results are made of. Seeds are outermost, so that an unfinished suite is a
    smaller one; an arm that repeats another comes after it."""
    return [
        WorldJob("stream", name, arm, seed, chosen.get(name, {}).get(arm, 0))
        for seed in protocol.seeds
        for name, world in protocol.worlds.items()
        for arm in sorted(world.arms, key=lambda arm: protocol.arms[arm].repeats is not None)
    ]


def repeats(protocol: WorldsProtocol, job: WorldJob) -> bool:
    """Whether a job waits for another one."""
    return protocol.arms[job.arm].repeats is not None


def choose_by_acceptance(
    protocol: WorldsProtocol, outcomes: Sequence[StreamOutcome]
) -> dict[str, dict[str, int]]:
    """By world and arm, the option with the highest mean acceptance; the first of equals."""
    scores: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        scores[outcome.world, outcome.arm][outcome.option].append(outcome.acceptance)
    chosen = {name: dict(options) for name, options in protocol.chosen.items()}
    for (world, arm), options in scores.items():
        means = {option: fmean(values) for option, values in sorted(options.items())}
        chosen.setdefault(world, {})[arm] = max(means, key=means.__getitem__)
    return chosen


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


def load_worlds(
    path: Path, overrides: Sequence[str] = (), additions: Sequence[str] = ()
) -> WorldsProtocol:
    """A protocol of worlds from a file, changed: that is another one, with another digest.

    Raises:
        ConfigError: it does not fit its schema.
    """
    data = read_layers(path)
    for override in overrides:
        data = merge(data, parse_override(override))
    where = f"protocol {path.stem!r}"
    plan = validate(WorldsProtocol, data, where)
    values = {**data, "set": [*plan.set, *additions]}
    return validate(WorldsProtocol, values, where) if additions else plan

"""Runs of a protocol of worlds: one arm in one world with one seed, and what it leaves."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.engine import living, provenance
from symbiont_ecology.engine import run as runs
from symbiont_ecology.engine.budget import is_complete
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import RunError
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
from symbiont_ecology.experiments.worlds import WorldsProtocol
from symbiont_ecology.files import write_whole
from symbiont_ecology.tasks.habitats import Habitats
from symbiont_ecology.types import OrganelleId

WorldJobKind = Literal["tune", "stream"]


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

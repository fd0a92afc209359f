"""Measures of runs in worlds with habitats: what users lived through, and who served them.

A measure is a function of one run (``Stream``); None where it does not apply to the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.experiments.outcomes import StreamOutcome
from symbiont_ecology.experiments.world_jobs import stream_outcome
from symbiont_ecology.experiments.worlds import WorldsProtocol
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.statistics import adjusted_rand
from symbiont_ecology.tasks.habitats import SyntheticHabitats

NEWCOMER, RETURN, RECOVERY = 10, 30, 10
"""The first questions of a newcomer; those after a habitat comes back to what it wanted before;
those after a change, until which an adapter may take to find it out."""
SETTLED, LEVEL = 20, 20
"""Generations before a change in which a level is taken; the last ones of a run."""


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of a world, in the order of the stream, ``(questions,)`` each: the generation,
    the number of the habitat, and how many that habitat has asked with it."""

    world: SyntheticHabitats
    generations: np.ndarray
    habitats: np.ndarray
    numbers: np.ndarray

    @property
    def length(self) -> int:
        """Generations."""
        return int(self.generations[-1]) + 1


@lru_cache(maxsize=256)
def questions_in(text: str, world: str, seed: int, generations: int) -> Questions:
    """The stream of a world; ``text`` is the protocol's JSON."""
    protocol = WorldsProtocol.model_validate_json(text)
    return questions_of(protocol.config(world, protocol.main, seed), generations)


def questions_of(config: RunConfig, generations: int) -> Questions:
    """What is asked in the first generations of a run."""
    habitats = mixture(config).habitats
    assert isinstance(habitats, SyntheticHabitats)
    rows = np.array(
        [
            (generation, habitats.number(item.habitat))
            for generation in range(generations)
            for item in habitats.questions(generation)
        ]
    )
    numbers, counts = np.zeros(len(rows), int), np.zeros(len(habitats.names), int)
    for place, habitat in enumerate(rows[:, 1]):
        counts[habitat] += 1
        numbers[place] = counts[habitat]
    return Questions(habitats, rows[:, 0], rows[:, 1], numbers)


@dataclass(frozen=True, eq=False)
class Stream:
    """One run: its outcome, and the questions that it was asked."""

    outcome: StreamOutcome
    asked: Questions

    @classmethod
    def of(cls, outcome: StreamOutcome, text: str) -> Stream:
        """The run that left an outcome; ``text`` is the protocol's JSON."""
        length = len(outcome.population)
        return cls(outcome, questions_in(text, outcome.world, outcome.seed, length))

    @classmethod
    def of_run(cls, folder: Path, arm: str) -> Stream:
        """A run by itself, from its folder."""
        config = read_config(folder)
        about = {"world": "", "arm": arm, "seed": config.seed, "option": 0, "protocol": ""}
        outcome = stream_outcome(folder, config, about)
        return cls(outcome, questions_of(config, len(outcome.population)))

    @cached_property
    def accepted(self) -> np.ndarray:
        """1.0 for an accepted answer, 0.0 for a refused one or none, ``(questions,)``."""
        return np.array([letter == "1" for letter in self.outcome.verdicts], float)

    def share(self, chosen: np.ndarray) -> float | None:
        """The share of accepted answers among the chosen questions; None of none."""
        return float(self.accepted[chosen].mean()) if chosen.any() else None

    @cached_property
    def servers(self) -> np.ndarray:
        """The number of the organelle that last answered each habitat by the end of each
        generation, ``(habitats, generations)``; -1 before its first question."""
        table = np.full((len(self.asked.world.names), self.asked.length), -1)
        for generation, habitat, organelle in self.outcome.moves:
            table[habitat, generation:] = organelle
        return table

    @cached_property
    def last_servers(self) -> np.ndarray | None:
        """The number of the organelle that serves each habitat at the end, ``(habitats,)``; -1
        where nobody alive does.

        Where an old outcome does not say it, it is who answered last, as far as it is alive. Alive
        is who answered anything after the last death. None if that leaves open who is.
        """
        if self.outcome.served_by is not None:
            return np.array(self.outcome.served_by)
        asked, last = self.asked, self.servers[:, -1]
        is_answered = np.array(list(self.outcome.verdicts)) != "-"
        is_late = is_answered & (asked.generations > max(self.outcome.deaths, default=-1))
        living = np.unique(self.servers[asked.habitats[is_late], asked.generations[is_late]])
        is_living = np.isin(last, living)
        is_known = len(living) == self.outcome.population[-1] or (is_living | (last < 0)).all()
        return np.where(is_living, last, -1) if is_known else None

    @cached_property
    def kinds(self) -> np.ndarray:
        """The kind of each habitat in each generation, ``(habitats, generations)``."""
        world = self.asked.world
        return np.array([world.kinds(generation) for generation in range(self.asked.length)]).T


StreamMeasure = Callable[[Stream], "float | None"]


def acceptance(run: Stream) -> float | None:
    """Share of all questions, learning included."""
    return float(run.accepted.mean())


def late(run: Stream) -> float | None:
    """Share of the last quarter."""
    return run.share(run.asked.generations >= 0.75 * run.asked.length)


def newcomers(run: Stream) -> float | None:
    """Share of the first questions of habitats that came after the first third."""
    world, asked = run.asked.world, run.asked
    is_late = world.arrivals[asked.habitats] > asked.length / 3
    return run.share(is_late & (asked.numbers <= NEWCOMER))


def end(run: Stream) -> float | None:
    """Share of the last generations."""
    return run.share(run.asked.generations >= run.asked.length - LEVEL)


def adapters(run: Stream) -> float | None:
    """Organelles alive at the end."""
    return float(run.outcome.population[-1])


def serving(run: Stream) -> float | None:
    """Organelles that serve somebody at the end."""
    servers = run.last_servers
    return None if servers is None else float(len(set(servers[servers >= 0])))


def is_exact(run: Stream) -> float | None:
    """Whether all habitats are served at the end, and have the same server if, and only if, they
    are of one kind."""
    servers = run.last_servers
    if servers is None:
        return None
    return float((servers >= 0).all() and adjusted_rand(servers, run.kinds[:, -1]) == 1.0)


def back(run: Stream) -> float | None:
    """Habitats that changed, from their eleventh question after it on: share ÷ that before."""
    moment = run.asked.world.config.drift_at
    if moment is None:
        return None
    offsets, is_moved = _since(run, moment), _lived_through(run, moment, has_moved=True)
    level = run.share(is_moved & (offsets < 0) & (offsets >= -SETTLED))
    after = run.share(
        is_moved & (run.asked.numbers > _before(run, moment) + RECOVERY) & (offsets < SETTLED)
    )
    return after / level if level and after is not None else None


def others(run: Stream) -> float | None:
    """Habitats that did not change: share after the change of others, minus that before."""
    moment = run.asked.world.config.drift_at
    if moment is None:
        return None
    offsets, is_unmoved = _since(run, moment), _lived_through(run, moment, has_moved=False)
    before = run.share(is_unmoved & (offsets < 0) & (offsets >= -SETTLED))
    after = run.share(is_unmoved & (offsets >= 0) & (offsets < SETTLED))
    return after - before if before is not None and after is not None else None


def returns(run: Stream) -> float | None:
    """Share of the first questions after a habitat came back to what it wanted before."""
    visits = [rows[:RETURN] for rows, is_back in _regimes(run) if is_back]
    return float(np.mean([run.accepted[rows].mean() for rows in visits])) if visits else None


def thirds(run: Stream) -> float | None:
    """Share of the last third of every regime with three questions or more."""
    ends = [rows[-(-len(rows) * 2 // 3) :] for rows, _ in _regimes(run) if len(rows) > 2]
    return float(np.mean([run.accepted[rows].mean() for rows in ends])) if ends else None


def honest(run: Stream) -> float | None:
    """Share without the habitats that answer at random; without the one that would if one did."""
    world = run.asked.world
    fickle = world.most_fickle[: max(world.config.fickle, 1)]
    return run.share(~np.isin(run.asked.habitats, fickle))


def scored(run: Stream) -> float | None:
    """Answers that were sketched or scored, per question."""
    return run.outcome.scored / max(len(run.outcome.verdicts), 1)


def flops(run: Stream) -> float | None:
    """Useful FLOPs of everything."""
    return float(run.outcome.train.flops)


STREAM_MEASURES: dict[str, StreamMeasure] = {
    "acceptance": acceptance,
    "late": late,
    "newcomers": newcomers,
    "end": end,
    "adapters": adapters,
    "serving": serving,
    "exact": is_exact,
    "back": back,
    "others": others,
    "returns": returns,
    "thirds": thirds,
    "honest": honest,
    "scored": scored,
    "flops": flops,
}
"""By name, as a goal of a protocol names them."""
NO_SHARES = ("adapters", "serving", "scored", "flops")
"""Measures that are no shares."""


def check_measures(protocol: WorldsProtocol) -> None:
    """Whether every goal names a measure.

    Raises:
        ConfigError: one does not.
    """
    for goal in protocol.goals:
        if goal.measure not in STREAM_MEASURES:
            hint = did_you_mean(goal.measure, STREAM_MEASURES)
            raise ConfigError(
                f"goals: no measure {goal.measure!r};{hint} known: {', '.join(STREAM_MEASURES)}"
            )


def _since(run: Stream, moment: int) -> np.ndarray:
    offsets: np.ndarray = run.asked.generations - moment
    return offsets


def _lived_through(run: Stream, moment: int, has_moved: bool) -> np.ndarray:
    """Whether each question is of a habitat that changed kind then, or of one that did not; of
    those that were there when the level was taken, ``(questions,)``."""
    is_moved = run.kinds[:, 0] != run.kinds[:, -1]
    was_there = run.asked.world.arrivals <= max(moment - SETTLED, 0)
    chosen: np.ndarray = ((is_moved == has_moved) & was_there)[run.asked.habitats]
    return chosen


def _before(run: Stream, moment: int) -> np.ndarray:
    """How many questions the habitat of each question asked before a moment, ``(questions,)``."""
    asked = run.asked
    early = asked.habitats[asked.generations < moment]
    counts: np.ndarray = np.bincount(early, minlength=len(asked.world.names))[asked.habitats]
    return counts


def _regimes(run: Stream) -> list[tuple[np.ndarray, bool]]:
    """The questions of each habitat in each of its regimes, and whether it was in it before."""
    if not run.asked.world.config.regimes:
        return []
    regimes, asked = list[tuple[np.ndarray, bool]](), run.asked
    for habitat, kinds in enumerate(run.kinds):
        changes = [0, *(np.flatnonzero(np.diff(kinds)) + 1), len(kinds)]
        past_kinds = set[int]()
        for start, stop in pairwise(changes):
            is_within = (asked.generations >= start) & (asked.generations < stop)
            rows = np.flatnonzero(is_within & (asked.habitats == habitat))
            if len(rows):
                regimes.append((rows, int(kinds[start]) in past_kinds))
            past_kinds.add(int(kinds[start]))
    return regimes

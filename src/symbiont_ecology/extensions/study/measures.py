"""Measures of runs, as functions of their answers.

A stream is what users lived through in a world with users; a measure of it is a number, or None
where it does not apply to the world. Legs are what was asked after a flip, or whenever a family had
come; they are rows of the table of answers (``results``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from symbiont_ecology.base.flops import Cost
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.extensions.study.jobs import stream_parts
from symbiont_ecology.extensions.study.outcomes import StreamRecord
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.users import SyntheticUsers

NEWCOMER, RETURN, RECOVERY = 10, 30, 10
"""The first questions of a newcomer; those after a user comes back to what it wanted before;
those after a change, until which an adapter may take to find it out."""
SETTLED = 20
"""Generations before a change in which a level is taken."""
SIDES = ("all", "flipped", "kept")
"""Families of a flip, by whether their convention changes."""


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of a world, in the order of the stream, ``(questions,)`` each: the generation,
    the number of the user, and how many that user has asked with it."""

    world: SyntheticUsers
    generations: np.ndarray
    users: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, config: RunConfig, length: int) -> Questions:
        """Return what is asked in the first generations of a run."""
        world = mixture(config).users
        assert isinstance(world, SyntheticUsers)
        rows = [
            (generation, world.names.index(item.user))
            for generation in range(length)
            for item in world.questions(generation)
        ]
        table = pd.DataFrame(rows, columns=["generation", "user"])
        numbers = table.groupby("user").cumcount().to_numpy() + 1
        return cls(world, table.generation.to_numpy(), table.user.to_numpy(), numbers)

    @property
    def length(self) -> int:
        """Generations."""
        return int(self.generations[-1]) + 1


@dataclass(frozen=True, eq=False)
class Stream:
    """One run: what became of the questions that it was asked, and what it spent."""

    record: StreamRecord
    train: Cost
    asked: Questions

    @classmethod
    def of_run(cls, folder: Path) -> Stream:
        """Return a run by itself, from its folder."""
        run = LoadedRun.of_run(folder)
        parts = stream_parts(run)
        record = StreamRecord.model_validate(parts["stream"])
        asked = Questions.of(run.config, len(record.population))
        return cls(record, run.pool.state.spent, asked)

    @cached_property
    def accepted(self) -> np.ndarray:
        """1.0 for an accepted answer, 0.0 for a refused one or none, ``(questions,)``."""
        return np.array([letter == "1" for letter in self.record.verdicts], float)

    def share(self, chosen: np.ndarray) -> float | None:
        """Return the share of accepted answers among the chosen questions; None of none."""
        return float(self.accepted[chosen].mean()) if chosen.any() else None

    @cached_property
    def servers(self) -> np.ndarray:
        """The number of the organelle that last answered each user by the end of each
        generation, ``(users, generations)``; -1 before its first question."""
        table = np.full((len(self.asked.world.names), self.asked.length), -1)
        for generation, user, organelle in self.record.moves:
            table[user, generation:] = organelle
        return table

    @cached_property
    def last_servers(self) -> np.ndarray | None:
        """The number of the organelle that serves each user at the end, ``(users,)``; -1
        where nobody alive does.

        Where an old outcome does not say it, it is who answered last, as far as it is alive. Alive
        is who answered anything after the last death. None if that leaves open who is.
        """
        if self.record.served_by is not None:
            return np.array(self.record.served_by)
        asked, last = self.asked, self.servers[:, -1]
        is_answered = np.array(list(self.record.verdicts)) != "-"
        is_late = is_answered & (asked.generations > max(self.record.deaths, default=-1))
        living = np.unique(self.servers[asked.users[is_late], asked.generations[is_late]])
        is_living = np.isin(last, living)
        is_known = len(living) == self.record.population[-1] or (is_living | (last < 0)).all()
        return np.where(is_living, last, -1) if is_known else None

    @cached_property
    def kinds(self) -> np.ndarray:
        """The kind of each user in each generation, ``(users, generations)``."""
        world = self.asked.world
        return np.array([world.kinds(generation) for generation in range(self.asked.length)]).T

    @cached_property
    def regimes(self) -> list[tuple[np.ndarray, bool]]:
        """The questions of each user in each of its regimes, and whether it was in it before;
        none in a world without regimes."""
        if not self.asked.world.config.regimes:
            return []
        regimes = list[tuple[np.ndarray, bool]]()
        for user, kinds in enumerate(self.kinds):
            changes = [0, *(np.flatnonzero(np.diff(kinds)) + 1), len(kinds)]
            past_kinds, generations = set[int](), self.asked.generations
            for start, stop in pairwise(changes):
                is_within = (generations >= start) & (generations < stop)
                rows = np.flatnonzero(is_within & (self.asked.users == user))
                if len(rows):
                    regimes.append((rows, int(kinds[start]) in past_kinds))
                past_kinds.add(int(kinds[start]))
        return regimes

    def around_drift(self, moved: bool) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the generation of each question minus that of the world's change, and which
        questions are of users that changed kind then, or of others, ``(questions,)`` each; only
        of those that were there when the level was taken. None in a world without a change."""
        moment = self.asked.world.config.drift_at
        if moment is None:
            return None
        has_moved = self.kinds[:, 0] != self.kinds[:, -1]
        was_there = self.asked.world.arrivals <= max(moment - SETTLED, 0)
        chosen = ((has_moved == moved) & was_there)[self.asked.users]
        return self.asked.generations - moment, chosen


def late(run: Stream) -> float | None:
    """Return the share of the last quarter."""
    return run.share(run.asked.generations >= 0.75 * run.asked.length)


def newcomers(run: Stream) -> float | None:
    """Return the share of the first questions of users that came after the first third."""
    asked = run.asked
    is_late = asked.world.arrivals[asked.users] > asked.length / 3
    return run.share(is_late & (asked.numbers <= NEWCOMER))


def serving(run: Stream) -> float | None:
    """Return how many organelles serve somebody at the end."""
    servers = run.last_servers
    return None if servers is None else float(len(set(servers[servers >= 0])))


def is_exact(run: Stream) -> float | None:
    """Return 1 if all users are served at the end, and have the same server if, and only if,
    they are of one kind; else 0."""
    servers = run.last_servers
    if servers is None:
        return None
    kinds = run.kinds[:, -1].tolist()
    pairs = set(zip(servers.tolist(), kinds, strict=True))
    is_grouped_alike = len(pairs) == len(set(servers.tolist())) == len(set(kinds))
    return float((servers >= 0).all() and is_grouped_alike)


def back(run: Stream) -> float | None:
    """Return the share of users that changed, from their eleventh question after it on, divided
    by that before."""
    if (found := run.around_drift(moved=True)) is None:
        return None
    offsets, is_moved = found
    early = run.asked.users[offsets < 0]
    before = np.bincount(early, minlength=len(run.asked.world.names))[run.asked.users]
    level = run.share(is_moved & (offsets < 0) & (offsets >= -SETTLED))
    is_after = (run.asked.numbers > before + RECOVERY) & (offsets < SETTLED)
    after = run.share(is_moved & is_after)
    return after / level if level and after is not None else None


def others(run: Stream) -> float | None:
    """Return the share of users that did not change after the change of others, minus that
    before."""
    if (found := run.around_drift(moved=False)) is None:
        return None
    offsets, is_unmoved = found
    before = run.share(is_unmoved & (offsets < 0) & (offsets >= -SETTLED))
    after = run.share(is_unmoved & (offsets >= 0) & (offsets < SETTLED))
    return after - before if before is not None and after is not None else None


def returns(run: Stream) -> float | None:
    """Return the share of the first questions after a user came back to what it wanted
    before."""
    visits = [rows[:RETURN] for rows, is_back in run.regimes if is_back]
    return float(np.mean([run.accepted[rows].mean() for rows in visits])) if visits else None


def thirds(run: Stream) -> float | None:
    """Return the share of the last third of every regime with three questions or more."""
    ends = [rows[-(-len(rows) * 2 // 3) :] for rows, _ in run.regimes if len(rows) > 2]
    return float(np.mean([run.accepted[rows].mean() for rows in ends])) if ends else None


def honest(run: Stream) -> float | None:
    """Return the share without the users that answer at random; without the one that would if
    one did."""
    world = run.asked.world
    fickle = world.most_fickle[: max(world.config.fickle, 1)]
    return run.share(~np.isin(run.asked.users, fickle))


STREAM_MEASURES: dict[str, Callable[[Stream], float | None]] = {
    "acceptance": lambda run: float(run.accepted.mean()),
    "late": late,
    "newcomers": newcomers,
    "adapters": lambda run: float(run.record.population[-1]),
    "serving": serving,
    "exact": is_exact,
    "back": back,
    "others": others,
    "returns": returns,
    "thirds": thirds,
    "honest": honest,
    "scored": lambda run: run.record.scored / max(len(run.record.verdicts), 1),
    "flops": lambda run: float(run.train.flops),
}
"""By name, as in ``summary.json``."""
NO_SHARES = ("adapters", "serving", "scored", "flops")
"""Measures that are no shares."""


def area(legs: pd.DataFrame, side: str = "all") -> float:
    """Return the mean height over both phases of a run's accuracy through a flip, by the FLOPs that
    were really spent.

    ``side`` says over which families: those that flipped, those that were kept, or all.
    """
    heights = []
    for phase in ("flipped", "back"):
        # In a trial the steps may be too short for a single question.
        points = legs[legs.phase == phase].drop_duplicates("train_flops", keep="last")
        xs, ys = points.train_flops.to_list(), points[side].to_list()
        is_curve = len(xs) > 1
        heights.append(np.trapezoid(ys, xs) / (xs[-1] - xs[0]) if is_curve else ys[0])
    return float(np.mean(heights))


def at_zero(legs: pd.DataFrame) -> float:
    """Return what is right after the changes of a flip, before anything is spent."""
    return float(np.mean(legs[(legs.phase != "before") & (legs.extra == 0)]["all"].to_list()))


def stage_measures(course: np.ndarray) -> dict[str, float]:
    """Return the measures of a run in a world in which families come one after another; ``course``
    is what is right of each family at the end of every stage, ``(families, stages)``.

    ``at_once`` is what is right in a family when its time is over, ``at_last`` what is right in all
    families at the very end. ``lost`` is what became of the first by then, over all families but
    the last one; ``worst`` is the family that lost most.
    """
    at_once, at_last = np.diagonal(course), course[:, -1]
    lost = (at_once - at_last)[:-1]
    return {
        "at_once": float(at_once.mean()),
        "at_last": float(at_last.mean()),
        "lost": float(lost.mean()),
        "worst": float(lost.max()),
    }

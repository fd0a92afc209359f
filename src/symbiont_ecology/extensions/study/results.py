"""The results of a suite: one tidy table of answers, and a record of what every run did.

``Results.answers`` has a row per question that an arm's run was asked. Every number of a comparison
is made of it, of the streams of worlds, and of the outcomes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from symbiont_ecology.ecology import HOST
from symbiont_ecology.errors import DataError
from symbiont_ecology.extensions.study.measures import SIDES, Questions, Stream
from symbiont_ecology.extensions.study.outcomes import Outcome
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.types import cell_family

NO_SEED = (-1,)
"""The seeds of the bare host, which has none."""
FLIP_PHASES = ("before", "flipped", "back")
LEG = ["arm", "routing", "seed", "budget", "phase", "extra", "train_flops"]
ASKED = [*LEG, "shift", "cell"]
"""Columns of the answers that say who was asked what."""


@dataclass(frozen=True)
class Verdicts:
    """1.0 for right and 0.0 for wrong, ``(seeds, questions)``; the cell of each question; the
    seeds."""

    values: np.ndarray
    cells: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def families(self) -> list[str]:
        """The family of each question."""
        return [cell_family(cell) for cell in self.cells]

    def by_cell(self) -> np.ndarray:
        """Return the share that is right in every cell, ``(cells, seeds)``."""
        names = np.array(self.cells)
        return np.array(
            [self.values[:, names == cell].mean(axis=1) for cell in dict.fromkeys(self.cells)]
        )

    def by_seed(self) -> list[float]:
        """Return the mean over cells of the share that is right, for each seed."""
        return [float(value) for value in np.mean(self.by_cell(), axis=0)]

    def covered(self) -> list[float]:
        """Return how many cells have at least half of their answers right, for each seed."""
        return [float(count) for count in (self.by_cell() >= 0.5).sum(axis=0)]

    def minus(self, other: Verdicts) -> Verdicts:
        """Return the differences on the same questions and the seeds that both have; the host's
        stand for all. Without a seed in common they are those of the means over seeds.

        Raises:
            DataError: they did not answer the same questions.
        """
        if self.cells != other.cells:
            raise DataError(
                "expected two arms that answered the same questions: make the suite anew"
            )
        if other.seeds == NO_SEED:
            return Verdicts(self.values - other.values, self.cells, self.seeds)
        shared = tuple(seed for seed in self.seeds if seed in other.seeds)
        if not shared:
            means = self.values.mean(axis=0, keepdims=True) - other.values.mean(axis=0)
            return Verdicts(means, self.cells, NO_SEED)
        first, second = (
            side.values[[side.seeds.index(seed) for seed in shared]] for side in (self, other)
        )
        return Verdicts(first - second, self.cells, shared)

    def where(self, chosen: np.ndarray) -> Verdicts:
        """Return the questions that a mask chooses."""
        indices = np.flatnonzero(chosen)
        return Verdicts(
            self.values[:, indices], tuple(self.cells[index] for index in indices), self.seeds
        )


@dataclass(frozen=True, eq=False)
class Results:
    """All results of a suite.

    ``answers`` has a row per answer: ``arm`` (whose run it is), ``routing``, ``seed``, ``budget``,
    ``phase`` (``run``, ``stage``, or that of a flip), ``extra`` (units of FLOPs after the change,
    or the number of the stage), ``train_flops`` (spent on training until then), ``shift``,
    ``cell``, ``is_flipped`` (whether the cell's family changes), ``flops`` (of an answer, the mean
    of its shift), ``item`` (index of the question in its cell) and ``right`` (0 or 1). What users
    lived through in worlds is in ``streams``.
    """

    protocol: Protocol
    outcomes: Sequence[Outcome]

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The tidy table; cells are in the order of their names, whoever wrote the outcomes."""
        rows = [row for outcome in self.outcomes for row in _rows(outcome)]
        cells = pd.DataFrame(rows, columns=[*ASKED, "is_flipped", "flops", "bits"])
        bits, sizes = "".join(cells.bits), cells.bits.str.len().astype(int)
        table = cells.drop(columns="bits").astype(dict.fromkeys(ASKED, "category"))
        table = table.loc[table.index.repeat(sizes)]
        starts = (sizes.cumsum() - sizes).repeat(sizes).to_numpy()
        return table.reset_index(drop=True).assign(
            item=(np.arange(len(bits)) - starts).astype(np.int32),
            right=(np.frombuffer(bits.encode(), np.uint8) - ord("0")).astype(np.int8),
        )

    @property
    def largest(self) -> float:
        """The largest budget, in units."""
        return self.protocol.budgets[-1]

    @property
    def missing(self) -> tuple[int, int]:
        """How many of the reported runs are not done, and how many there are to be."""
        protocol = self.protocol
        arms = sum(len(place.arms) for place in protocol.places.values())
        per_seed = len(protocol.run_budgets) + (protocol.flip is not None)
        planned = len(protocol.seeds) * arms * per_seed
        return planned - sum(outcome.kind != "host" for outcome in self.outcomes), planned

    @cached_property
    def host(self) -> Outcome:
        """What the bare host answered.

        Raises:
            DataError: it was not asked.
        """
        for outcome in self.outcomes:
            if outcome.kind == "host":
                return outcome
        raise DataError("the outcomes hold no answers of the bare host: run the suite to its end")

    def runs(self, arm: str, budget: float) -> list[Outcome]:
        """Return the reported runs that an arm answers with at a budget, by seed."""
        key = (self.protocol.runs_of(arm), budget)
        return [
            outcome
            for outcome in self.outcomes
            if outcome.kind == "main" and (outcome.arm, outcome.budget) == key
        ]

    @cached_property
    def known(self) -> np.ndarray:
        """Which questions of the shift ``retention`` the bare host answers, ``(questions,)``."""
        verdicts = self.verdicts(HOST, 0, "retention")
        return np.zeros(0, dtype=bool) if verdicts is None else verdicts.values[0] > 0

    @cached_property
    def _places(self) -> dict[tuple[object, ...], np.ndarray]:
        """Rows of the table, by what was asked of whom."""
        keys = ["arm", "budget", "phase", "shift", "routing"]
        return dict(self.answers.groupby(keys, observed=True, sort=False).indices)

    def verdicts(
        self, arm: str, budget: float, shift: str, routing: str | None = None
    ) -> Verdicts | None:
        """Return an arm's verdicts; None where it was not asked. The host is one seed, whatever the
        budget.

        Raises:
            DataError: its runs answered different questions.
        """
        key: tuple[object, ...] = (HOST, self.host.budget, "run", shift, HOST)
        if arm != HOST:
            routing = routing or self.protocol.arms[arm].routing
            key = (self.protocol.runs_of(arm), budget, "run", shift, routing)
        answers = self.answers.iloc[self._places.get(key, [])]
        seeds, cells = answers.seed.to_numpy(), answers.cell.cat.codes.to_numpy()
        starts = np.flatnonzero(np.diff(seeds, prepend=seeds[:1] - 1))  # in one piece per seed
        if not len(starts):
            return None
        first, *rest = np.split(cells, starts[1:])
        for seed, codes in zip(seeds[starts[1:]], rest, strict=True):
            if not np.array_equal(codes, first):
                raise DataError(
                    f"arm {arm!r}, seed {seed}: answered other questions than its sisters"
                )
        values = answers.right.to_numpy(float).reshape(len(starts), -1)
        names = tuple(answers.cell.cat.categories.to_numpy()[first])
        return Verdicts(values, names, NO_SEED if arm == HOST else tuple(seeds[starts].tolist()))

    def flops_per_right(self, arm: str, budget: float, shift: str) -> list[float]:
        """Return the useful FLOPs of answering for every right answer, by seed."""
        runs = [self.host] if arm == HOST else self.runs(arm, budget)
        routing = HOST if arm == HOST else self.protocol.arms[arm].routing
        answers = [run.systems[routing] for run in runs]
        return [own.flops.get(shift, 0) / max(own.right(shift), 1) for own in answers]

    @cached_property
    def cells(self) -> dict[str, list[str]]:
        """In-distribution cells of each kind: ``elicitation`` (the host can, when told) and
        ``capability``.

        None where nothing can be told: tasks from a data file have no convention.
        """
        if (ceiling := self.verdicts(HOST, 0, "ceiling")) is None:
            return {"elicitation": [], "capability": []}
        shares = zip(dict.fromkeys(ceiling.cells), ceiling.by_cell()[:, 0], strict=True)
        kinds: dict[str, list[str]] = {"elicitation": [], "capability": []}
        for cell, share in shares:
            is_told = share >= self.protocol.elicitation
            kinds["elicitation" if is_told else "capability"].append(cell)
        return kinds

    def legs_of(self, arm: str) -> pd.DataFrame:
        """Return the share that is right at every leg of a flip, of the runs that an arm answers
        with, by its routing: columns ``LEG`` and ``SIDES``."""
        runs, routing = self.protocol.runs_of(arm), self.protocol.arms[arm].routing
        return self._legs[(self._legs.arm == runs) & (self._legs.routing == routing)]

    @cached_property
    def _legs(self) -> pd.DataFrame:
        rows = self.answers[self.answers.phase.isin(FLIP_PHASES)]
        right, is_flipped = rows.right, rows.is_flipped
        sides = (right, right.where(is_flipped), right.where(~is_flipped))
        rows = rows.assign(**dict(zip(SIDES, sides, strict=True)))
        legs = rows.groupby(LEG, observed=True, sort=False)[list(SIDES)].mean().reset_index()
        return legs.astype({key: legs[key].cat.categories.dtype for key in LEG})

    def courses(self, arm: str) -> dict[int, np.ndarray]:
        """Return what is right of each family at the end of every stage, by seed, ``(families,
        stages)``; families in the order of their coming. Empty where nothing arrives."""
        routing, courses = self.protocol.arms[arm].routing, dict[int, np.ndarray]()
        for run in self.runs(arm, self.largest):
            stages = [leg.systems[routing] for leg in run.legs if leg.phase == "stage"]
            if not stages or run.run is None:
                continue
            shares = [_by_family(stage.bits["in-distribution"]) for stage in stages]
            arrived = run.run.arrived
            courses[run.seed] = np.array([[own[name] for own in shares] for name in arrived])
        return courses

    @cached_property
    def streams(self) -> dict[tuple[str, str], dict[int, Stream]]:
        """By world and arm, the runs by seed."""
        streams: dict[tuple[str, str], dict[int, Stream]] = defaultdict(dict)
        asked = dict[tuple[str, int, int], Questions]()
        for outcome in self.outcomes:
            record, world, seed = outcome.stream, outcome.world, outcome.seed
            if record is None:
                continue
            key = (world, seed, len(record.population))
            if key not in asked:
                config = self.protocol.config(self.protocol.main, 1.0, seed, world=world)
                asked[key] = Questions.of(config, len(record.population))
            stream = Stream(seed, record, outcome.train, asked[key])
            streams[world, outcome.arm][seed] = stream
        return streams


def _by_family(cells: dict[str, str]) -> dict[str, float]:
    """The mean over the cells of each family of the share that is right."""
    shares: dict[str, list[float]] = defaultdict(list)
    for cell, bits in cells.items():
        shares[cell_family(cell)].append(bits.count("1") / len(bits))
    return {family: float(np.mean(own)) for family, own in shares.items()}


def _rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    """A row per cell that was asked, with all verdicts of it."""
    for leg in outcome.legs:
        moment = (outcome.seed, outcome.budget, leg.phase, leg.extra, leg.train_flops)
        for routing, system in sorted(leg.systems.items()):
            for shift, cells in sorted(system.bits.items()):
                flops = system.flops.get(shift, 0) / max(sum(map(len, cells.values())), 1)
                for cell, bits in sorted(cells.items()):
                    is_flipped = cell_family(cell) in outcome.families
                    yield outcome.arm, routing, *moment, shift, cell, is_flipped, flops, bits

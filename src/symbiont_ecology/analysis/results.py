"""The results of a suite: one tidy table of answers, and a record of what every run did.

``Results.answers`` has a row per question that an arm's run was asked. Every number of a comparison
is made of it and of the outcomes (``experiments.outcomes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from symbiont_ecology.errors import DataError
from symbiont_ecology.experiments.outcomes import HostOutcome, ReportedOutcome, RunOutcome
from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.types import cell_family

BARE_HOST = "host"
NO_SEED = (-1,)
"""The seeds of the bare host, which has none."""
SIDES = ("all", "flipped", "kept")
"""Families of a flip, by whether their convention changes."""
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
        """The share that is right in every cell, ``(cells, seeds)``."""
        names = np.array(self.cells)
        return np.array(
            [self.values[:, names == cell].mean(axis=1) for cell in dict.fromkeys(self.cells)]
        )

    def by_seed(self) -> list[float]:
        """Mean over cells of the share that is right, for each seed."""
        return [float(value) for value in np.mean(self.by_cell(), axis=0)]

    def covered(self) -> list[float]:
        """How many cells have at least half of their answers right, for each seed."""
        return [float(count) for count in (self.by_cell() >= 0.5).sum(axis=0)]

    def minus(self, other: Verdicts) -> Verdicts:
        """The differences on the same questions and the seeds that both have; the host's stand for
        all. Without a seed in common they are those of the means over seeds.

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
        """The questions that a mask chooses."""
        indices = np.flatnonzero(chosen)
        return Verdicts(
            self.values[:, indices], tuple(self.cells[index] for index in indices), self.seeds
        )


@dataclass(frozen=True, eq=False)
class Results:
    """All results of a suite.

    ``answers`` has a row per answer: ``arm`` (whose run it is), ``routing``, ``seed``, ``budget``,
    ``phase`` (``run``, or that of a flip), ``extra`` (units of FLOPs after the change),
    ``train_flops`` (spent on training until then), ``shift``, ``cell``, ``is_flipped`` (whether the
    cell's family changes), ``item`` (index of the question in its cell), ``right`` (0 or 1) and
    ``flops``. Outcomes keep the useful FLOPs of a shift in sum: here they are shared out in whole
    FLOPs, so they add up exactly. Legs of a flip have 0.
    """

    protocol: Protocol
    outcomes: Sequence[ReportedOutcome]

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The tidy table."""
        return answers_of(self.outcomes)

    @property
    def largest(self) -> float:
        """The largest budget, in units."""
        return self.protocol.budgets[-1]

    @cached_property
    def host(self) -> HostOutcome:
        """What the bare host answered.

        Raises:
            DataError: it was not asked.
        """
        for outcome in self.outcomes:
            if isinstance(outcome, HostOutcome):
                return outcome
        raise DataError("the outcomes hold no answers of the bare host: run the suite to its end")

    def runs(self, arm: str, budget: float) -> list[RunOutcome]:
        """The reported runs that an arm answers with at a budget, by seed."""
        key = (self.protocol.runs_of(arm), budget)
        return [
            outcome
            for outcome in self.outcomes
            if isinstance(outcome, RunOutcome) and (outcome.arm, outcome.budget) == key
        ]

    @cached_property
    def known(self) -> np.ndarray:
        """Which questions of the shift ``retention`` the bare host answers, ``(questions,)``."""
        verdicts = self.verdicts(BARE_HOST, 0, "retention")
        return np.zeros(0, dtype=bool) if verdicts is None else verdicts.values[0] > 0

    @cached_property
    def _places(self) -> dict[tuple[object, ...], np.ndarray]:
        """Rows of the table, by what was asked of whom."""
        keys = ["arm", "budget", "phase", "shift", "routing"]
        return dict(self.answers.groupby(keys, observed=True, sort=False).indices)

    @cached_property
    def _judged(self) -> pd.DataFrame:
        return self.answers[["seed", "cell", "right", "flops"]]

    def asked(
        self, arm: str, budget: float, shift: str, routing: str | None = None
    ) -> pd.DataFrame:
        """The answers that an arm is judged by; the host's whatever the budget."""
        if arm == BARE_HOST:
            runs, budget, routing = arm, self.host.budget, arm
        else:
            runs = self.protocol.runs_of(arm)
            routing = routing or self.protocol.arms[arm].routing
        return self._judged.iloc[self._places.get((runs, budget, "run", shift, routing), [])]

    def verdicts(
        self, arm: str, budget: float, shift: str, routing: str | None = None
    ) -> Verdicts | None:
        """An arm's verdicts; None where it was not asked. The host is one seed, whatever the
        budget.

        Raises:
            DataError: its runs answered different questions.
        """
        answers = self.asked(arm, budget, shift, routing)
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
        return Verdicts(
            values, names, NO_SEED if arm == BARE_HOST else tuple(seeds[starts].tolist())
        )

    def flops_per_right(self, arm: str, budget: float, shift: str) -> list[float]:
        """Useful FLOPs of answering for every right answer, by seed."""
        seeds = self.asked(arm, budget, shift).groupby("seed", observed=True, sort=False)
        return list(seeds.flops.sum() / seeds.right.sum().clip(lower=1))

    @cached_property
    def cells(self) -> dict[str, list[str]]:
        """In-distribution cells of each kind: ``elicitation`` (the host can, when told) and
        ``capability``.

        None where nothing can be told: tasks from a data file have no convention.
        """
        ceiling = self.verdicts(BARE_HOST, 0, "ceiling")
        shares = (
            {}
            if ceiling is None
            else dict(zip(dict.fromkeys(ceiling.cells), ceiling.by_cell()[:, 0], strict=True))
        )
        high = [cell for cell, share in shares.items() if share >= self.protocol.elicitation]
        return {"elicitation": high, "capability": [cell for cell in shares if cell not in high]}

    @cached_property
    def legs(self) -> pd.DataFrame:
        """The share that is right at every leg of a flip: columns ``LEG`` and ``SIDES``."""
        rows = self.answers[self.answers.phase != "run"]
        right, is_flipped = rows.right, rows.is_flipped
        sides = (right, right.where(is_flipped), right.where(~is_flipped))
        rows = rows.assign(**dict(zip(SIDES, sides, strict=True)))
        legs = rows.groupby(LEG, observed=True, sort=False)[list(SIDES)].mean().reset_index()
        return legs.astype({key: legs[key].cat.categories.dtype for key in LEG})

    def legs_of(self, arm: str) -> pd.DataFrame:
        """The legs of the runs that an arm answers with, by its routing."""
        runs, routing = self.protocol.runs_of(arm), self.protocol.arms[arm].routing
        return self.legs[(self.legs.arm == runs) & (self.legs.routing == routing)]


def answers_of(outcomes: Iterable[ReportedOutcome]) -> pd.DataFrame:
    """The tidy table; cells are in the order of their names, whoever wrote the outcomes."""
    heads = pd.DataFrame(
        [head for outcome in outcomes for head in _heads(outcome)],
        columns=[*ASKED, "is_flipped", "bits", "total"],
    )
    bits, sizes = heads.bits.str.cat(), heads.bits.str.len().to_numpy(int)
    rows = np.repeat(np.arange(len(heads)), sizes)
    item = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
    shifts = heads.assign(size=sizes).groupby(ASKED[:-1], sort=False)["size"]
    count, before = shifts.transform("sum").to_numpy(), shifts.cumsum().to_numpy() - sizes
    total, place = heads.total.to_numpy()[rows], item + before[rows]
    table = heads[[*ASKED, "is_flipped"]].astype(dict.fromkeys(ASKED, "category")).iloc[rows]
    return table.reset_index(drop=True).assign(
        item=item.astype(np.int32),
        right=(np.frombuffer(bits.encode(), np.uint8) - ord("0")).astype(np.int8),
        flops=total // count[rows] + (place < total % count[rows]),
    )


def _heads(outcome: ReportedOutcome) -> Iterator[tuple[object, ...]]:
    """A row per cell that was asked, with all verdicts of it."""
    for leg in outcome.legs:
        moment = (outcome.seed, outcome.budget, leg.phase, leg.extra, leg.train_flops)
        for routing, system in sorted(leg.systems.items()):
            for shift, cells in sorted(system.bits.items()):
                total = system.flops.get(shift, 0.0)
                for cell, bits in sorted(cells.items()):
                    is_flipped = cell_family(cell) in outcome.families
                    yield (outcome.arm, routing, *moment, shift, cell, is_flipped, bits, total)

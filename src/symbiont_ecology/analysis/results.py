"""The results of a suite: one tidy table of answers, and a record of what every run did.

``Results.answers`` has a row per question that an arm's run was asked. Every number of a comparison
is made of it and of the records (``analysis.records``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from symbiont_ecology.analysis.records import (
    AnyOutcome,
    FlipOutcome,
    HostOutcome,
    ProtocolRecord,
    RunOutcome,
    read_outcomes,
)
from symbiont_ecology.errors import DataError

BARE_HOST = "host"
NO_SEED = (-1,)
"""The seeds of the bare host, which has none."""
SIDES = ("all", "flipped", "kept")
"""Families of a flip, by whether their convention changes."""
ASKED = ["phase", "arm", "budget", "routing", "shift"]
LEG = ["arm", "routing", "seed", "phase", "extra", "train_flops"]


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
        return [cell.rpartition("/")[0] for cell in self.cells]

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
        all.

        Raises:
            DataError: they did not answer the same questions, or have no seed in common.
        """
        if self.cells != other.cells:
            raise DataError(
                "expected two arms that answered the same questions: make the suite anew"
            )
        if other.seeds == NO_SEED:
            return Verdicts(self.values - other.values, self.cells, self.seeds)
        shared = tuple(seed for seed in self.seeds if seed in other.seeds)
        if not shared:
            raise DataError(
                "expected arms with seeds in common, got none: their runs cannot be paired"
            )
        mine, theirs = (
            side.values[[side.seeds.index(seed) for seed in shared]] for side in (self, other)
        )
        return Verdicts(mine - theirs, self.cells, shared)

    def where(self, chosen: np.ndarray) -> Verdicts:
        """The questions that a mask chooses."""
        kept = np.flatnonzero(chosen)
        return Verdicts(
            self.values[:, kept], tuple(self.cells[index] for index in kept), self.seeds
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

    protocol: ProtocolRecord
    outcomes: Sequence[AnyOutcome]
    answers: pd.DataFrame

    @classmethod
    def of(cls, protocol: Mapping[str, object], rows: Iterable[Mapping[str, object]]) -> Results:
        """Results from plain values, as a pack or a suite keeps them.

        Raises:
            DataError: an outcome is damaged.
            ValueError: the protocol is.
        """
        outcomes = read_outcomes(rows)
        return cls(ProtocolRecord.model_validate(protocol), outcomes, answers_of(outcomes))

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
        return dict(self.answers.groupby(ASKED, observed=True, sort=False).indices)

    def _asked(
        self, arm: str, budget: float, shift: str, routing: str | None
    ) -> pd.DataFrame | None:
        if arm == BARE_HOST:
            key: tuple[object, ...] = ("run", BARE_HOST, self.host.budget, BARE_HOST, shift)
        else:
            routing = routing or self.protocol.arms[arm].routing
            key = ("run", self.protocol.runs_of(arm), budget, routing, shift)
        places = self._places.get(key)
        return None if places is None else self.answers.iloc[places]

    def verdicts(
        self, arm: str, budget: float, shift: str, routing: str | None = None
    ) -> Verdicts | None:
        """An arm's verdicts; None where it was not asked. The host is one seed, whatever the
        budget.

        Raises:
            DataError: its runs answered different questions.
        """
        rows = self._asked(arm, budget, shift, routing)
        if rows is None:
            return None
        right, cells = rows.right.to_numpy(float), rows.cell.to_numpy()
        seeds = [int(seed) for seed in rows.seed.unique()]
        ends = [*(np.flatnonzero(np.diff(rows.seed.to_numpy())) + 1), len(rows)]
        for seed, start, end in zip(seeds, [0, *ends], ends, strict=False):
            if end - start != ends[0] or (cells[start:end] != cells[: ends[0]]).any():
                raise DataError(
                    f"arm {arm!r}, seed {seed}: answered other questions than its sisters"
                )
        values = right.reshape(len(seeds), -1)
        return Verdicts(
            values, tuple(cells[: ends[0]]), NO_SEED if arm == BARE_HOST else tuple(seeds)
        )

    def flops_per_right(self, arm: str, budget: float, shift: str) -> list[float]:
        """Useful FLOPs of answering for every right answer, by seed."""
        rows = self._asked(arm, budget, shift, None)
        if rows is None:
            return []
        sums = rows.groupby("seed", observed=True, sort=False)[["flops", "right"]].sum()
        return [float(flops / max(right, 1)) for flops, right in sums.itertuples(index=False)]

    @cached_property
    def cells(self) -> dict[str, list[str]]:
        """In-distribution cells of each kind: ``elicitation`` (the host can, when told) and
        ``capability``.

        None where nothing can be told: tasks from a data file have no convention.
        """
        told, kinds = self.verdicts(BARE_HOST, 0, "ceiling"), ("elicitation", "capability")
        if told is None:
            return {kind: [] for kind in kinds}
        is_high = told.by_cell()[:, 0] >= self.protocol.elicitation
        shares = list(zip(dict.fromkeys(told.cells), is_high, strict=True))
        return {
            kind: [cell for cell, high in shares if high == (kind == kinds[0])] for kind in kinds
        }

    @cached_property
    def legs(self) -> pd.DataFrame:
        """The share that is right at every leg of a flip: columns ``LEG`` and ``SIDES``."""
        rows = self.answers[self.answers.phase != "run"]
        kept = rows.right.where(~rows.is_flipped)
        rows = rows.assign(all=rows.right, flipped=rows.right.where(rows.is_flipped), kept=kept)
        shares = rows.groupby(LEG, observed=True, sort=False)[list(SIDES)].mean().reset_index()
        return shares.astype(
            dict.fromkeys(("arm", "routing", "phase"), object)
            | {"seed": int, "extra": float, "train_flops": float}
        )

    def legs_of(self, arm: str) -> pd.DataFrame:
        """The legs of the runs that an arm answers with, by its routing."""
        runs, routing = self.protocol.runs_of(arm), self.protocol.arms[arm].routing
        return self.legs[(self.legs.arm == runs) & (self.legs.routing == routing)]


def answers_of(outcomes: Iterable[AnyOutcome]) -> pd.DataFrame:
    """The tidy table; cells are in the order of their names, whoever wrote the outcomes."""
    blocks = [block for outcome in outcomes for block in _blocks(outcome)]
    heads = pd.DataFrame(
        blocks, columns=[*LEG, "budget", "shift", "cell", "is_flipped", "bits", "total"]
    )
    bits, sizes = heads.bits.str.cat(), heads.bits.str.len().to_numpy(int)
    rows = np.repeat(np.arange(len(heads)), sizes)
    coded = [*LEG, "budget", "shift", "cell"]
    table = heads[[*coded, "is_flipped"]].astype(dict.fromkeys(coded, "category")).iloc[rows]
    table = table.reset_index(drop=True)
    item = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
    table["item"] = item.astype(np.int32)
    table["right"] = (np.frombuffer(bits.encode(), np.uint8) - ord("0")).astype(np.int8)
    together = heads.assign(size=sizes).groupby([*LEG, "budget", "shift"], sort=False)
    count, before = (together["size"].transform(way).to_numpy() for way in ("sum", "cumsum"))
    place, total = item + (before - sizes)[rows], heads.total.to_numpy()[rows]
    table["flops"] = total // count[rows] + (place < total % count[rows])
    return table


def _blocks(outcome: AnyOutcome) -> Iterator[tuple[object, ...]]:
    """A row per cell that was asked, with all verdicts of it."""
    if not isinstance(outcome, FlipOutcome):
        spent = outcome.train.flops if isinstance(outcome, RunOutcome) else 0.0
        parts = [("run", 0.0, spent, outcome.systems)]
        changed: set[str] = set()
    else:
        parts = [(leg.phase, leg.extra, leg.train_flops, leg.systems) for leg in outcome.legs]
        changed = set(outcome.families)
    for phase, extra, spent, systems in parts:
        for routing, system in systems.items():
            leg = (outcome.arm, routing, outcome.seed, phase, extra, spent)
            for shift, cells in system.bits.items():
                total = system.flops.get(shift, 0.0)
                for cell, bits in sorted(cells.items()):
                    is_flipped = cell.rpartition("/")[0] in changed
                    yield (*leg, outcome.budget, shift, cell, is_flipped, bits, total)

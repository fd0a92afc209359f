"""The outcomes of a suite as arrays: who was right, by arm, budget, shift, seed and question.

An outcome is what one run left (``experiments.jobs``). Verdicts are texts of 0 and 1 by shift and
cell, in the same order of questions for every arm and seed, so that arms are compared question by
question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symbiont_ecology.errors import DataError

BARE_HOST = "host"
NO_SEED = (-1,)
"""The seeds of the bare host, which has none."""


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
            one.values[[one.seeds.index(seed) for seed in shared]] for one in (self, other)
        )
        return Verdicts(mine - theirs, self.cells, shared)

    def only(self, cells: Iterable[str]) -> Verdicts:
        """The questions of some cells."""
        return self.where(np.isin(self.cells, list(cells)))

    def where(self, chosen: np.ndarray) -> Verdicts:
        """The questions that a mask chooses."""
        kept = np.flatnonzero(chosen)
        return Verdicts(
            self.values[:, kept], tuple(self.cells[index] for index in kept), self.seeds
        )


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of a suite, with the protocol as plain values."""

    protocol: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @property
    def arms(self) -> list[str]:
        """The protocol's arms, in its order."""
        return list(self.protocol["arms"])

    @property
    def budgets(self) -> list[float]:
        """The protocol's budgets, in units."""
        return list(self.protocol["budgets"])

    @property
    def shifts(self) -> list[str]:
        """The protocol's shifts, in its order."""
        return list(self.protocol["shifts"])

    def main(self, arm: str, budget: float) -> list[Mapping[str, Any]]:
        """The reported runs of an arm at a budget, by seed."""
        runs = self.runs_of(arm)
        return [
            row
            for row in self.rows
            if row["kind"] == "main" and (row["arm"], row["budget"]) == (runs, budget)
        ]

    def runs_of(self, arm: str) -> str:
        """The arm whose runs an arm answers with: itself, unless only its routing is another."""
        return str(self.protocol["arms"][arm]["of"] or arm)

    def routing(self, arm: str) -> str:
        """How an arm answers."""
        return str(self.protocol["arms"][arm]["routing"])

    def flips(self, arm: str) -> list[Mapping[str, Any]]:
        """The runs of an arm through the flip, by seed."""
        return [
            row for row in self.rows if row["kind"] == "flip" and row["arm"] == self.runs_of(arm)
        ]

    @cached_property
    def host(self) -> Mapping[str, Any]:
        """What the bare host answered.

        Raises:
            DataError: it was not asked.
        """
        for row in self.rows:
            if row["kind"] == BARE_HOST:
                return row
        raise DataError("the outcomes hold no answers of the bare host: run the suite to its end")

    @cached_property
    def could(self) -> np.ndarray:
        """Which questions of the shift ``retention`` the bare host answers, ``(questions,)``."""
        found = self.verdicts(BARE_HOST, 0, "retention")
        return np.zeros(0, dtype=bool) if found is None else found.values[0] > 0

    def verdicts(
        self, arm: str, budget: float, shift: str, routing: str | None = None
    ) -> Verdicts | None:
        """An arm's verdicts; None where it was not asked. The host is one seed, whatever the
        budget."""
        if arm == BARE_HOST:
            found = _verdicts([self.host], shift, BARE_HOST)
            return None if found is None else Verdicts(found.values, found.cells, NO_SEED)
        return _verdicts(self.main(arm, budget), shift, routing or self.routing(arm))

    def cells(self, kind: str) -> list[str]:
        """In-distribution cells of a kind: ``elicitation`` (the host can, when told) or
        ``capability``.

        None where nothing can be told: tasks from a data file have no convention.
        """
        ceiling = self.host["systems"][BARE_HOST]["bits"].get("ceiling", {})
        share = {cell: bits.count("1") / len(bits) for cell, bits in ceiling.items()}
        is_high = {cell: value >= self.protocol["elicitation"] for cell, value in share.items()}
        return [cell for cell, high in is_high.items() if high == (kind == "elicitation")]


def array_of(bits: Mapping[str, str]) -> np.ndarray:
    """The verdicts of all cells in a row, ``(questions,)``."""
    return np.array([float(bit) for text in bits.values() for bit in text])


def _verdicts(rows: Sequence[Mapping[str, Any]], shift: str, routing: str) -> Verdicts | None:
    found = [row for row in rows if shift in row["systems"].get(routing, {"bits": {}})["bits"]]
    if not found:
        return None
    all_bits = [row["systems"][routing]["bits"][shift] for row in found]
    cells = tuple(cell for cell, text in all_bits[0].items() for _ in text)
    for row, bits in zip(found, all_bits, strict=True):
        if tuple(cell for cell, text in bits.items() for _ in text) != cells:
            raise DataError(
                f"arm {row['arm']!r}, seed {row['seed']}: answered other questions than its sisters"
            )
    return Verdicts(
        np.stack([array_of(bits) for bits in all_bits]), cells, tuple(row["seed"] for row in found)
    )

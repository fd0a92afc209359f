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

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.study.measures import SIDES, Questions, Stream
from symbiont_ecology.extensions.study.outcomes import Outcome
from symbiont_ecology.extensions.study.protocol import Protocol

NO_SEED = -1
"""The seed of the bare host, which has none."""
FLIP_PHASES = ("before", "flipped", "back")
LEG = ["arm", "routing", "seed", "budget", "phase", "extra", "train_flops"]
ASKED = [*LEG, "shift", "cell"]
"""Columns of the answers that say who was asked what."""


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
    def sources(self) -> list[str]:
        """Digests of the code that ran."""
        return sorted({outcome.source for outcome in self.outcomes})

    @property
    def missing(self) -> int:
        """Number of reported runs that are not done."""
        done = sum(outcome.kind != "host" for outcome in self.outcomes)
        return self.protocol.planned_runs - done

    @cached_property
    def host(self) -> Outcome:
        """Answers of the bare host.

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
    def _places(self) -> dict[tuple[object, ...], np.ndarray]:
        """Rows of the table, by what was asked of whom."""
        keys = ["arm", "budget", "phase", "shift", "routing"]
        return dict(self.answers.groupby(keys, observed=True, sort=False).indices)

    def verdicts(self, arm: str, budget: float, shift: str) -> pd.DataFrame | None:
        """Return 1.0 for right and 0.0 for wrong, a row per question (cell, item) and a column per
        seed; None where an arm was not asked. The host is one seed, whatever the budget.

        Raises:
            DataError: its runs answered different questions.
        """
        key: tuple[object, ...] = (HOST, self.host.budget, "run", shift, HOST)
        if arm != HOST:
            routing = self.protocol.arms[arm].routing
            key = (self.protocol.runs_of(arm), budget, "run", shift, routing)
        if (places := self._places.get(key)) is None:
            return None
        answers = self.answers.iloc[places].astype({"cell": str, "seed": int})
        verdicts = answers.pivot(index=["cell", "item"], columns="seed", values="right")
        if verdicts.isna().any(axis=None):
            raise DataError(f"arm {arm!r}: expected runs that answered the same questions")
        return verdicts.astype(float).set_axis(
            [NO_SEED] if arm == HOST else verdicts.columns, axis=1
        )

    @cached_property
    def known(self) -> np.ndarray:
        """Mask of the questions of ``retention`` that the bare host answers, ``(questions,)``."""
        verdicts = self.verdicts(HOST, 0, "retention")
        return np.zeros(0, dtype=bool) if verdicts is None else verdicts[NO_SEED].to_numpy() > 0

    def flops_per_right(self, arm: str, budget: float, shift: str) -> list[float]:
        """Return the useful FLOPs of answering for every right answer, by seed."""
        runs = [self.host] if arm == HOST else self.runs(arm, budget)
        routing = HOST if arm == HOST else self.protocol.arms[arm].routing
        answers = [run.systems[routing] for run in runs]
        return [own.flops.get(shift, 0) / max(own.right(shift), 1) for own in answers]

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
            streams[world, outcome.arm][seed] = Stream(record, outcome.train, asked[key])
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


def by_cell(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return the share that is right in every cell, a column per seed."""
    cells, values = verdicts.index.get_level_values("cell"), verdicts.to_numpy().T.copy()
    means = {cell: values[:, cells == cell].mean(axis=1) for cell in cells.unique()}
    # Summed as in the packs that are kept, to the last bit.
    return pd.DataFrame(means, index=verdicts.columns).T.rename_axis("cell")


def by_seed(verdicts: pd.DataFrame) -> list[float]:
    """Return the mean over cells of the share that is right, for each seed."""
    return [float(share) for share in np.mean(np.ascontiguousarray(by_cell(verdicts)), axis=0)]


def minus(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the differences on the same questions and the seeds that both have; the host's stand
    for all. Without a seed in common they are those of the means over seeds.

    Raises:
        DataError: they did not answer the same questions.
    """
    if not first.index.equals(second.index):
        raise DataError("expected two arms that answered the same questions: make the suite anew")
    if list(second.columns) == [NO_SEED]:
        return first.sub(second[NO_SEED], axis=0)
    shared = [seed for seed in first.columns if seed in second.columns]
    if shared:
        return first[shared] - second[shared]
    return (first.mean(axis=1) - second.mean(axis=1)).to_frame(NO_SEED)

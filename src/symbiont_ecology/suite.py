"""Suites and comparisons as objects: run them, read the table of answers, keep a pack.

    suite = Suite.start("ci").finish()
    print(suite.comparison)  # accuracies of the arms, with intervals
    suite.comparison.answers  # a pandas table: a row per answer
    Comparison.of_runs("artifacts/demo-1", "artifacts/demo-2").save_pack("artifacts/pack")

A suite is a folder, as a run is. ``Suite.open`` comes back to it, and ``finish`` does what is left.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.experiments import adhoc_comparison as adhoc
from symbiont_ecology.experiments import suite as experiments
from symbiont_ecology.experiments.job_pool import Workers
from symbiont_ecology.experiments.outcomes import HostOutcome, ReportedOutcome, Tuning
from symbiont_ecology.experiments.protocol import Protocol, load_protocol

if TYPE_CHECKING:
    import pandas as pd

    from symbiont_ecology.analysis.results import Results
    from symbiont_ecology.analysis.summary import Summary


@dataclass(frozen=True, repr=False)
class Comparison:
    """What the runs of several arms answered to the same questions."""

    protocol: Protocol
    outcomes: Sequence[ReportedOutcome]
    tuning: Tuning

    @classmethod
    def of_runs(
        cls,
        *folders: str | Path,
        shifts: Sequence[str] = ("in-distribution",),
        per_cell: int = 40,
        name: str = "comparison",
        progress: Progress = no_progress,
    ) -> Comparison:
        """Asks runs of one task mix the same holdout questions.

        Runs whose configs differ in the seed, and in what is no part of a life, are one arm.

        Raises:
            ConfigError: the runs cannot be asked the same questions, or there is no such shift.
            RunError: a folder holds no run.
        """
        plan = adhoc.adhoc_comparison([Path(folder) for folder in folders], shifts, per_cell, name)
        return cls.of(plan, progress)

    @classmethod
    def of(cls, plan: adhoc.AdhocComparison, progress: Progress = no_progress) -> Comparison:
        """Asks runs that were found to be comparable."""
        return cls(
            plan.protocol, adhoc.ask_runs(plan, progress), Tuning.untuned(plan.protocol.arms)
        )

    @cached_property
    def results(self) -> Results:
        """The table of answers with a record of every run. All numbers are made of it."""
        from symbiont_ecology.analysis.results import Results

        return Results(self.protocol, self.outcomes)

    @property
    def answers(self) -> pd.DataFrame:
        """A row per answer: arm, routing, seed, budget, shift, cell, item, right, flops, …"""
        return self.results.answers

    @cached_property
    def summary(self) -> Summary:
        """Accuracies and paired differences with intervals, as in ``summary.json`` of a pack."""
        from symbiont_ecology.analysis.comparison import summarise

        return summarise(self.results)

    def save_pack(self, folder: str | Path) -> Path:
        """Writes a paper pack (tables, figures, outcomes), and an index beside it.

        Raises:
            DataError: the outcomes are larger than a repository should hold.
        """
        from symbiont_ecology.analysis.pack import write_index, write_pack

        target = Path(folder)
        write_pack(target, self.results, self.tuning)
        write_index(target.parent)
        return target

    def __repr__(self) -> str:
        view, budget = self.protocol.shifts[0], self.summary.largest
        shares = ", ".join(
            f"{arm} {share.estimate:.0%} [{share.low:.0%}, {share.high:.0%}]"
            for arm, share in self.summary.accuracy[budget][view].items()
        )
        return f"<Comparison {self.protocol.name}, {view}: {shares}>"


class Suite:
    """All runs of a protocol, in a folder. Make one with ``start`` or ``open``."""

    def __init__(self, protocol: Protocol, folder: Path) -> None:
        self.protocol, self.folder = protocol, folder

    @classmethod
    def start(
        cls, protocol: str | Path | Protocol, *overrides: str, folder: str | Path | None = None
    ) -> Suite:
        """A suite of a protocol; nothing is run yet. In the folder of that suite it goes on.

        Args:
            protocol: ``"ci"``, ``"mine.yaml"`` or a ``Protocol``.
            overrides: changes of the protocol, such as ``"seeds=[0]"``.
            folder: where the suite lives; ``artifacts/<name>`` if it is left out.

        Raises:
            ConfigError: the protocol does not fit together.
            RunError: the folder holds the suite of another protocol.
        """
        plan = protocol if isinstance(protocol, Protocol) else load_protocol(protocol, overrides)
        experiments.check_protocol(plan)
        place = Path("artifacts") / plan.name if folder is None else Path(folder)
        experiments.claim_folder(plan, place)
        return cls(plan, place)

    @classmethod
    def open(cls, folder: str | Path) -> Suite:
        """A suite that exists.

        Raises:
            RunError: there is none in the folder.
        """
        return cls(experiments.read_protocol(Path(folder)), Path(folder))

    def finish(self, workers: int | None = None) -> Suite:
        """Does what is left, so many runs at a time; one per core, or per GPU, if left out.

        Raises:
            RunError: a run failed.
        """
        stop = multiprocessing.get_context("spawn").Event()
        count = workers or experiments.usual_workers(self.protocol)
        quiet = Workers(count, lambda stage, jobs: lambda job, seconds: None, stop)
        experiments.run_suite(self.protocol, self.folder, quiet)
        return self

    @property
    def comparison(self) -> Comparison:
        """What the runs that are done answered.

        Raises:
            RunError: none is done, or the bare host, with which all are compared, has not answered.
        """
        tuning = experiments.read_tuning(self.folder)
        outcomes = tuple(experiments.outcomes(self.protocol, self.folder))
        if not any(isinstance(outcome, HostOutcome) for outcome in outcomes):
            raise RunError(
                f"the bare host has not answered in {self.folder} yet: finish() goes on with it, "
                "and so does symbiont suite"
            )
        return Comparison(self.protocol, outcomes, tuning)

    @property
    def is_complete(self) -> bool:
        """Whether all runs that are reported are done."""
        return experiments.all_done(self.protocol, self.folder)

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else "not complete"
        return f"<Suite {self.folder}: {self.protocol.name} ({self.protocol.digest}), {state}>"

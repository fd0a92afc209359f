"""A world in which families come one after another: what was learned of each, and what is left of
it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from symbiont_ecology.analysis.comparison import adjusted, mean, paired
from symbiont_ecology.analysis.figures import save
from symbiont_ecology.analysis.results import Results
from symbiont_ecology.analysis.summary import AdjustedDifference, Difference
from symbiont_ecology.experiments.outcomes import RunOutcome
from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.palette import VIEW_COLOURS
from symbiont_ecology.statistics import Interval, paired_interval
from symbiont_ecology.types import cell_family


@dataclass(frozen=True)
class StageMeasures:
    """An arm in a world of arrivals, by seed: means over families, the worst family, and plain
    English.

    ``at_once`` is what is right in a family when its time is over, ``at_last`` what is right in all
    families at the very end. ``lost`` is what became of the first by then, over all families but
    the last one; ``worst`` is the family that lost most. ``english`` is the change of a token of
    plain English in nats, empty where nobody looked.
    """

    at_once: list[float]
    at_last: list[float]
    lost: list[float]
    worst: list[float]
    english: list[float]

    def intervals(self) -> dict[str, Interval | None]:
        """The mean of each measure over seeds with Student's interval; None where nobody looked."""
        return {name: _interval(values) for name, values in vars(self).items()}


STAGES_FIGURE = "stages.png"
COMPARED_MEASURES = ("at_last", "lost")
"""What the main arm is compared by."""


@dataclass(frozen=True)
class StageSummary:
    """All arms by seed and their means, the main arm minus the others by measure, and by arm the
    mean course of every family: what is right at the end of each stage."""

    arms: dict[str, StageMeasures]
    intervals: dict[str, dict[str, Interval | None]]
    differences: dict[str, dict[str, AdjustedDifference]]
    courses: dict[str, dict[str, list[float]]]


def stages_of(results: Results) -> StageSummary | None:
    """What became of the families; None where the protocol has no arrivals."""
    measures: dict[str, StageMeasures] = {}
    courses: dict[str, dict[str, list[float]]] = {}
    seeds: dict[str, list[int]] = {}
    for arm in results.protocol.arms:
        runs = [run for run in results.runs(arm, max(results.protocol.budgets)) if run.stages]
        if not runs:
            continue
        routing = results.protocol.arms[arm].routing
        run_courses = [_course(run, routing) for run in runs]
        families = list(run_courses[0])
        seeds[arm] = [run.seed for run in runs]
        measures[arm] = StageMeasures(
            at_once=[mean(_at_once(course)) for course in run_courses],
            at_last=[mean([shares[-1] for shares in course.values()]) for course in run_courses],
            lost=[mean(_lost(course)) for course in run_courses],
            worst=[max(_lost(course)) for course in run_courses],
            english=[
                run.general[routing].english.change.estimate
                for run in runs
                if routing in run.general
            ],
        )
        courses[arm] = {
            family: [
                mean(shares)
                for shares in zip(*(course[family] for course in run_courses), strict=True)
            ]
            for family in families
        }
    if not measures:
        return None
    main, level, differences = results.protocol.main, results.protocol.level, {}
    for name in COMPARED_MEASURES:
        by_seed = {
            arm: dict(zip(seeds[arm], getattr(values, name), strict=True))
            for arm, values in measures.items()
        }
        differences[name] = adjusted(dict(_against_main(by_seed, main)), level)
    intervals = {arm: values.intervals() for arm, values in measures.items()}
    return StageSummary(measures, intervals, differences, courses)


def draw_stages(stages: StageSummary, protocol: Protocol, folder: Path) -> str:
    """A panel per arm: what is right of each family, from the end of its own stage on; returns the
    name of the file."""
    columns = min(len(stages.courses), 4)
    rows = -(-len(stages.courses) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axis in enumerate(axes.flat):
        axis.set_visible(place < len(stages.courses))
    for axis, (arm, course) in zip(axes.flat, stages.courses.items(), strict=False):
        for number, (family, shares) in enumerate(course.items()):
            colour = VIEW_COLOURS[number % len(VIEW_COLOURS)]
            xs, heights = np.arange(1, len(shares) + 1), 100 * np.array(shares)
            axis.plot(xs[: number + 1], heights[: number + 1], ":", color=colour, lw=1)
            axis.plot(xs[number:], heights[number:], "o-", color=colour, ms=3, label=family)
        axis.set_title(arm, fontsize=9, fontweight="bold" if arm == protocol.main else None)
        axis.set(ylim=(-3, 103), xticks=np.arange(1, len(course) + 1))
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("right, %")
    for axis in axes[-1]:
        axis.set_xlabel("families that came")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=6)
    save(figure, folder / STAGES_FIGURE)
    return STAGES_FIGURE


def _interval(values: Sequence[float]) -> Interval | None:
    if len(values) < 2:
        return Interval(values[0], values[0], values[0]) if values else None
    return paired_interval(values, [0.0] * len(values))


def _course(run: RunOutcome, routing: str) -> dict[str, list[float]]:
    """What is right of each family at the end of every stage, families in the order of their
    coming."""
    course: dict[str, list[float]] = {family: [] for family in run.arrived}
    for leg in run.stages:
        (cells,) = leg.systems[routing].bits.values()
        by_family: dict[str, list[float]] = {}
        for cell, bits in cells.items():
            by_family.setdefault(cell_family(cell), []).append(bits.count("1") / len(bits))
        for family, shares in by_family.items():
            course[family].append(mean(shares))
    return course


def _at_once(course: Mapping[str, Sequence[float]]) -> list[float]:
    """What is right of each family at the end of its own stage."""
    return [shares[stage] for stage, shares in enumerate(course.values())]


def _lost(course: Mapping[str, Sequence[float]]) -> list[float]:
    """What each family but the last lost since the end of its own stage."""
    ends = [(shares[stage], shares[-1]) for stage, shares in enumerate(course.values())]
    return [before - after for before, after in ends[:-1]]


def _against_main(
    measures: Mapping[str, Mapping[int, float]], main: str
) -> Iterator[tuple[str, Difference]]:
    """The main arm minus every other, on the seeds that both have."""
    for arm, by_seed in measures.items():
        shared = sorted(set(by_seed) & set(measures.get(main, {})))
        if arm != main and len(shared) > 1:
            main_values = [measures[main][seed] for seed in shared]
            yield arm, paired(main_values, [by_seed[seed] for seed in shared])

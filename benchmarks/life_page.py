"""Makes the figures and the tables of docs/life.md from docs/results/life.json.

python benchmarks/life_page.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from life_history import longest
from symbiont_ecology.statistics import paired_interval

ROOT = Path(__file__).parents[1]
PAGE, RESULT, FIGURES = (
    ROOT / "docs/life.md",
    ROOT / "docs/results/life.json",
    ROOT / "docs/figures",
)
SHARE = 0.75
"""Part of the groups that count as a community of specialists."""
EARLY = 15
"""Generations after which newcomers are hardly rare any more, where they spread."""
BLUE, GREEN, ORANGE, GREY = "#1b6ca8", "#17805c", "#b5502b", "#8c8c8c"
ARMS = {"ecology": GREEN, "independent": ORANGE, "single": BLUE}
PRICES = {"scarcity": (GREEN, "prices by scarcity"), "flat": (GREY, "one price")}
INVASIONS = {
    "scarcity": "prices by scarcity",
    "flat": "one price",
    "suited": "one price, questions to whom they suit",
}
Record = dict[str, Any]


def main() -> None:
    """Draws and fills."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURE.items():
        draw(result).savefig(FIGURES / f"{name}.png", dpi=110, metadata={"Software": None})
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")


def filled(text: str, result: Record) -> str:
    """The page with every block as the results have it."""
    for mark, block in BLOCKS.items():
        start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
        before, opened, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        assert opened, f"{PAGE} has no block {mark}"
        assert closed, f"{PAGE} has a block {mark} without an end"
        text = "\n".join([before + start[:-1], *block(result), end + after])
    return text


def lives(result: Record, prices: str) -> list[Record]:
    """The long lives with one kind of prices."""
    return [life for life in result["life"] if life["prices"] == prices]


def over_seeds(values: Sequence[float], form: str = ".1f") -> str:
    """Mean with a 95 % t interval over seeds."""
    interval = paired_interval(values, [0.0] * len(values))
    return f"{interval.estimate:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def stretch(life: Record) -> int:
    """The longest time without a judgement that found too few groups held, in generations."""
    step = int(life["stops"][1] - life["stops"][0])
    return max(longest([count >= SHARE * life["groups"] for count in life["held"]]) - 1, 0) * step


def span(name: str, life: Record, start: int, stop: int) -> np.ndarray:
    """A curve of a life between two generations; judgements begin when there is a window to
    judge."""
    values, (first, second) = np.array(life[name]), life["stops"][:2]
    at = (first if name in ("held", "effective") else 0) + (second - first) * np.arange(len(values))
    part: np.ndarray = values[(start < at) & (at <= stop)]
    return part


def coexistence(result: Record) -> Iterable[str]:
    """Specialists through a long life, and at one price while that was lived."""
    scarce, flat = lives(result, "scarcity"), lives(result, "flat")
    groups, end, common = scarce[0]["groups"], scarce[0]["stops"][-1], flat[0]["stops"][-1]
    least = math.ceil(SHARE * groups)
    times = [stretch(record) for record in scarce]
    yield (
        f"In {len(scarce)} lives of {end:,} generations, specialists of {least} or more of the {groups} groups lived side "
        f"by side for **{over_seeds(times, '.0f')}** generations on end, {min(times)} in the worst seed. "
        f"At one price the longest such time in {common} generations was "
        f"{over_seeds([stretch(record) for record in flat], '.0f')}."
    )
    yield ""
    columns = ((scarce, end // 2, end), (scarce, common // 2, common), (flat, common // 2, common))
    heads = [
        f"{'one price' if life is flat else 'scarcity'}, {start} to {stop}"
        for life, start, stop in columns
    ]
    yield f"| generations | {' | '.join(heads)} |"
    yield "|---|---|---|---|"
    rows: dict[str, Callable[[Record, int, int], float]] = {
        "groups with a specialist": lambda *part: span("held", *part).mean(),
        f"time with {least} groups or more, %": lambda *part: (
            100 * (span("held", *part) >= least).mean()
        ),
        "effective specialists": lambda *part: span("effective", *part).mean(),
        "questions served rightly, %": lambda *part: 100 * span("served", *part).mean(),
        "alive": lambda *part: span("population", *part).mean(),
    }
    for label, value in rows.items():
        cells = [
            over_seeds([value(record, start, stop) for record in life])
            for life, start, stop in columns
        ]
        yield f"| {label} | {' | '.join(cells)} |"
    kin = [100 * record["inheritance"]["same"] for record in scarce]
    chance = [100 * record["inheritance"]["chance"] for record in scarce]
    by_price = sorted(flat, key=lambda record: -float(record["price"]))
    yield ""
    yield (
        f"Trades run in families: {over_seeds(kin, '.0f')} % of children earned most in the group in which their "
        f"parent did, where {over_seeds(chance, '.0f')} % would by chance. "
        f"{sum(record['deaths'] for record in scarce)} organelles died, and a verified answer paid "
        f"{over_seeds([record['price'] for record in scarce], '.0f')} mATP in the end, which is the one price: at "
        f"{listed([record['price'] for record in by_price], '.0f')} mATP it held specialists of "
        f"{listed([span('held', record, common // 2, common).mean() for record in by_price], '.1f')} groups."
    )


def listed(values: Iterable[float], form: str) -> str:
    """One after the other."""
    return ", ".join(f"{value:{form}}" for value in values)


def activities(result: Record) -> Iterable[str]:
    """Evolutionary activity beside the neutral shadow."""
    courses = [course["activity"] for course in lives(result, "scarcity")]
    ratio = [course["mean"][-1] / course["shadow"][-1] for course in courses]
    above = sum(course["mean"][-1] > course["high"][-1] for course in courses)
    half = len(courses[0]["mean"]) // 2
    slopes = [
        (course["mean"][-1] - course["mean"][half])
        / (course["shadow"][-1] - course["shadow"][half])
        for course in courses
    ]
    yield (
        f"At the end mean activity is **{over_seeds(ratio, '.2f')}** times that of the shadow, above 97.5 % of the "
        f"shadows in {above} of {len(courses)} seeds; over the second half it grew "
        f"{over_seeds(slopes, '.2f')} times as fast as the shadow's."
    )


def novelties(result: Record) -> Iterable[str]:
    """Change, novelty and diversity, a row per quarter of a life."""
    series = [record["potentials"] for record in lives(result, "scarcity")]
    yield "| generations | change, kinds per snapshot | novelty, kinds per snapshot | diversity, nats | lines that persist and earned |"
    yield "|---|---|---|---|---|"
    count = len(series[0])
    for part in range(4):
        rows = slice(part * count // 4, (part + 1) * count // 4)
        first, last = (series[0][rows][end]["generation"] for end in (0, -1))
        cells = [
            over_seeds(
                [float(np.mean([record[name] for record in life[rows]])) for life in series], ".2f"
            )
            for name in ("change", "novelty", "diversity", "lines")
        ]
        yield f"| {first} to {last} | {' | '.join(cells)} |"


def invasions(result: Record) -> Iterable[str]:
    """How many rare types spread, and how fast, by what may favour them."""
    yield (
        "| | newcomers that doubled their share, % of trials | pairs in which each did | by luck, % "
        "| their growth beyond the residents', % per generation |"
    )
    yield "|---|---|---|---|---|"
    for arm, label in INVASIONS.items():
        by_seed = [
            [trial for trial in seed["trials"] if trial["arm"] == arm]
            for seed in result["invasions"]
        ]
        doubled = sum(doubles(trial) for trials in by_seed for trial in trials)
        count, pairs = (
            sum(map(len, by_seed)),
            [pair for trials in by_seed for pair in mutual(trials)],
        )
        cells = [
            over_seeds(
                [100 * float(np.mean([value(trial) for trial in trials])) for trials in by_seed],
                form,
            )
            for value, form in (
                (doubles, ".0f"),
                (lambda trial: trial["neutral"], ".0f"),
                (growth, "+.1f"),
            )
        ]
        yield (
            f"| {label} | **{doubled} of {count}**: {cells[0]} | {sum(pairs)} of {len(pairs)} | {cells[1]} | {cells[2]} |"
        )
    yield ""
    every = {
        arm: [
            trial for seed in result["invasions"] for trial in seed["trials"] if trial["arm"] == arm
        ]
        for arm in INVASIONS
    }
    weaker = {arm: [trial for trial in trials if lead(trial) < 0] for arm, trials in every.items()}
    failed = [trial for trial in every["scarcity"] if not doubles(trial)]
    skills = [
        100 * float(np.mean([trial[name] for trial in failed]))
        for name in ("skill", "resident skill")
    ]
    yield (
        f"Of newcomers that were right less often than the residents, {sum(map(doubles, weaker['scarcity']))} of "
        f"{len(weaker['scarcity'])} doubled by scarcity and {sum(map(doubles, weaker['flat']))} of {len(weaker['flat'])} at "
        f"one price. The {len(failed)} that failed by scarcity were right in {skills[0]:.0f} % of all that they were "
        f"asked, the residents in {skills[1]:.0f} %."
    )


def doubles(trial: Record) -> bool:
    """Whether newcomers had twice their share in the end."""
    return bool(
        trial["line"][-1] * trial["population"][0] >= 2 * trial["line"][0] * trial["population"][-1]
    )


def mutual(trials: Sequence[Record]) -> list[bool]:
    """For each pair of types whether each invaded the other."""
    spread = {(trial["resident"], trial["newcomer"]): doubles(trial) for trial in trials}
    return [spread[pair] and spread[pair[::-1]] for pair in spread if pair < pair[::-1]]


def growth(trial: Record) -> float:
    """Of newcomers beyond that of residents, per generation while they are rare: the slope of their
    log odds."""
    early, late = (
        math.log((trial["line"][at] + 0.5) / (trial["population"][at] - trial["line"][at] + 0.5))
        for at in (0, EARLY)
    )
    return (late - early) / EARLY


def lead(trial: Record) -> float:
    """By how much newcomers were right more often than residents, in all that either was asked."""
    return float(trial["skill"] - trial["resident skill"])


def catastrophes(result: Record) -> Iterable[str]:
    """Drop and recovery, by arm and toll."""
    yield "| arm | killed | right before, % | drop, points | back after, generations, each life | lost, generations' worth |"
    yield "|---|---|---|---|---|---|"
    controls = {"independent": lives(result, "scarcity")[0]["groups"], "single": 1}  # how many live
    for arm, toll in strikes(result):
        hit = [
            strike
            for strike in result["catastrophe"]
            if (strike["arm"], strike["toll"]) == (arm, toll)
        ]
        back = [strike["recovery"] for strike in hit]
        times = sorted(math.inf if strike["time"] is None else strike["time"] for strike in back)
        moments = ", ".join("never" if math.isinf(time) else str(time) for time in times)
        lost = [strike["lost"] / strike["before"] for strike in back]
        killed = sorted({strike["killed"] for strike in hit})
        toll_text = f"{killed[0]} to {killed[-1]}" if len(killed) > 1 else f"{killed[0]}"
        toll_text += f" of {controls[arm]}" if arm in controls else ""
        yield (
            f"| {arm}, {100 * toll:.0f} % | {toll_text} | {over_seeds([100 * strike['before'] for strike in back])} "
            f"| {over_seeds([100 * strike['drop'] for strike in back])} | {moments} | {over_seeds(lost)} |"
        )


def strikes(result: Record) -> list[tuple[str, float]]:
    """Arms and tolls, in order."""
    return list(dict.fromkeys((strike["arm"], strike["toll"]) for strike in result["catastrophe"]))


def winters(result: Record) -> Iterable[str]:
    """What winters do, against the summers of the same years, from the second year on."""
    rows = {"energy, ATP": "energy", "alive": "population", "questions served rightly, %": "served"}
    yield "| at the end of | summer | winter | difference |"
    yield "|---|---|---|---|"
    for label, name in rows.items():
        scale = 100 if name == "served" else 1
        ends = {
            season: [
                scale * float(np.mean(ends_of(year[name], result["year"], season)))
                for year in result["seasons"]
            ]
            for season in ("summer", "winter")
        }
        difference = paired_interval(ends["winter"], ends["summer"])
        yield (
            f"| {label} | {over_seeds(ends['summer'])} | {over_seeds(ends['winter'])} "
            f"| {difference.estimate:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}] |"
        )


def ends_of(curve: Sequence[float], year: int, season: str) -> list[float]:
    """Means of the last tenth of each summer or winter, from the second year on."""
    half, tenth = year // 2, max(year // 20, 1)
    ends = range(year + (half if season == "summer" else year), len(curve) + 1, year)
    return [float(np.mean(curve[end - tenth : end])) for end in ends]


BLOCKS: dict[str, Callable[[Record], Iterable[str]]] = {
    "coexistence": coexistence,
    "activity": activities,
    "modes": novelties,
    "invasion": invasions,
    "catastrophe": catastrophes,
    "seasons": winters,
}


def draw_life(result: Record) -> Figure:
    """Specialists, activity and novelty through the long lives."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    (held, effective, active), below = figure.subplots(2, 3)
    for prices, (colour, label) in PRICES.items():
        for axis, name in ((held, "held"), (effective, "effective")):
            curves = np.array([record[name] for record in lives(result, prices)])
            stops = lives(result, prices)[0]["stops"]
            axis.plot(stops, curves.T, color=colour, alpha=0.2, lw=0.7)
            axis.plot(stops, curves.mean(axis=0), color=colour, lw=2.2, label=label)
    scarce = lives(result, "scarcity")
    held.axhline(SHARE * scarce[0]["groups"], color="black", ls=":", lw=1)
    held.set(title="groups with a specialist", ylim=(0, scarce[0]["groups"] + 0.4))
    effective.set(title="effective number of specialists", ylim=(1, scarce[0]["groups"]))
    effective.legend(fontsize=8, loc="lower right")
    for record in scarce:
        course = record["activity"]
        xs = np.linspace(0, record["stops"][-1], len(course["mean"]))
        active.plot(xs, course["mean"], color=GREEN, alpha=0.8, lw=1)
        active.fill_between(xs, course["low"], course["high"], color=GREY, alpha=0.4, lw=0)
    active.set(title="mean activity (grey: neutral shadows)", ylim=(0, None))
    for axis, name in zip(below, ("change", "novelty", "diversity"), strict=True):
        moments = [point["generation"] for point in scarce[0]["potentials"]]
        curves = np.array([[point[name] for point in record["potentials"]] for record in scarce])
        axis.plot(moments, curves.T, color=GREEN, alpha=0.35, lw=1)
        axis.plot(moments, curves.mean(axis=0), color=GREEN, lw=2.2)
        axis.set(
            title=f"{name}, {'nats' if name == 'diversity' else 'kinds per snapshot'}",
            ylim=(0, None),
        )
    return finished(figure, "generation")


def draw_invasion(result: Record) -> Figure:
    """Shares of newcomers' lines, and their growth while they were rare."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    *axes, slopes = figure.subplots(1, 4)
    for axis, (arm, label), colour in zip(
        axes, INVASIONS.items(), (GREEN, GREY, BLUE), strict=True
    ):
        trials = [
            trial for seed in result["invasions"] for trial in seed["trials"] if trial["arm"] == arm
        ]
        shares = np.array([np.divide(trial["line"], trial["population"]) for trial in trials])
        axis.plot(100 * shares.T, color=colour, alpha=0.3, lw=0.7)
        axis.plot(100 * shares.mean(axis=0), color="black", lw=2)
        axis.set(
            title=label.replace(", ", ",\n"), ylim=(0, 100), xlabel="generations after they came"
        )
        if arm != "suited":
            xs, ys = (
                [100 * lead(trial) for trial in trials],
                [100 * growth(trial) for trial in trials],
            )
            slopes.scatter(xs, ys, s=9, color=colour, label=label)
    axes[0].set_ylabel("newcomers among the living, %")
    slopes.axhline(0, color="black", lw=0.8)
    slopes.set(
        title="growth beyond the residents',\n% per generation",
        xlabel="newcomers' lead in skill, points",
    )
    slopes.legend(fontsize=7, loc="lower right")
    return finished(figure)


def draw_shocks(result: Record) -> Figure:
    """Success through a catastrophe, by toll, means over five generations; and energy through the
    years."""
    tolls = sorted({toll for _, toll in strikes(result)})
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, len(tolls) + 1)
    for axis, toll in zip(axes, tolls, strict=False):
        for arm, colour in ARMS.items():
            curves = [
                smoothed(record["served"])
                for record in result["catastrophe"]
                if (record["arm"], record["toll"]) == (arm, toll)
            ]
            if not curves:
                continue
            axis.plot(100 * np.mean(curves, axis=0), color=colour, lw=1.6, label=arm)
            axis.fill_between(
                range(len(curves[0])),
                100 * np.min(curves, axis=0),
                100 * np.max(curves, axis=0),
                color=colour,
                alpha=0.15,
                lw=0,
            )
        axis.set(
            title=f"{100 * toll:.0f} % die", ylim=(0, 100), ylabel="questions served rightly, %"
        )
    axes[0].legend(fontsize=8, loc="lower right")
    year = axes[-1]
    for record in result["seasons"]:
        year.plot(record["energy"], color=GREEN, alpha=0.7, lw=1)
    for start in range(result["year"] // 2, len(result["seasons"][0]["energy"]), result["year"]):
        year.axvspan(start, start + result["year"] // 2, color=BLUE, alpha=0.1, lw=0)
    year.set(title="winters (shaded)", ylabel="energy of all living, ATP", ylim=(0, None))
    return finished(figure, "generation")


def smoothed(curve: Sequence[float], width: int = 5) -> np.ndarray:
    """Means over the last few generations."""
    padded = np.concatenate([np.full(width - 1, curve[0]), curve])
    return np.convolve(padded, np.ones(width) / width, mode="valid")


def finished(figure: Figure, below: str = "") -> Figure:
    """Grids, and what lies below."""
    for axis in figure.axes:
        axis.grid(alpha=0.3)
        axis.title.set_fontsize(10)
    figure.supxlabel(below, fontsize=10)
    return figure


FIGURE: dict[str, Callable[[Record], Figure]] = {
    "life": draw_life,
    "life_invasion": draw_invasion,
    "life_shocks": draw_shocks,
}


if __name__ == "__main__":
    main()

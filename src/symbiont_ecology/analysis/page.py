"""The page of a paper pack: tables of the summary, in Markdown. No number comes from anywhere
else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from symbiont_ecology.analysis.comparison import SEEDS_NEEDED
from symbiont_ecology.analysis.outcomes import BARE_HOST, Outcomes

FIGURES = {
    "roi.png": "Return on energy through training",
    "accuracy.png": "Accuracy against compute; the band is that of the arm in question, from seed to seed",
    "differences.png": "The arm in question minus the others, with 95 % intervals; filled where claimed",
    "retention.png": "Skill against retention, budget by budget",
    "flip.png": "The convention flip; the band is that of the arm in question, from seed to seed",
}


def render_pack(
    outcomes: Outcomes, summary: Mapping[str, Any], tuned: Mapping[str, Any], figures: Sequence[str]
) -> str:
    """The whole page."""
    protocol = summary["protocol"]
    parts = [
        f"# {protocol['name']}",
        f"Question: {protocol['question']}",
        _reading(outcomes, summary),
        "## What the arms did",
        _classic(outcomes, summary),
        _picture("roi.png", figures),
        "## What every arm saw and spent",
        _fairness(outcomes, summary),
        "## Accuracy",
        *_accuracies(outcomes, summary),
        _picture("accuracy.png", figures),
        f"## {protocol['main']} minus the others",
        _picture("differences.png", figures),
        *_differences(outcomes, summary, "differences"),
        *_second(outcomes, summary),
        "## Is SFT a strong peer?",
        _peer(summary),
        "## Skill and retention",
        *_retention(outcomes, summary),
        _picture("retention.png", figures),
        "## Routing",
        *_routing(summary),
        "## The convention flip",
        *_flip(outcomes, summary),
        _picture("flip.png", figures),
        "## How the arms were tuned",
        _tuning(outcomes, tuned),
        "## Made with",
        made_with(outcomes.rows[0]["protocol"], summary),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def excerpt(outcomes: Outcomes, summary: Mapping[str, Any]) -> str:
    """One table for other pages: percent right by budget in distribution, and by shift at the
    largest one."""
    first, *others = outcomes.shifts
    largest = f"{outcomes.budgets[-1]:g}"
    columns = [(f"{budget:g}", first) for budget in outcomes.budgets] + [
        (largest, view) for view in others
    ]
    flips = summary["flip"]["arms"]
    rows = []
    for arm in (BARE_HOST, *outcomes.arms):
        cells = [summary["accuracy"][budget].get(view, {}).get(arm) for budget, view in columns]
        row = [arm, *("–" if one is None else f"{100 * one['estimate']:.0f}" for one in cells)]
        if flips:
            row.append(f"{100 * flips[arm]['mean']['area']:.0f}" if arm in flips else "–")
        rows.append(row)
    head = ["percent right", *(f"{budget:g} ×" for budget in outcomes.budgets), *others]
    return table([*head, *(["flip"] if flips else [])], rows) + "\n"


def _reading(outcomes: Outcomes, summary: Mapping[str, Any]) -> str:
    seeds, cells = sorted(set(summary["seeds"].values())), summary["cells"]
    count = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else seeds[0]
    budgets = ", ".join(
        _flops(budget * outcomes.protocol["unit_flops"]) for budget in outcomes.budgets
    )
    return (
        f"{len(outcomes.arms)} arms, {count} seeds each, budgets of {budgets} useful training FLOPs. "
        f"Percent right on holdout questions, {outcomes.protocol['per_cell']} different ones per cell and "
        "shift, the same for every arm and seed; every cell weighs the same. Brackets are 95 % intervals by "
        "bootstrap over seeds and questions, clustered by family; p is an exact sign-flip test over seeds, "
        "adjusted for false discoveries among the arms of a row (q). *Elicitation* cells are those in which "
        f"the bare host is right at least {100 * outcomes.protocol['elicitation']:.0f} % of the time when "
        f"the wanted convention is told ({len(cells['elicitation'])} of them), *capability* cells the others "
        f"({len(cells['capability'])})."
    )


def _classic(outcomes: Outcomes, summary: Mapping[str, Any]) -> str:
    largest = f"{outcomes.budgets[-1]:g}"
    rows = []
    for arm in outcomes.arms:
        if (did := summary["arms"][arm].get(largest)) is None:
            continue
        accuracy = summary["accuracy"][largest].get(outcomes.shifts[0], {}).get(arm)
        rows.append(
            [
                arm,
                f"{did['rollouts']:.0f}",
                f"{did['net_per_episode']:+.0f}" if did["roi"] else "–",
                f"{did['roi']:.2f}" if did["roi"] else "–",
                f"{did['births']:.1f}",
                f"{did['merges']:.0f}",
                _percent(accuracy),
                f"{did['coverage']:.1f}",
                _flops(did["flops_per_solved"]),
                "never" if did["break_even_solved"] is None else _flops(did["break_even_solved"]),
            ]
        )
    head = [
        "arm",
        "rollouts",
        "net, mATP",
        "ROI",
        "births",
        "merges",
        "holdout",
        "coverage",
        "FLOPs per right answer",
        "pays off after",
    ]
    return (
        f"At {_budget(outcomes, outcomes.budgets[-1])}; means of a run. Net is revenue minus cost per "
        "rollout, ROI revenue ÷ cost (– where nothing is earned), coverage the cells with half of the "
        "holdout answers right; training pays off against the bare host after so many right answers.\n\n"
        + table(head, rows)
    )


def _fairness(outcomes: Outcomes, summary: Mapping[str, Any]) -> str:
    rows = []
    for arm in outcomes.arms:
        sides, spent = outcomes.protocol["arms"][arm], summary["arms"][arm]
        off = max((one["off_budget"] for one in spent.values()), default=0.0)
        selected = max((one["select_flops"] for one in spent.values()), default=0.0)
        last = list(spent.values())[-1] if spent else {}
        rows.append(
            [
                arm,
                sides["about"],
                sides["sees"],
                f"{100 * off:.1f} %",
                f"{last['executed_flops'] / last['train_flops']:.2f}" if last else "–",
                _flops(selected),
                sides["routing"],
                f"{last.get('organelles_asked', 0):.1f}",
            ]
        )
    head = [
        "arm",
        "what it is",
        "sees",
        "off budget, worst run",
        "executed ÷ useful FLOPs",
        "selection FLOPs",
        "answers by",
        "adapters that answered",
    ]
    return table(head, rows)


def _accuracies(outcomes: Outcomes, summary: Mapping[str, Any]) -> Iterator[str]:
    for budget, views in summary["accuracy"].items():
        if not views:
            continue
        arms = [
            arm
            for arm in (BARE_HOST, *outcomes.arms)
            if any(arm in found for found in views.values())
        ]
        rows = [
            [view, *(_percent(found.get(arm)) for arm in arms)] for view, found in views.items()
        ]
        yield f"At {_budget(outcomes, budget)}:\n\n" + table(["", *arms], rows)


def _second(outcomes: Outcomes, summary: Mapping[str, Any]) -> Iterator[str]:
    if summary["second"]:
        yield f"## Where all see gold answers: {outcomes.protocol['second']} minus the others"
        yield from _differences(outcomes, summary, "second")


def _differences(outcomes: Outcomes, summary: Mapping[str, Any], part: str) -> Iterator[str]:
    needed = ", ".join(
        f"{view} {count}" for view, count in SEEDS_NEEDED.items() if view in outcomes.shifts
    )
    yield (
        "In points. Bold is what is claimed: q below the level"
        + (f", with at least so many seeds: {needed}" if needed else "")
        + ("; retention from 10 points on" if "retention" in outcomes.shifts else "")
        + ". *Detectable* is the difference that so many seeds find four times out of five, the mean over "
        "the table's arms."
    )
    for budget, views in summary[part].items():
        arms = [
            arm
            for arm in (BARE_HOST, *outcomes.arms)
            if any(arm in found for found in views.values())
        ]
        if not arms:
            continue
        rows = []
        for view, found in views.items():
            least = [one["detectable"] for one in found.values() if one["detectable"] is not None]
            mean = f"{100 * sum(least) / len(least):.1f}" if least else "–"
            rows.append([view, *(_scaled(found.get(arm), 100, 1) for arm in arms), mean])
        yield f"At {_budget(outcomes, budget)}:\n\n" + table(["", *arms, "detectable"], rows)


def _peer(summary: Mapping[str, Any]) -> str:
    peer = summary["peer"]
    if not peer:
        return "No arm of that name."
    shares = ", ".join(
        f"{budget} ×: {100 * share:.0f} %" for budget, share in peer["share_of_best"].items()
    )
    return (
        f"Told which convention is wanted, the bare host is right on {100 * peer['ceiling']:.1f} % (mean "
        f"over the in-distribution cells); SFT at {peer['largest']} × is "
        f"{100 * peer['sft_minus_ceiling']:+.1f} points from that. Its accuracy as a share of its best, by "
        f"budget: {shares}."
    )


def _retention(outcomes: Outcomes, summary: Mapping[str, Any]) -> Iterator[str]:
    found = summary["retention"]["arms"]
    if not found:
        yield "Not measured."
        return
    yield (
        "Retention: of the questions about the other conventions that the bare host answers when told, the "
        "share that an arm still answers. Hypervolume: the area that an arm's (skill, retention) points "
        "dominate, over all budgets."
    )
    against = summary["retention"]["differences"]
    largest, rows = f"{outcomes.budgets[-1]:g}", []
    for arm, one in found.items():
        if (points := one["points"].get(largest)) is None:
            continue
        skill, kept = (100 * sum(point[axis] for point in points) / len(points) for axis in (0, 1))
        rows.append(
            [
                arm,
                f"{skill:.1f}",
                f"{kept:.1f}",
                f"{one['mean']:.3f}",
                _scaled(against.get(arm), 1, 3),
            ]
        )
    main = summary["protocol"]["main"]
    yield table(["arm", "skill", "retention", "hypervolume", f"{main} minus this"], rows)


def _routing(summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["routing"]:
        yield "Not measured."
        return
    yield (
        "At the largest budget. *Family* and *cell* are oracles that read labels; *committed* is the same "
        "router where it must not leave a question to the host: the difference is what abstaining costs or "
        "gains."
    )
    for arm, shifts in summary["routing"].items():
        names = list(dict.fromkeys(name for one in shifts.values() for name in one["accuracy"]))
        rows = []
        for shift, one in shifts.items():
            cells = [_percent(one["accuracy"].get(name)) for name in names]
            gaps = "; ".join(
                f"{name} {100 * gap['estimate']:+.1f} [{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}]"
                for name, gap in one["minus"].items()
            )
            flops = one["flops"]
            saved = (
                f"{100 * (1 - flops[names[0]] / flops['committed']):+.1f} %"
                if "committed" in flops
                else "–"
            )
            rows.append([shift, *cells, f"{100 * one['abstained']:.0f} %", saved, gaps])
        head = [
            "",
            *names,
            "left to the host",
            "FLOPs that it saves",
            f"{names[0]} minus …, points",
        ]
        yield f"**{arm}**:\n\n{table(head, rows)}"


def _flip(outcomes: Outcomes, summary: Mapping[str, Any]) -> Iterator[str]:
    arms = summary["flip"]["arms"]
    if not arms:
        yield "Not measured."
        return
    plan = outcomes.protocol["flip"]
    yield (
        f"At {_budget(outcomes, plan['at'])} half of the families (another half for every seed) change to a "
        f"convention that is not the habit, at {_budget(outcomes, plan['back'])} they change back. Nobody is "
        "told. Every arm goes on with the same extra FLOPs. Area: mean height over both phases; at zero "
        "extra: right after the changes."
    )
    rows = []
    for arm, one in arms.items():
        cells = [arm]
        for name in ("area", "at_zero"):
            difference = summary["flip"]["differences"][name].get(arm)
            cells += [f"{100 * one['mean'][name]:.1f}", _scaled(difference, 100, 1)]
        rows.append(cells)
    main = summary["protocol"]["main"]
    yield table(["arm", "area", f"{main} minus this", "at zero extra", f"{main} minus this"], rows)


def _tuning(outcomes: Outcomes, tuned: Mapping[str, Any]) -> str:
    sweep: dict[tuple[str, float, int], list[list[float]]] = {}
    for one in tuned["sweep"]:
        found = [one[key] for key in ("accuracy", "retention") if key in one]
        sweep.setdefault((one["arm"], one["budget"], one["option"]), []).append(found)
    if not sweep:
        return "They were not."
    rows = []
    for arm in tuned["chosen"]:
        for option, words in enumerate(outcomes.protocol["arms"][arm]["tune"]):
            cells = [arm, ", ".join(word.removeprefix("strategy.") for word in words)]
            for budget in outcomes.budgets:
                values = sweep.get((arm, budget, option), [])
                shown = (
                    " / ".join(f"{100 * fmean(some):.1f}" for some in zip(*values, strict=True))
                    or "–"
                )
                is_chosen = tuned["chosen"][arm][f"{budget:g}"] == option
                cells.append(f"**{shown}**" if is_chosen else shown)
            rows.append(cells)
    seeds = len({one["seed"] for one in tuned["sweep"]})
    budgets = [_budget(outcomes, f"{budget:g}") for budget in outcomes.budgets]
    tie = outcomes.protocol.get("tie", 0)
    rule = (
        f" The second figure is retention, not divided by the host's: of configs within {100 * tie:g} points "
        "of the best, the one that keeps most was chosen."
    )
    return (
        f"Percent right on selection questions, with {seeds} seed{'s' * (seeds > 1)} that no result uses and "
        f"runs of their own for every budget; bold is what was chosen.{rule if tie else ''}\n\n"
        + table(["arm", "config", *budgets], rows)
    )


def made_with(digest: str, summary: Mapping[str, Any]) -> str:
    """The protocol's hash, and which code, host and packages the outcomes in a summary come
    from."""
    versions = summary["host"]["versions"]
    packages = ", ".join(
        f"{name} {version}" for name, version in versions.items() if name != "source"
    )
    sources = ", ".join(summary["sources"])
    return f"Protocol `{digest}`, code `{sources}`, host `{summary['host']['fingerprint']}`, {packages}."


def _picture(name: str, figures: Sequence[str]) -> str:
    return f"![{FIGURES[name]}]({name})" if name in figures else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _percent(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "–"
    return f"{100 * found['estimate']:.1f} [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


def _scaled(found: Mapping[str, Any] | None, scale: float, digits: int) -> str:
    """A difference with its interval and q; bold where it is claimed."""
    if found is None:
        return "–"
    mid, low, high = (f"{scale * found[key]:+.{digits}f}" for key in ("estimate", "low", "high"))
    shown = f"**{mid}**" if found["is_claimed"] else mid
    return f"{shown} [{low}, {high}] q={found['p_adjusted']:.2g}"


def _budget(outcomes: Outcomes, budget: str | float) -> str:
    return f"{_flops(float(budget) * outcomes.protocol['unit_flops'])} FLOPs ({float(budget):g} ×)"


def _flops(value: float) -> str:
    return f"{value:.3g}"

"""Views of selection by exams: scores, lives, how long variants stay, hyper-parameters, and what
changes were worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from symbiont_ecology.history.ascents import band_of
from symbiont_ecology.history.history import History
from symbiont_ecology.history.variants import (
    MOST_DRAWN,
    Gain,
    first_exams,
    gains_of,
    gene_name,
    lives_of,
    said_genes,
    staying_of,
    variants_of,
)
from symbiont_ecology.plots.ascents import draw_band
from symbiont_ecology.plots.drawing import (
    SMALL,
    head,
    label,
    legend_below,
    new_axes,
    row_axis,
    row_height,
    say,
    time_axis,
)
from symbiont_ecology.plots.palette import HEAT, OTHERS_COLOUR, VIEW_COLOURS
from symbiont_ecology.types import OrganelleId

NO_EXAMS = "Nobody has sat an exam in this run."
MOST_ROWS = 40
"""Variants in a table of genes."""


def score_band(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Scores of everyone alive at every exam: mean, best (dashed), and a band."""
    ax, title = new_axes(ax), "Scores"
    if not (lives := lives_of(history)):
        return say(ax, title, NO_EXAMS)
    scores = [tuple(variant.fitness for variant in life.ranking) for life in lives]
    rows = [(life.generation, *band_of(values)) for life, values in zip(lives, scores, strict=True)]
    draw_band(ax, rows, "score")
    time_axis(ax, history)
    head(ax, title, "of everyone alive, at every exam")
    return ax


def mutation_sizes(history: History, ax: Axes | Figure | None = None) -> Axes:
    """The size of mutations where it is inherited: a dot per newborn, and the mean of the
    living."""
    ax, title = new_axes(ax), "Inherited size of mutations"
    taxa = history.phylogeny.taxa
    sigmas = {name: traits["sigma"] for name, traits in history.traits.items() if "sigma" in traits}
    if not sigmas:
        return say(ax, title, "Nobody inherits the size of mutations in this run.")
    scores = {name: variant.fitness for name, variant in variants_of(lives_of(history)).items()}
    scored = [name for name in sigmas if name in scores]
    new = [name for name in sigmas if name not in scores]
    ax.scatter([taxa[n].born for n in new], [sigmas[n] for n in new], s=9, c=OTHERS_COLOUR)
    if scored:
        dots = ax.scatter(
            [taxa[name].born for name in scored],
            [sigmas[name] for name in scored],
            s=9,
            c=[scores[name] for name in scored],
            cmap=HEAT,
        )
        ax.figure.colorbar(dots, ax=ax, pad=0.02).set_label("score")
    means = [(at, np.mean(sizes)) for at, sizes in _held(history, sigmas) if sizes]
    ax.plot(*zip(*means, strict=True), color=VIEW_COLOURS[3], lw=1.6)
    ax.set_yscale("log")
    ax.set_ylabel("sigma")
    ax.grid(alpha=0.25)
    legend_below(ax, [Line2D([], [], color=VIEW_COLOURS[3], label="mean of the living")])
    time_axis(ax, history)
    head(ax, title, "a dot for every newborn; grey: it sat no exam")
    return ax


def gene_map(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Hyper-parameters of the best variants: a row each, on the colour of its score."""
    title = "Hyper-parameters"
    variants = variants_of(lives_of(history))
    ranked = sorted(variants.values(), key=lambda variant: -variant.fitness)[:MOST_ROWS]
    if not ranked or not (genes := list(said_genes(ranked[0].genes))):
        return say(new_axes(ax), title, NO_EXAMS if not ranked else "Variants have no genes here.")
    ax = new_axes(ax, row_height(len(ranked)) + 0.04 * len(ranked))
    scores, columns = np.array([variant.fitness for variant in ranked]), [*genes, "right", "score"]
    mesh = ax.imshow(np.repeat(scores[:, None], len(columns), 1), cmap=HEAT, aspect="auto")
    middle = (scores.min() + scores.max()) / 2
    for row, variant in enumerate(ranked):
        right = "–" if np.isnan(variant.accuracy) else f"{variant.accuracy:.0%}"
        texts = {**said_genes(variant.genes), "right": right, "score": f"{variant.fitness:.3f}"}
        colour = "black" if variant.fitness > middle else "white"
        for column, name in enumerate(columns):
            text = label(texts.get(name, "–"))
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(range(len(columns)), [label(name) for name in columns], fontsize=SMALL)
    row_axis(ax, [variant.id for variant in ranked])
    ax.tick_params(length=0, top=False)
    ax.figure.colorbar(mesh, ax=ax, pad=0.02).set_label("score")
    shown = "all" if len(ranked) == len(variants) else f"the best {len(ranked)} of {len(variants)}"
    head(ax, title, f"a row for every variant, the best first; {shown} are shown")
    return ax


def life_lines(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Lives of variants in the order of birth: training, exam, and how long they stayed."""
    title, lives = "Lives", lives_of(history)
    if not lives:
        return say(new_axes(ax), title, NO_EXAMS)
    exams = first_exams(lives)
    taxa = list(history.phylogeny.taxa.values())
    shown = taxa[-MOST_DRAWN:]
    ax = new_axes(ax, row_height(len(shown)))
    before, after, dead = VIEW_COLOURS[0], VIEW_COLOURS[2], VIEW_COLOURS[3]
    for row, taxon in enumerate(shown):
        end = history.generation if taxon.died is None else taxon.died
        exam = exams.get(taxon.id, end)
        ax.broken_barh([(taxon.born, exam - taxon.born)], (row - 0.34, 0.68), color=before)
        ax.broken_barh([(exam, end - exam)], (row - 0.34, 0.68), color=after)
        if taxon.died is not None:
            ax.plot(end, row, "D", color=dead, ms=3.5, zorder=4, clip_on=False)
    handles = [
        Patch(color=before, label="training"),
        Patch(color=after, label="after its exam"),
        Line2D([], [], color=dead, marker="D", ls="", ms=4, label="eliminated"),
    ]
    row_axis(ax, [taxon.id for taxon in shown])
    legend_below(ax, handles)
    time_axis(ax, history)
    extent = "all" if len(shown) == len(taxa) else f"the last {len(shown)} of {len(taxa)}"
    head(ax, title, f"from birth to exam a variant trains; {extent} are shown")
    return ax


def staying_curve(history: History, ax: Axes | Figure | None = None) -> Axes:
    """The share of variants that are left after so many exams (Kaplan and Meier 1958)."""
    ax, title = new_axes(ax), "How long variants stay"
    if not (points := staying_of(lives_of(history))):
        return say(ax, title, NO_EXAMS)
    shares = [100.0, *(100 * point.share for point in points)]
    ax.step(range(len(shares)), shares, where="post", color=VIEW_COLOURS[0], marker="o", ms=3)
    ax.set_ylim(0, 103)
    ax.set_xlim(0, len(points))
    ax.set_xlabel("exams")
    ax.set_ylabel("variants left, %")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.25)
    head(ax, title, f"of {points[0].at_risk} that sat an exam; the living count as far as seen")
    return ax


def change_gains(history: History, ax: Axes | Figure | None = None) -> Axes:
    """What every child scored beyond its better parent, by operator and by changed gene."""
    title, gains = "What changes were worth", gains_of(lives_of(history))
    if not gains:
        return say(new_axes(ax), title, "No child has sat an exam in this run.")
    names = dict.fromkeys(_gain_name(gain) for gain in sorted(gains, key=lambda gain: gain.is_gene))
    ax = new_axes(ax, row_height(2 * len(names)))
    for row, name in enumerate(names):
        amounts = [gain.amount for gain in gains if _gain_name(gain) == name]
        ax.barh(row, np.mean(amounts), height=0.6, color=VIEW_COLOURS[4], alpha=0.5)
        spread = (np.arange(len(amounts)) * 5 % 11 - 5) * 0.04  # dots of equal worth are told apart
        ax.plot(amounts, row + spread, "o", color="black", alpha=0.6, ms=3, mew=0)
        ax.annotate(
            f"{sum(amount > 0 for amount in amounts)} of {len(amounts)} better",
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=SMALL,
        )
    row_axis(ax, list(names))
    ax.axvline(0, color="#666666", lw=0.8)
    ax.set_xlabel("gain of score")
    ax.grid(alpha=0.25, axis="x")
    head(ax, title, "score of a child less that of its better parent; the bar is the mean")
    return ax


def score_colours(history: History) -> tuple[dict[OrganelleId, str], ScalarMappable]:
    """The colour of everybody with a score, and the scale of these colours."""
    scores = {name: variant.fitness for name, variant in variants_of(lives_of(history)).items()}
    scale = ScalarMappable(Normalize(min(scores.values()), max(scores.values())), HEAT)
    colours = scale.to_rgba(np.array(list(scores.values())))
    return dict(zip(scores, map(to_hex, colours), strict=True)), scale


def _held(
    history: History, sigmas: Mapping[OrganelleId, float]
) -> Iterator[tuple[int, list[float]]]:
    """The sizes that the living have inherited, after every generation."""
    taxa = [history.phylogeny.taxa[name] for name in sigmas]
    for generation in range(history.generation):
        yield (
            generation,
            [
                sigmas[taxon.id]
                for taxon in taxa
                if taxon.born <= generation and (taxon.died is None or taxon.died > generation)
            ],
        )


def _gain_name(gain: Gain) -> str:
    return f"gene {gene_name(gain.name)}" if gain.is_gene else gain.name

"""Pages in Markdown, from templates: those of paper packs and of ablations. No number comes from
anywhere but the values that a template is given."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean

from jinja2 import Environment, PackageLoader, StrictUndefined

from symbiont_ecology.analysis.comparison import SEEDS_NEEDED
from symbiont_ecology.analysis.results import BARE_HOST
from symbiont_ecology.analysis.stages import StageSummary
from symbiont_ecology.analysis.summary import AdjustedDifference, Summary
from symbiont_ecology.experiments.outcomes import Tuning, TuningScore
from symbiont_ecology.statistics import Interval

NO_VALUE = "–"
"""A cell without a value."""


def render_pack(
    summary: Summary,
    tuning: Tuning,
    figures: Collection[str],
    digest: str,
    stages: StageSummary | None = None,
) -> str:
    """The page of a paper pack; ``figures`` are the files that were drawn."""
    parts = {"tuning": tuning, "figures": figures, "digest": digest, "stages": stages}
    return render("pack.md.j2", summary=summary, **parts)


def excerpt(summary: Summary) -> str:
    """One table for other pages: percent right by budget in distribution, and by shift at the
    largest one."""
    return render("excerpt.md.j2", summary=summary)


def render(template: str, **values: object) -> str:
    """A page from its template. Lines of a paragraph are joined, empty paragraphs left out."""
    blocks = _PAGES.get_template(template).render(values).split("\n\n")
    parts = (_joined(block.strip()) for block in blocks)
    return "\n\n".join(part for part in parts if part) + "\n"


def table_cell(value: object) -> str:
    """A text that cannot break the table that it stands in."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def safe_cell(value: object) -> str:
    """A text of a run that somebody sent: no HTML, no link or picture, no code, no letter that
    cannot be seen."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")
    text = table_cell(text.replace("\\", "&#92;").replace("[", "\\["))
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def spread(
    interval: Interval | None, scale: float = 100, form: str = ".1f", ends: str = "", mark: str = ""
) -> str:
    """An estimate with its interval, such as ``**12.0** [10.1, 13.9]``; alone if it has none. One
    of nothing is no value."""
    if interval is None or math.isnan(interval.estimate):
        return NO_VALUE
    if math.isnan(interval.low):
        return f"{mark}{scale * interval.estimate:{form}}{mark}"
    low, high = (f"{scale * end:{ends or form}}" for end in (interval.low, interval.high))
    return f"{mark}{scale * interval.estimate:{form}}{mark} [{low}, {high}]"


def claim(difference: AdjustedDifference | None, scale: float = 100, form: str = "+.1f") -> str:
    """A difference with its interval and q; bold where it is claimed."""
    if difference is None:
        return NO_VALUE
    text = spread(difference, scale, form, mark="**" if difference.is_claimed else "")
    return f"{text} q={difference.p_adjusted:.2g}"


def tuned(runs: Sequence[TuningScore], is_bold: bool) -> str:
    """Mean accuracy of a tuning config, and retention where it may decide; bold where chosen."""
    parts = [[run.accuracy for run in runs]] if runs else []
    parts += [[run.retention for run in runs if run.retention is not None]]
    text = " / ".join(f"{100 * fmean(part):.1f}" for part in parts if part) or NO_VALUE
    return f"**{text}**" if is_bold else text


def present(arms: Iterable[str], views: Mapping[str, Collection[str]]) -> list[str]:
    """The arms that some view has."""
    return [arm for arm in arms if any(arm in view for view in views.values())]


def _joined(block: str) -> str:
    is_whole = block.startswith(("|", "- "))  # a table, or a list with an item on every line
    return block if is_whole else " ".join(map(str.strip, block.splitlines()))


_PAGES = Environment(
    loader=PackageLoader("symbiont_ecology.analysis"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # Markdown; ``table_cell`` keeps tables whole
)
_PAGES.globals |= {"host": BARE_HOST, "seeds_needed": SEEDS_NEEDED}
_PAGES.filters |= {
    "cell": table_cell,
    "claim": claim,
    "flops": lambda value: f"{value:.3g}",
    "knob": lambda word: word.removeprefix("strategy."),
    "number": format,
    "safe_cell": safe_cell,
    "points": lambda share: f"{100 * share.estimate:.0f}" if share else NO_VALUE,
    "present": present,
    "spread": spread,
    "tuned": tuned,
}

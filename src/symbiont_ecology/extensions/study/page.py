"""Pages in Markdown, from templates. No number comes from anywhere but the values that a template
is given."""

from __future__ import annotations

import math

from jinja2 import Environment, PackageLoader, StrictUndefined

from symbiont_ecology.base.statistics import Interval

NO_VALUE = "–"
"""A cell without a value."""


def render(pages: Environment, template: str, **values: object) -> str:
    """Return a page from its template. Lines of a paragraph are joined, empty paragraphs left
    out."""
    blocks = pages.get_template(template).render(values).split("\n\n")
    parts = (_joined(block.strip()) for block in blocks)
    return "\n\n".join(part for part in parts if part) + "\n"


def table_cell(value: object) -> str:
    """Return a text that cannot break the table that it stands in."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def safe_cell(value: object) -> str:
    """Return a text of a run that somebody sent: no HTML, no link or picture, no code, no letter
    that cannot be seen."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")
    text = table_cell(text.replace("\\", "&#92;").replace("[", "\\["))
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def code_cell(value: object) -> str:
    """Return a text of a model or of data as code: nothing in it is markup, a link or a picture."""
    text = "".join(letter if letter.isprintable() else "�" for letter in table_cell(value))
    return f"`{text.replace('`', chr(39))}`" if text.strip() else "(nothing)"


def spread(
    interval: Interval | None, scale: float = 100, form: str = ".1f", ends: str = "", mark: str = ""
) -> str:
    """Return an estimate with its interval, such as ``**12.0** [10.1, 13.9]``; alone if it has
    none. One of nothing is no value."""
    if interval is None or math.isnan(interval.estimate):
        return NO_VALUE
    if math.isnan(interval.low):
        return f"{mark}{scale * interval.estimate:{form}}{mark}"
    low, high = (f"{scale * end:{ends or form}}" for end in (interval.low, interval.high))
    return f"{mark}{scale * interval.estimate:{form}}{mark} [{low}, {high}]"


def pages_of(package: str) -> Environment:
    """Return the templates of a package, with the filters that all pages have."""
    pages = Environment(
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown; ``table_cell`` keeps tables whole
    )
    pages.filters |= {
        "cell": table_cell,
        "code_cell": code_cell,
        "flops": lambda value: f"{value:.3g}",
        "number": format,
        "safe_cell": safe_cell,
        "spread": spread,
    }
    return pages


def _joined(block: str) -> str:
    is_whole = block.startswith(("|", "- "))  # a table, or a list with an item on every line
    return block if is_whole else " ".join(map(str.strip, block.splitlines()))

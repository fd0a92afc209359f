"""A paper pack: outcomes in, and out comes everything that is claimed of them.

    protocol.json  outcomes.jsonl.gz  tuned.json  what the suite left: enough to make the rest again
    summary.json  README.md  excerpt.md  *.png    numbers, tables, what other pages quote, figures
    manifest.json                                 hashes of all of them, and of the protocol

The same outcomes give the same files, byte for byte (with the same versions of numpy, scipy and
matplotlib). Only worlds have no excerpt.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel

from symbiont_ecology.base.errors import DataError, EcologyWarning, lines_of
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.statistics import Interval
from symbiont_ecology.base.untrusted import parse_json
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.study.comparison import SEEDS_NEEDED, Difference, Views, summarise
from symbiont_ecology.extensions.study.figures import draw_all, draw_worlds
from symbiont_ecology.extensions.study.measures import NO_SHARES
from symbiont_ecology.extensions.study.outcomes import Outcome, Tuning, parse_outcomes
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results
from symbiont_ecology.extensions.study.worlds import dump_worlds, summarise_worlds

PROTOCOL, OUTCOMES, TUNED = "protocol.json", "outcomes.jsonl.gz", "tuned.json"
SUMMARY, PAGE, MANIFEST, INDEX = "summary.json", "README.md", "manifest.json", "README.md"
EXCERPT = "excerpt.md"
NO_VALUE = "–"
"""A cell without a value."""
TITLE = "# Paper packs"


class Manifest(BaseModel):
    """Hash of the protocol, and of every file of a pack."""

    protocol: str | None
    files: dict[str, str]


def write_pack(
    folder: Path, protocol: Protocol, outcomes: Sequence[Outcome], tuning: Tuning
) -> None:
    """Write a pack from a suite's outcomes."""
    rows = (json.loads(outcome.to_json()) for outcome in outcomes)
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # what it named is replaced now
    # Without the hour: equal outcomes give equal bytes.
    write_whole(folder / OUTCOMES, gzip.compress(text.encode(), mtime=0))
    _write(folder / PROTOCOL, protocol.model_dump(mode="json"))
    _write(folder / TUNED, tuning.model_dump(mode="json", exclude_none=True))
    rebuild(folder)


def rebuild(folder: Path) -> None:
    """Make summary, pages, figures and manifest of a pack again, from its own outcomes.

    Raises:
        DataError: there are none, or they are damaged.
    """
    _check_inputs(folder)
    results, tuning = read_pack(folder)
    digests = {outcome.protocol for outcome in results.outcomes}
    if len(digests) != 1:
        found = ", ".join(sorted(digests)) or "none"
        raise DataError(f"{folder}: expected outcomes of one protocol, got {found}")
    (digest,) = digests
    if results.protocol.worlds:
        numbers, figures = summarise_worlds(results), draw_worlds(results, folder)
        seeds = len({seed for runs in results.streams.values() for seed in runs})
        about = {"tuning": tuning, "figures": figures, "digest": digest, "seeds": seeds}
        pages = {PAGE: render("worlds.md.j2", results=results, numbers=numbers, **about)}
        _write(folder / SUMMARY, dump_worlds(numbers))
    else:
        summary = summarise(results)
        figures = draw_all(results, summary, folder)
        about = {"tuning": tuning, "figures": figures, "digest": digest}
        pages = {
            PAGE: render("pack.md.j2", summary=summary, **about),
            EXCERPT: render("excerpt.md.j2", summary=summary),
        }
        _write(folder / SUMMARY, summary.dump())
    for name, page in pages.items():
        write_whole(folder / name, page)
    names = (PROTOCOL, OUTCOMES, TUNED, SUMMARY, *pages, *figures)
    hashes = {name: _hash(folder / name) for name in sorted(names)}
    _write(folder / MANIFEST, Manifest(protocol=digest, files=hashes).model_dump())


def read_pack(folder: Path) -> tuple[Results, Tuning]:
    """Return the results of a pack, and how its arms were tuned.

    Raises:
        DataError: there is no pack, or it is damaged.
    """
    try:
        lines = gzip.decompress((folder / OUTCOMES).read_bytes()).decode().splitlines()
        data = parse_json((folder / PROTOCOL).read_text(encoding="utf-8"))
        protocol = Protocol.model_validate(data, extra="ignore")
        tuning = Tuning.model_validate_json((folder / TUNED).read_bytes())
        return Results(protocol, parse_outcomes(map(parse_json, lines))), tuning
    except (OSError, ValueError, EOFError, zlib.error) as error:
        message = " ".join(lines_of(error))
        raise DataError(f"no paper pack can be read from {folder}: {message}") from error


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a pack, if it has one.

    Raises:
        DataError: it is damaged.
    """
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes()) if path.exists() else None
    except (OSError, ValueError) as error:
        message = " ".join(lines_of(error))
        raise DataError(f"{path} is damaged: {message}") from error


def _check_inputs(folder: Path) -> None:
    """Refuse outcomes, protocol or tuning that are not those of the manifest."""
    if (manifest := read_manifest(folder)) is not None:
        for file in (folder / name for name in (PROTOCOL, OUTCOMES, TUNED)):
            if not file.exists() or _hash(file) != manifest.files.get(file.name):
                raise DataError(f"{file} is not the file that {MANIFEST} names: bring it back")


def write_index(folder: Path) -> None:
    """Write the table of all packs beside each other; a page that is none of ours is left alone. A
    pack that is damaged is left out, with a warning."""
    page = folder / INDEX
    if page.exists() and not page.read_bytes().startswith(TITLE.encode()):
        return
    packs = {}
    for place in sorted(path.parent for path in folder.glob(f"*/{SUMMARY}")):
        if not (place / PROTOCOL).exists():
            continue
        try:
            summary: Any = parse_json((place / SUMMARY).read_text(encoding="utf-8"))
            manifest = read_manifest(place)
            question, seeds = summary["protocol"]["question"], max(summary["seeds"].values())
            packs[place.name] = question, seeds, manifest.protocol if manifest else "unknown"
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            message = f"{place} is left out of {page}: its {SUMMARY} or {MANIFEST} is damaged"
            warnings.warn(message, EcologyWarning, stacklevel=2)
    write_whole(page, render("index.md.j2", title=TITLE, packs=packs))


# Pages.


def render(template: str, **values: object) -> str:
    """Return a page from its template. Lines of a paragraph are joined, empty paragraphs left
    out."""
    blocks = PAGES.get_template(template).render(values).split("\n\n")
    parts = (_joined(block.strip()) for block in blocks)
    return "\n\n".join(part for part in parts if part) + "\n"


def _joined(block: str) -> str:
    is_whole = block.startswith(("|", "- "))  # a table, or a list with an item on every line
    return block if is_whole else " ".join(map(str.strip, block.splitlines()))


def table_cell(value: object) -> str:
    """Return a text that cannot break the table that it stands in."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


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


def claim(difference: Difference | None, scale: float = 100, form: str = "+.1f") -> str:
    """Return a difference with its interval and q; bold where it is claimed."""
    if difference is None:
        return NO_VALUE
    text = spread(difference, scale, form, mark="**" if difference.is_claimed else "")
    return f"{text} q={difference.p_adjusted:.2g}"


def least_q(views: Views[Difference]) -> str:
    """Return why no difference can be claimed, where there are too few seeds for it; else
    nothing."""
    seeds = min((len(one.seeds) for tests in views.values() for one in tests.values()), default=6)
    if (least := 2 / 2**seeds) < 0.05:
        return ""
    return (
        f"From so few seeds ({seeds}) q cannot be below {least:.2g}, however far from 0 an "
        "interval is: it asks whether all seeds go the same way. To claim a difference takes 6 "
        "seeds or more."
    )


def of_measure(value: Interval | None, measure: str) -> str:
    """Return a mean with its interval, in the unit of its measure."""
    if value is not None and measure == "flops":
        return f"{value.estimate:.2g}"
    return spread(value, 1 if measure in NO_SHARES else 100)


PAGES = Environment(
    loader=PackageLoader("symbiont_ecology.extensions.study"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # Markdown; ``table_cell`` keeps tables whole
)
PAGES.globals |= {"host": HOST, "seeds_needed": SEEDS_NEEDED, "least_q": least_q}
PAGES.filters |= {
    "cell": table_cell,
    "claim": claim,
    "flops": lambda value: f"{value:.3g}",
    "knob": lambda word: word.removeprefix("strategy."),
    "number": format,
    "of_measure": of_measure,
    "points": lambda share: f"{100 * share.estimate:.0f}" if share else NO_VALUE,
    "spread": spread,
}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, data: Mapping[str, object]) -> None:
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

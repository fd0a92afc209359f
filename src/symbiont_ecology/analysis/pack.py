"""A paper pack: outcomes in, and out comes everything that is claimed of them.

    protocol.json  outcomes.jsonl.gz  tuned.json  what the suite left: enough to make the rest again
    summary.json  README.md  excerpt.md  *.png    numbers, tables, what other pages quote, figures
    manifest.json                                 hashes of all of them, and of the protocol

The same outcomes give the same files, byte for byte (with the same versions of numpy, scipy and
matplotlib).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from symbiont_ecology.analysis.comparison import summarise
from symbiont_ecology.analysis.figures import draw_all
from symbiont_ecology.analysis.page import excerpt, render, render_pack
from symbiont_ecology.analysis.results import Results
from symbiont_ecology.analysis.stages import draw_stages, stages_of
from symbiont_ecology.analysis.worlds import WorldResults
from symbiont_ecology.analysis.worlds_figures import draw_worlds
from symbiont_ecology.analysis.worlds_page import render_worlds
from symbiont_ecology.errors import DataError, EcologyWarning, lines_of
from symbiont_ecology.experiments.outcomes import (
    AnyOutcome,
    JobOutcome,
    ReportedOutcome,
    StreamOutcome,
    Tuning,
    parse_outcomes,
)
from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.experiments.suite import is_of_worlds
from symbiont_ecology.experiments.worlds import WorldsProtocol
from symbiont_ecology.files import write_whole
from symbiont_ecology.untrusted import parse_json

PROTOCOL, OUTCOMES, TUNED = "protocol.json", "outcomes.jsonl.gz", "tuned.json"
SUMMARY, PAGE, MANIFEST, INDEX = "summary.json", "README.md", "manifest.json", "README.md"
EXCERPT = "excerpt.md"
TITLE = "# Paper packs"
LARGEST = 5_000_000
"""Bytes that the outcomes of a pack may take, compressed."""


_Kind = TypeVar("_Kind", bound=BaseModel)


class Manifest(BaseModel):
    """Hash of the protocol, and of every file of a pack."""

    protocol: str | None
    files: dict[str, str]


class _Question(BaseModel):
    question: str


class _Entry(BaseModel):
    """What the index tells of a pack's summary."""

    protocol: _Question
    seeds: Annotated[dict[str, int], Field(min_length=1)]


def write_pack(folder: Path, results: Results, tuning: Tuning) -> None:
    """Writes a pack from a suite's outcomes.

    Raises:
        DataError: the outcomes are larger than a repository should hold.
    """
    _write_inputs(folder, results.protocol, results.outcomes, tuning)


def write_worlds_pack(folder: Path, results: WorldResults, tuning: Tuning) -> None:
    """Writes a pack from the outcomes of a suite of worlds.

    Raises:
        DataError: the outcomes are larger than a repository should hold.
    """
    _write_inputs(folder, results.protocol, results.outcomes, tuning)


def _write_inputs(
    folder: Path, protocol: BaseModel, outcomes: Sequence[JobOutcome], tuning: Tuning
) -> None:
    rows = (json.loads(outcome.to_json()) for outcome in outcomes)
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:  # without the hour: equal bytes
        file.write(text.encode())
    if buffer.tell() > LARGEST:
        raise DataError(
            f"the outcomes take {buffer.tell():,} bytes, more than {LARGEST:,}: ask fewer questions"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # what it named is replaced now
    write_whole(folder / OUTCOMES, buffer.getvalue())
    _write(folder / PROTOCOL, protocol.model_dump(mode="json"))
    _write(folder / TUNED, tuning.model_dump(mode="json", exclude_none=True))
    rebuild(folder)


def rebuild(folder: Path) -> None:
    """Makes summary, page, figures and manifest of a pack again, from its own outcomes.

    Raises:
        DataError: there are none, or they are damaged.
    """
    _check_inputs(folder)
    digest, made = _make_worlds(folder) if has_worlds(folder) else _make_budgets(folder)
    names = (PROTOCOL, OUTCOMES, TUNED, SUMMARY, PAGE, *made)
    hashes = {name: _hash(folder / name) for name in sorted(names)}
    _write(folder / MANIFEST, Manifest(protocol=digest, files=hashes).model_dump())


def has_worlds(folder: Path) -> bool:
    """Whether a pack is one of worlds.

    Raises:
        DataError: its protocol cannot be read.
    """
    try:
        return is_of_worlds((folder / PROTOCOL).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"no paper pack can be read from {folder}: {error}") from error


def _make_worlds(folder: Path) -> tuple[str, list[str]]:
    """Summary, page and figures of a pack of worlds; the protocol's digest and the figures."""
    results, tuning = read_worlds_pack(folder)
    digest = _digest_of(folder, results.outcomes)
    _write(folder / SUMMARY, results.dump())
    figures = draw_worlds(results, folder)
    page = render_worlds(results, tuning.chosen, figures, digest)
    write_whole(folder / PAGE, page)
    return digest, figures


def _digest_of(folder: Path, outcomes: Sequence[JobOutcome]) -> str:
    digests = {outcome.protocol for outcome in outcomes}
    if len(digests) != 1:
        found = ", ".join(sorted(digests)) or "none"
        raise DataError(f"{folder}: expected outcomes of one protocol, got {found}")
    return digests.pop()


def _make_budgets(folder: Path) -> tuple[str, list[str]]:
    """Summary, page, excerpt and figures of a pack of budgets; the protocol's digest, and the
    excerpt and the figures."""
    results, tuning = read_pack(folder)
    digest = _digest_of(folder, results.outcomes)
    summary, stages = summarise(results), stages_of(results)
    _write(folder / SUMMARY, summary.dump() | ({"stages": asdict(stages)} if stages else {}))
    figures = draw_all(results, summary, folder)
    if stages is not None:
        figures.append(draw_stages(stages, results.protocol, folder))
    page = render_pack(summary, tuning, figures, digest, stages)
    write_whole(folder / PAGE, page)
    write_whole(folder / EXCERPT, excerpt(summary))
    return digest, [EXCERPT, *figures]


def read_pack(folder: Path) -> tuple[Results, Tuning]:
    """The results of a pack, and how its arms were tuned.

    Raises:
        DataError: there is no pack, or it is damaged.
    """
    protocol, outcomes, tuning = _read_inputs(folder, Protocol)
    reported = [outcome for outcome in outcomes if isinstance(outcome, ReportedOutcome)]
    return Results(protocol, reported), tuning


def read_worlds_pack(folder: Path) -> tuple[WorldResults, Tuning]:
    """The results of a pack of worlds, and how its arms were tuned.

    Raises:
        DataError: there is no pack, or it is damaged.
    """
    protocol, outcomes, tuning = _read_inputs(folder, WorldsProtocol)
    streams = [outcome for outcome in outcomes if isinstance(outcome, StreamOutcome)]
    return WorldResults(protocol, streams), tuning


def _read_inputs(folder: Path, kind: type[_Kind]) -> tuple[_Kind, list[AnyOutcome], Tuning]:
    try:
        lines = gzip.decompress((folder / OUTCOMES).read_bytes()).decode().splitlines()
        protocol = kind.model_validate_json((folder / PROTOCOL).read_bytes(), extra="ignore")
        tuning = Tuning.model_validate_json((folder / TUNED).read_bytes())
        return protocol, parse_outcomes(map(parse_json, lines)), tuning
    except (OSError, ValueError, EOFError, zlib.error) as error:
        message = " ".join(lines_of(error))
        raise DataError(f"no paper pack can be read from {folder}: {message}") from error


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a pack, if it has one.

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
    """Refuses outcomes, protocol or tuning that are not those of the manifest."""
    if (manifest := read_manifest(folder)) is not None:
        for file in (folder / name for name in (PROTOCOL, OUTCOMES, TUNED)):
            if not file.exists() or _hash(file) != manifest.files.get(file.name):
                raise DataError(f"{file} is not the file that {MANIFEST} names: bring it back")


def write_index(folder: Path) -> None:
    """The table of all packs beside each other; a page that is none of ours is left alone. A pack
    that is damaged is left out, with a warning."""
    page = folder / INDEX
    if page.exists() and not page.read_bytes().startswith(TITLE.encode()):
        return
    packs = {}
    for place in sorted(path.parent for path in folder.glob(f"*/{SUMMARY}")):
        if not (place / PROTOCOL).exists():
            continue
        try:
            entry = _Entry.model_validate_json((place / SUMMARY).read_bytes())
            packs[place.name] = entry, read_manifest(place)
        except (OSError, ValueError):
            message = f"{place} is left out of {page}: its {SUMMARY} or {MANIFEST} is damaged"
            warnings.warn(message, EcologyWarning, stacklevel=2)
    write_whole(page, render("index.md.j2", title=TITLE, packs=packs))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, data: Mapping[str, object]) -> None:
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

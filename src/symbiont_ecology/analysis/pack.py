"""A paper pack: outcomes in, and out comes everything that is claimed of them.

    protocol.json outcomes.jsonl.gz tuned.json what the suite left: enough to make the rest again
    summary.json README.md excerpt.md *.png numbers, tables, what other pages quote, figures
    manifest.json hashes of all of them, and of the protocol

The same outcomes give the same files, byte for byte (with the same versions of numpy, scipy and
matplotlib).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from symbiont_ecology.analysis.comparison import summarise
from symbiont_ecology.analysis.figures import draw_all
from symbiont_ecology.analysis.outcomes import Outcomes
from symbiont_ecology.analysis.page import excerpt, render_pack
from symbiont_ecology.errors import DataError

PROTOCOL, OUTCOMES, TUNED = "protocol.json", "outcomes.jsonl.gz", "tuned.json"
SUMMARY, PAGE, MANIFEST, INDEX = "summary.json", "README.md", "manifest.json", "README.md"
EXCERPT = "excerpt.md"
TITLE = "# Paper packs"
LARGEST = 5_000_000
"""Bytes that the outcomes of a pack may take, compressed."""


def write_pack(
    folder: Path,
    protocol: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    tuned: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes a pack from a suite's outcomes and returns its summary.

    Raises:
        DataError: the outcomes are larger than a repository should hold.
    """
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
    (folder / OUTCOMES).write_bytes(buffer.getvalue())
    _write(folder / PROTOCOL, protocol)
    _write(folder / TUNED, tuned)
    return rebuild(folder)


def rebuild(folder: Path) -> dict[str, Any]:
    """Makes summary, page, figures and manifest of a pack again, from its own outcomes.

    Raises:
        DataError: there are none, or they are damaged.
    """
    _check_inputs(folder)
    outcomes, tuned = read_pack(folder)
    if len({row["protocol"] for row in outcomes.rows}) > 1:
        raise DataError(f"{folder}: outcomes of more than one protocol do not mix")
    summary = summarise(outcomes)
    _write(folder / SUMMARY, summary)
    figures = draw_all(outcomes, summary, folder)
    (folder / PAGE).write_text(render_pack(outcomes, summary, tuned, figures), encoding="utf-8")
    (folder / EXCERPT).write_text(excerpt(outcomes, summary), encoding="utf-8")
    files = sorted(
        path.name for path in folder.iterdir() if path.is_file() and path.name != MANIFEST
    )
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    digest = outcomes.rows[0]["protocol"] if outcomes.rows else None
    _write(folder / MANIFEST, {"protocol": digest, "files": hashes})
    return summary


def read_pack(folder: Path) -> tuple[Outcomes, dict[str, Any]]:
    """The outcomes of a pack, and how its arms were tuned.

    Raises:
        DataError: there is no pack, or it is damaged.
    """
    try:
        lines = gzip.decompress((folder / OUTCOMES).read_bytes()).decode().splitlines()
        protocol, tuned = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in (PROTOCOL, TUNED)
        )
        return Outcomes(protocol, [json.loads(line) for line in lines]), tuned
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"no paper pack can be read from {folder}: {error}") from error


def _check_inputs(folder: Path) -> None:
    """Refuses outcomes, protocol or tuning that are not those of the manifest."""
    path = folder / MANIFEST
    if not path.exists():
        return
    try:
        hashes = dict(json.loads(path.read_text(encoding="utf-8"))["files"])
        for name in (PROTOCOL, OUTCOMES, TUNED):
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != hashes.get(name):
                raise DataError(
                    f"{folder / name} is not the file that {MANIFEST} names: bring it back"
                )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged: {error}") from error


def write_index(folder: Path) -> None:
    """The table of all packs beside each other; a page that is none of ours is left alone."""
    page = folder / INDEX
    if page.exists() and not page.read_text(encoding="utf-8").startswith(TITLE):
        return
    lines = [TITLE, "", "| pack | question | seeds | protocol |", "|---|---|---|---|"]
    for path in sorted(folder.glob(f"*/{SUMMARY}")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        manifest = json.loads((path.parent / MANIFEST).read_text(encoding="utf-8"))
        name, seeds = path.parent.name, max(summary["seeds"].values(), default=0)
        question = summary["protocol"]["question"]
        lines.append(
            f"| [{name}]({name}/README.md) | {question} | {seeds} | `{manifest['protocol']}` |"
        )
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

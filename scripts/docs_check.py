"""Compare the figures in pages with the paper packs and results that they are from, and packs and
ablations with what their own outcomes make. All that is made of a pack today must stand in it.

    python scripts/docs_check.py         # a line for every mismatch; exit code 1 if there is one
    python scripts/docs_check.py --fill  # writes the right figures into the pages

``docs/figures.json`` says where the figures of a page are from. An entry of a page is a phrase of
that page, and what the numbers behind the phrase are, one after the other:

    ["| one adapter |", "habitats-v1:worlds.city.measures.single.acceptance 100 .1f"]

Entries stand in the order of the page: a phrase is looked for behind the last figure. A figure is a
paper pack (or a JSON file below ``docs``), the keys of a value in its ``summary.json``, or of two
with ``÷`` between them, a factor and a format of Python. An interval is three numbers: estimate,
low and high. ``["excerpt PACK"]`` says that the page holds the pack's ``excerpt.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import EcologyError, EcologyWarning
from symbiont_ecology.extensions.study import ablation, pack

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
UNSIGNED = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
SOURCES = {pack.PROTOCOL, pack.OUTCOMES, pack.TUNED}
INTERVAL = ("estimate", "low", "high")


def check_packs(home: Path) -> Iterator[str]:
    """Make every pack again elsewhere, from its outcomes, and yield what differs."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for folder in sorted(path for path in home.iterdir() if path.is_dir()):
            again = Path(elsewhere) / folder.name
            shutil.copytree(folder, again, ignore=lambda _, names: set(names) - SOURCES)
            try:
                pack.rebuild(again)
            except EcologyError as error:
                yield f"{folder}: expected {', '.join(sorted(SOURCES))}, found damage: {error}"
                continue
            yield from differences(folder / pack.EXCERPT, again / pack.EXCERPT)
            yield from missing_rows(folder / pack.PAGE, again / pack.PAGE)
            kept, made = (
                json.loads((place / pack.SUMMARY).read_bytes()) for place in (folder, again)
            )
            yield from missing_values(folder / pack.SUMMARY, "", kept, made)
            yield from check_files(folder, again)
        pack.write_index(Path(elsewhere))
        yield from differences(home / pack.INDEX, Path(elsewhere) / pack.INDEX)


def differences(path: Path, again: Path) -> Iterator[str]:
    """Yield the first line of a file that is not as it was made again, if there is one."""
    for number, (expected, line) in enumerate(zip_longest(*map(lines_of, (again, path))), start=1):
        if not is_same(expected or "the end", line or "the end"):
            yield f"{path}:{number}: expected {expected!s:.70}, found {line!s:.70}"
            return


def missing_rows(path: Path, again: Path) -> Iterator[str]:
    """Yield the first row of a table that was made again and is not in the page that is kept, if
    there is one. Earlier versions wrote more than this one makes: that is left out."""
    lines = iter(lines_of(path))
    for expected in lines_of(again):
        is_row = expected.startswith(("#", "|"))
        if is_row and not any(is_same(expected, line) for line in lines):
            yield f"{path}: expected {expected:.70}, found none in its place"
            return


def missing_values(path: Path, keys: str, value: Any, again: Any) -> Iterator[str]:
    """Yield the values that were made again and are others in the JSON that is kept. What earlier
    versions wrote beside them is left out."""
    if isinstance(again, dict) and isinstance(value, dict):
        for key in again:
            yield from missing_values(path, f"{keys}.{key}", value.get(key), again[key])
    elif isinstance(again, list) and isinstance(value, list) and len(again) == len(value):
        for number, pair in enumerate(zip(value, again, strict=True)):
            yield from missing_values(path, f"{keys}.{number}", *pair)
    elif not is_same(json.dumps(again), json.dumps(value)):
        yield f"{path}{keys}: expected {again!s:.70}, found {value!s:.70}"


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; none if it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def is_same(expected: str, line: str) -> bool:
    """Compare two lines. Another processor adds up in another order, so numbers may differ in their
    last digits."""
    if UNSIGNED.sub("", expected) != UNSIGNED.sub("", line):
        return False
    pairs = zip(UNSIGNED.findall(expected), UNSIGNED.findall(line), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-9) for a, b in pairs)


def check_files(folder: Path, again: Path) -> Iterator[str]:
    """Yield outcomes and figures that are not those of the manifest.

    Pictures are not compared with those made again: another matplotlib draws other bytes.
    """
    drawn, names = (sorted(path.name for path in place.glob("*.png")) for place in (again, folder))
    if not set(drawn) <= set(names):
        text = ", ".join(names) or "none"
        yield f"{folder}: expected the figures {', '.join(drawn)}, found {text}"
    manifest = folder / pack.MANIFEST
    hashes = json.loads(manifest.read_text(encoding="utf-8"))["files"] if manifest.exists() else {}
    for name in (*sorted(SOURCES), pack.PAGE, *names):
        listed = hashes.get(name)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if listed != digest:
            text = listed or "none"
            yield f"{manifest}: expected the hash {digest:.16} for {name}, found {text:.16}"


def check_ablations(page: Path) -> Iterator[str]:
    """Make the page of the ablations again elsewhere, from its numbers, and yield what differs."""
    numbers = page.with_suffix(".json")
    if not numbers.exists():
        yield f"{page}: expected its numbers in {numbers}, found none: symbiont ablate makes both"
        return
    with tempfile.TemporaryDirectory() as elsewhere:
        again = Path(elsewhere) / page.name
        results = ablation.AblationResults.model_validate_json(numbers.read_bytes(), extra="ignore")
        again.write_text(ablation.render_ablation(results), encoding="utf-8")
        yield from differences(page, again)


def check_page(
    root: Path, name: str, entries: list[list[str]], *, is_filled: bool
) -> Iterator[str]:
    """Yield the figures of a page that are not what their sources say; fill them in, if wanted."""
    page = root / name
    place = 0
    text = page.read_text(encoding="utf-8")
    for phrase, *figures in entries:
        if phrase.startswith("excerpt "):
            source = root / "docs/paper_packs" / phrase.split()[1] / pack.EXCERPT
            if not source.exists() or source.read_text(encoding="utf-8") not in text:
                yield f"{page}: expected the text of {source}, found another: copy it"
            continue
        found = text.find(phrase, place)
        if found < 0:
            yield f"{page}: expected {phrase!r} behind the figures before it, found none"
            continue
        place = found + len(phrase)
        try:
            values = [(value, figure) for figure in figures for value in quoted(root, figure)]
        except (LookupError, ValueError, TypeError, OSError) as error:
            yield f"{page}: {phrase}: expected values of {figures}, found none ({error})"
            continue
        for value, figure in values:
            number = NUMBER.search(text, place)
            if number is None:
                yield f"{page}: {phrase}: expected {value} ({figure}), found no more numbers"
                break
            place = number.end()
            if number[0] != value and is_filled:
                text = text[: number.start()] + value + text[number.end() :]
                place = number.start() + len(value)
            elif number[0] != value:
                line = text.count("\n", 0, place) + 1
                yield f"{page}:{line}: expected {value}, found {number[0]} ({figure})"
    if is_filled:
        page.write_text(text, encoding="utf-8")


def quoted(root: Path, figure: str) -> list[str]:
    """Return the number that a figure is, or the three of an interval, as they are to be written.

    Raises:
        LookupError: no such keys, or not a number.
        OSError: no such pack or file.
        ValueError: no factor, or no format of a number.
    """
    address, factor, form = figure.rsplit(" ", 2)
    source, _, keys = address.partition(":")
    docs = root / "docs"
    file = docs / source if "/" in source else docs / "paper_packs" / source / pack.SUMMARY
    data = json.loads(file.read_text(encoding="utf-8"))
    top, _, bottom = keys.partition(" ÷ ")
    value = find(data, top.split("."))
    if bottom:
        value /= find(data, bottom.split("."))
    numbers = [value[name] for name in INTERVAL] if isinstance(value, dict) else [value]
    return [format(number * float(factor), form) for number in numbers]


def find(data: Any, keys: list[str]) -> Any:
    """Return the value at the end of the keys; a key may itself have dots, as the budget 0.25."""
    if not keys:
        return data
    if isinstance(data, list):
        return find(data[int(keys[0])], keys[1:])
    entries = data if isinstance(data, dict) else {}
    for count in range(len(keys), 0, -1):
        if (key := ".".join(keys[:count])) in entries:
            return find(entries[key], keys[count:])
    raise LookupError(f"no {'.'.join(keys)} there, but {', '.join(entries) or 'a value'}")


def main() -> None:
    """Check packs and pages; exit code 1 where anything differs."""
    warnings.simplefilter("ignore", EcologyWarning)  # packs keep the keys of their day
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fill", action="store_true", help="write right figures into the pages")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    root: Path = arguments.root
    wrong = list[str]()
    if (root / "docs/paper_packs").is_dir():
        wrong += check_packs(root / "docs/paper_packs")
    for page in sorted((root / "docs/results").glob("ablations*.md")):
        wrong += check_ablations(page)
    figures = json.loads((root / "docs/figures.json").read_text(encoding="utf-8"))
    for name, entries in figures.items():
        wrong += check_page(root, name, entries, is_filled=arguments.fill)
    print(*wrong, sep="\n", end="\n" * bool(wrong), file=sys.stderr)
    print(f"{len(wrong)} mismatches")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

"""Compares what pages say of paper packs with the packs, and the packs and the ablations with their
numbers.

    python scripts/docs_check.py         # a line for every mismatch; exit code 1 if there is one
    python scripts/docs_check.py --fill  # writes the packs' values into the pages

In README.md and docs/*.md, outside code blocks, a quotation is

    <!-- pack embedded-v2: accuracy.4.in-distribution.ecology.estimate 100 .1f -->87.2<!-- /pack -->

that is: a pack, the keys on the way to a value of its summary.json, and, where they are wanted, a
factor and a format of Python's. Lines between the lines ``<!-- excerpt embedded-v2 -->`` and
``<!-- /excerpt -->`` are the pack's excerpt.md.
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
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from symbiont_ecology.extensions.study import ablation, pack
from symbiont_ecology.errors import EcologyError

CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
EXCERPT_MARK = re.compile(r"^<!-- /?excerpt\b.*", re.MULTILINE)
EXCERPT = re.compile(
    r"^(<!-- excerpt (\S+) -->\n)((?:(?!<!-- /?excerpt).)*)^(<!-- /excerpt -->)$",
    re.DOTALL | re.MULTILINE,
)
MARK = re.compile(r"<!-- pack (\S+): ([^>]+?) -->(.*?)<!-- /pack -->")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
SOURCES = {pack.PROTOCOL, pack.OUTCOMES, pack.TUNED}
FORM = "<!-- pack NAME: KEYS [[FACTOR] FORMAT] -->VALUE<!-- /pack -->"
ABLATIONS = "ablations*.md"
EXCERPT_FORM = "<!-- excerpt NAME --> and <!-- /excerpt --> in lines of their own"


def check_packs(home: Path) -> Iterator[str]:
    """Makes every pack again elsewhere, from its outcomes, and yields what differs."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for folder in sorted(path for path in home.iterdir() if path.is_dir()):
            again = Path(elsewhere) / folder.name
            shutil.copytree(folder, again, ignore=lambda _, names: set(names) - SOURCES)
            try:
                pack.rebuild(again)
            except EcologyError as error:
                yield f"{folder}: expected {', '.join(sorted(SOURCES))}, found damage: {error}"
                continue
            for name in (pack.SUMMARY, pack.PAGE, pack.EXCERPT):
                yield from differences(folder / name, again / name)
            yield from check_files(folder, again)
        pack.write_index(Path(elsewhere))
        yield from differences(home / pack.INDEX, Path(elsewhere) / pack.INDEX)


def differences(path: Path, again: Path) -> Iterator[str]:
    """The first line of a file that is not as it was made again, if there is one."""
    texts = [
        file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        for file in (again, path)
    ]
    for number, (expected, line) in enumerate(zip_longest(*texts, fillvalue="the end"), start=1):
        if not is_same(expected, line):
            yield f"{path}:{number}: expected {expected.strip():.70}, found {line.strip():.70}"
            return


def is_same(expected: str, line: str) -> bool:
    """Whether two lines say the same: another processor adds up in another order, so numbers may
    differ in their last digits."""
    if NUMBER.sub("", expected) != NUMBER.sub("", line):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(line), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-9) for a, b in pairs)


def check_files(folder: Path, again: Path) -> Iterator[str]:
    """The outcomes must be as the manifest says, and so must the figures, which have to be those of
    the page.

    They are not compared with those made again: another version of matplotlib draws other bytes.
    """
    drawn, names = (sorted(path.name for path in place.glob("*.png")) for place in (again, folder))
    if drawn != names:
        text = ", ".join(names) or "none"
        yield f"{folder}: expected the figures {', '.join(drawn)}, found {text}"
    manifest = folder / pack.MANIFEST
    hashes = json.loads(manifest.read_text(encoding="utf-8"))["files"] if manifest.exists() else {}
    for name in (*sorted(SOURCES), *names):
        listed, digest = hashes.get(name), hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if listed != digest:
            text = listed or "none"
            yield f"{manifest}: expected the hash {digest:.16} for {name}, found {text:.16}"


def check_ablations(page: Path) -> Iterator[str]:
    """Makes the page of the ablations again elsewhere, from its numbers, and yields what
    differs."""
    numbers = ablation.results_file(page)
    if not numbers.exists():
        yield f"{page}: expected its numbers in {numbers}, found none: symbiont ablate makes both"
        return
    with tempfile.TemporaryDirectory() as elsewhere:
        again = Path(elsewhere) / page.name
        results = ablation.AblationResults.model_validate_json(numbers.read_text(encoding="utf-8"))
        again.write_text(ablation.render_ablation(results), encoding="utf-8")
        yield from differences(page, again)


def check_excerpts(page: Path, home: Path) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the excerpts of a page, each with the page as far as it can be
    mended."""
    text = page.read_text(encoding="utf-8")
    prose = CODE.sub(
        lambda code: re.sub(r"[^\n]", " ", code[0]), text
    )  # where everything keeps its place
    blocks = list(EXCERPT.finditer(prose))
    paired = {block.start(mark) for block in blocks for mark in (1, 4)}
    for mark in EXCERPT_MARK.finditer(prose):
        if mark.start() not in paired:
            number = prose.count("\n", 0, mark.start()) + 1
            yield f"{page}:{number}: expected {EXCERPT_FORM}, found {mark[0]:.70}", text
    for block in reversed(blocks):  # from the end, so that places hold
        source = home / block[2] / pack.EXCERPT
        if not source.exists():
            yield f"{page}: expected an excerpt of {block[2]}, found no {source}", text
        elif (expected := source.read_text(encoding="utf-8")) != text[
            block.start(3) : block.end(3)
        ]:
            text = text[: block.start(3)] + expected + text[block.end(3) :]
            yield f"{page}: expected the excerpt that is in {source}, found another", text


def check_page(page: Path, home: Path, text: list[str]) -> Iterator[str]:
    """Yields the quotations that are not what the packs say; ``text`` gets the page as it should
    be."""
    is_code = False
    for number, line in enumerate(
        page.read_text(encoding="utf-8").splitlines(keepends=True), start=1
    ):
        is_code ^= line.lstrip().startswith("```")
        marks = [] if is_code else list(MARK.finditer(line))
        if not is_code and line.count("<!-- pack ") + line.count("<!-- /pack ") != 2 * len(marks):
            yield f"{page}:{number}: expected {FORM} in one line, found {line.strip():.70}"
        for mark in reversed(marks):  # from the end, so that places hold
            try:
                expected = quoted(home / mark[1] / pack.SUMMARY, mark[2])
            except (LookupError, ValueError, TypeError) as error:
                place = f"{page}:{number}"
                yield f"{place}: expected a value of {mark[1]}: {mark[2]}, found none ({error})"
                continue
            if expected != mark[3]:
                was = mark[3] or "nothing"
                yield f"{page}:{number}: expected {expected}, found {was} ({mark[1]}: {mark[2]})"
            line = line[: mark.start(3)] + expected + line[mark.end(3) :]
        text.append(line)


def quoted(summary: Path, words: str) -> str:
    """The value that a mark asks for, as it is to be written."""
    if not summary.exists():
        raise LookupError(f"there is no {summary}")
    keys, *rest = words.split()
    value = find(json.loads(summary.read_text(encoding="utf-8")), keys.split("."))
    if isinstance(value, dict | list):
        raise ValueError(f"more keys are wanted: {', '.join(map(str, value))}")
    value = value * float(rest[0]) if len(rest) == 2 else value
    return format(value, rest[-1] if rest else "")


def find(data: Any, keys: list[str]) -> Any:
    """The value at the end of the keys; a key may itself have dots, as the budget 0.25 has."""
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
    """Checks packs and pages; exit code 1 where anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--fill", action="store_true", help="write the packs' values into the pages"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    home, wrong = arguments.root / "docs" / "paper_packs", list[str]()
    if home.is_dir():
        wrong += check_packs(home)
    else:
        print(f"no packs in {home} yet: nothing to make again")
    for page in sorted((arguments.root / "docs").glob(ABLATIONS)):
        wrong += check_ablations(page)
    for page in sorted([arguments.root / "README.md", *(arguments.root / "docs").glob("*.md")]):
        for line, mended in check_excerpts(page, home):
            wrong += [] if arguments.fill and mended != page.read_text(encoding="utf-8") else [line]
            if arguments.fill:
                page.write_text(mended, encoding="utf-8")
        text: list[str] = []
        mismatches = list(check_page(page, home, text))
        if mismatches and arguments.fill:
            page.write_text("".join(text), encoding="utf-8")
            mismatches = list(check_page(page, home, []))
        wrong += mismatches
    print(*wrong, sep="\n", end="\n" * bool(wrong), file=sys.stderr)
    print(f"{len(wrong)} mismatches")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

"""Measures the shape of the package: size by folder, ambiguous names, untyped code, long lines.

    python scripts/shape.py            # a table
    python scripts/shape.py --where    # also says where each finding is

Lines of code leave out blank lines, comments and docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "symbiont_ecology"
LONGEST_LINE = 100
MOST_POSITIONAL = 5
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def body_of(node: ast.AST) -> list[ast.stmt]:
    """The statements of a module, class, function or block."""
    body = getattr(node, "body", None)
    return body if isinstance(body, list) else []


def code_lines(source: str) -> int:
    """Lines that hold code: no blank line, no comment, no docstring."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        for child in body_of(node)
        if isinstance(child, ast.Expr)
        and isinstance(child.value, ast.Constant)
        and isinstance(child.value.value, str)
        for line in range(child.lineno, (child.end_lineno or child.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def sizes(package: Path = PACKAGE) -> dict[str, int]:
    """Lines of code by folder; modules at the top are one row."""
    counts: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).parts
        counts[parts[0] if len(parts) > 1 else "top level"] += code_lines(path.read_text("utf-8"))
    return dict(counts.most_common())


def public_names(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions, constants and type names that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            parts = [
                part
                for target in node.targets
                for part in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def ambiguous_names(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Public names that two modules define, each in its own way."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in dict.fromkeys(public_names(ast.parse(path.read_text("utf-8")))):
            homes[name].append(path.relative_to(package).as_posix())
    return {name: places for name, places in sorted(homes.items()) if len(places) > 1}


def findings(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Places by what is found there."""
    places: dict[str, list[str]] = {
        "string-keyed look-ups in analysis": [],
        "uses of Any": [],
        f"calls with more than {MOST_POSITIONAL} positional arguments": [],
        f"lines over {LONGEST_LINE} characters": [],
    }
    keyed, untyped, positional, long = places.values()
    for path in sorted(package.rglob("*.py")):
        source, place = path.read_text("utf-8"), path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(source)):
            spot = f"{place}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Subscript(slice=ast.Constant(value=str())) if place.startswith(
                    "analysis/"
                ):
                    keyed.append(spot)
                case ast.Name(id="Any"):
                    untyped.append(spot)
                case ast.Call(args=args) if len(args) > MOST_POSITIONAL:
                    positional.append(spot)
        for number, line in enumerate(source.splitlines(), 1):
            if len(line) > LONGEST_LINE:
                long.append(f"{place}:{number}")
    return places


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--where", action="store_true", help="say where each finding is")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="another source folder")
    arguments = parser.parse_args()
    by_folder = sizes(arguments.package)
    for folder, count in by_folder.items():
        print(f"{count:6,d}  {folder}")
    print(f"{sum(by_folder.values()):6,d}  all lines of code\n")
    names = ambiguous_names(arguments.package)
    print(f"{len(names):6,d}  public names with two meanings")
    if arguments.where:
        for name, places in names.items():
            print(f"          {name}: {', '.join(places)}")
    for title, places in findings(arguments.package).items():
        print(f"{len(places):6,d}  {title}")
        if arguments.where:
            for spot in places:
                print(f"          {spot}")


if __name__ == "__main__":
    main()

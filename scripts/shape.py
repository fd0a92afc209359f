"""Measure the shape of the sources: lines and tokens by folder, and what the style forbids.

    python scripts/shape.py            # a table
    python scripts/shape.py --where    # also the place of every finding

Lines of code leave out blank lines, comments and docstrings. Tokens leave out the same.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "symbiont_ecology"
TOOLS = ("benchmarks", "scripts", "examples")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
INDIRECT = re.compile(r"(Whether|What|Who|Which|How|Where|When|Why)\b|As ``")
DIALECT = re.compile(r"(MOST|LEAST|LONGEST|LARGEST|FEWEST)(_|$)")


@dataclass(frozen=True)
class Shape:
    """Size of some files: lines of code, and tokens in them."""

    lines: int = 0
    tokens: int = 0

    def __add__(self, other: Shape) -> Shape:
        return Shape(self.lines + other.lines, self.tokens + other.tokens)

    @property
    def tokens_per_line(self) -> float:
        """Mean number of tokens of a line of code."""
        return self.tokens / max(self.lines, 1)


def shape_of(source: str) -> Shape:
    """Return the size of a module without blank lines, comments and docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        for child in _body(node)
        if isinstance(child, ast.Expr)
        and isinstance(child.value, ast.Constant)
        and isinstance(child.value.value, str)
        for line in range(child.lineno, (child.end_lineno or child.lineno) + 1)
    }
    lines = set[int]()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT and token.start[0] not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
            tokens += 1
    return Shape(len(lines), tokens)


def _body(node: ast.AST) -> list[ast.stmt]:
    body = getattr(node, "body", None)
    return body if isinstance(body, list) else []


def code_lines(source: str) -> int:
    """Return the number of lines of code of a module."""
    return shape_of(source).lines


def shapes(root: Path = ROOT) -> dict[str, Shape]:
    """Return the size of every folder of the core (its modules at the top are ``top level``), of
    every ``extensions/<name>``, of ``tests``, and of ``benchmarks+scripts+examples``."""
    sizes: dict[str, Shape] = defaultdict(Shape)
    package = root / "src" / "symbiont_ecology"
    for path in sorted(package.rglob("*.py")):
        *folders, _ = path.relative_to(package).parts
        depth = 2 if folders[:1] == ["extensions"] else 1
        name = "/".join(folders[:depth]) or "top level"
        sizes[name] += shape_of(path.read_text(encoding="utf-8"))
    for path in sorted((root / "tests").rglob("*.py")):
        sizes["tests"] += shape_of(path.read_text(encoding="utf-8"))
    for path in sorted(path for tool in TOOLS for path in (root / tool).rglob("*.py")):
        sizes["+".join(TOOLS)] += shape_of(path.read_text(encoding="utf-8"))
    return dict(sizes)


def indirect_docstrings(package: Path = PACKAGE) -> list[str]:
    """Return the places of docstrings that are an indirect question, or ``As …``."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    return [
        place
        for place, node in _nodes(package)
        if isinstance(node, kinds) and INDIRECT.match(ast.get_docstring(node) or "")
    ]


def dialect_constants(package: Path = PACKAGE) -> list[str]:
    """Return the places of constants that are called MOST, LEAST, LONGEST, LARGEST or FEWEST."""
    return [
        f"{place} {node.id}"
        for place, node in _nodes(package)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and DIALECT.match(node.id)
    ]


def arrows_to_extensions(package: Path = PACKAGE) -> list[str]:
    """Return the imports by which a module of the core knows an extension."""
    home = re.compile(rf"{package.name}\.extensions\b")
    return [
        place
        for place, node in _nodes(package)
        if not place.startswith("extensions/") and any(map(home.match, _imported(node)))
    ]


def _imported(node: ast.AST) -> list[str]:
    """Full names of the modules that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _nodes(package: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module, with its place."""
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{name}:{getattr(node, 'lineno', 1)}", node


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--where", action="store_true", help="also the place of every finding")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args()
    package = options.root / "src" / "symbiont_ecology"
    sizes = shapes(options.root)
    groups: dict[str, Shape] = defaultdict(Shape)
    for name, size in sorted(sizes.items(), key=lambda entry: -entry[1].lines):
        print(f"{size.lines:7,d} lines {size.tokens_per_line:6.2f} tokens per line  {name}")
        group = name.split("/")[0]
        groups[group if group in ("tests", "+".join(TOOLS), "extensions") else "core"] += size
    print()
    for name, size in groups.items():
        print(f"{size.lines:7,d} lines {size.tokens_per_line:6.2f} tokens per line  {name}, all")
    print()
    for title, places in {
        "docstrings that are indirect questions": indirect_docstrings(package),
        "constants called MOST, LEAST, LONGEST, LARGEST or FEWEST": dialect_constants(package),
        "imports from the core to extensions": arrows_to_extensions(package),
    }.items():
        print(f"{len(places):7,d} {title}")
        print("".join(f"          {place}\n" for place in places) if options.where else "", end="")


if __name__ == "__main__":
    main()

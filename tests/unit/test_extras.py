"""Whoever lacks a package is told which extra brings it, and every extra that is named exists."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import symbiont_ecology
from symbiont_ecology.base.errors import MissingExtraError
from symbiont_ecology.extensions.serve.cli import serve
from symbiont_ecology.run.trackers import trackers

ROOT = Path(symbiont_ecology.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
FOR_WORK = ("dev", "docs", "mutants", "peers", "clients", "trackers")
"""Extras of tests, pages and comparisons, and one that is others together: no file of the package
asks for them."""
HOMES = {"extensions/serve/": "serve", "extensions/ray/": "ray", "experiments/job_pool.py": "ray"}
"""Files that are only imported after a check elsewhere."""
IMPORTED_AS = {"rouge-score": "rouge_score", "reasoning-gym": "reasoning_gym"}


def modules(extra: str) -> set[str]:
    """What the packages of an extra are imported as."""
    names = [re.split(r"[<>=;\[ ]", package)[0] for package in EXTRAS[extra]]
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def named_extras() -> Iterator[str]:
    """Extras that errors of the package name."""
    for path in ROOT.rglob("*.py"):
        named = re.findall(r"MissingExtraError\(([^)]+)\)", path.read_text("utf-8"))
        yield from (match for words in named for match in re.findall(r'"([\w-]+)"$', words))


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - set(FOR_WORK)))
def test_every_extra_is_named_by_an_error(extra: str) -> None:
    names = {*named_extras(), *trackers.names(), "reasoning-gym"}
    assert extra in names


def test_every_optional_import_is_inside_a_function_or_behind_a_check() -> None:
    optional = set().union(*(modules(extra) for extra in EXTRAS))
    core = {
        re.split(r"[<>=;\[ ]", package)[0].replace("-", "_")
        for package in PROJECT["project"]["dependencies"]
    }
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).as_posix().startswith(tuple(HOMES)):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & (optional - core), path


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_serving_without_its_packages_names_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtraError, match=rf"{package}: pip install 'symbiont-ecology\[serve\]'"
    ):
        serve("service", out=tmp_path)

"""The published shape of the package, read from its source: import order, bans, sizes,
docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import symbiont_ecology

ROOT = Path(symbiont_ecology.__file__).parent
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "adapters": {"base"},
    "tasks": {"base"},
    "model": {"base", "adapters"},
    "ecology": {"base", "adapters", "tasks"},
    "run": {"base", "adapters", "tasks", "model", "ecology"},
    "evaluate": {"base", "adapters", "tasks", "model", "ecology", "run"},
    "cli": {"base", "adapters", "tasks", "model", "ecology", "run", "evaluate"},
}
"""Packages of the core that a package may import. An extension may import all of them."""
NEIGHBOURS: dict[str, set[str]] = {
    "engines": {"serve"},  # a server writes the rows of a service
    "evoscope": {"study"},  # ``report`` on the folder of a suite makes its pack
    "methods": {"evoscope"},  # figures of their runs
    "serve": {"evoscope"},  # the page of a run that serves
    "study": {"evoscope"},  # histories and colours
}
"""Extensions that an extension may import."""
LATE = {("run/run.py", "evaluate")}
"""A run offers what is built on it: inside a function."""
HEAVY = {"torch", "transformers", "peft", "accelerate"}
HEAVY_HOMES = ("model", "extensions")
LAZY_HOMES = ("run/executors.py", "run/run.py", "cli/", "__init__.py")
"""Where a heavy package, or the kernel, may be imported inside a function."""
MAX_FILE_LINES, MAX_FUNCTION_LINES = 600, 70
FILES = sorted(ROOT.rglob("*.py"))
every_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, node: ast.AST) -> str:
    """``file:line``, as an editor opens it."""
    return f"{path}:{getattr(node, 'lineno', 1)}"


def package_of(path: Path) -> str:
    """Return the package of the core, or the extension (``extensions/serve``), of a file; empty for
    the files beside them."""
    *folders, _ = path.relative_to(ROOT).parts
    return "/".join(folders[:2] if folders[:1] == ["extensions"] else folders[:1])


def imports(path: Path) -> Iterator[tuple[ast.stmt, str, bool]]:
    """``(statement, full name of the module, whether it runs when the file is imported)``."""

    def walk(node: ast.AST, runs: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((child, alias.name, runs) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{place(path, child)}: relative import"
                yield child, str(child.module), runs
                # ``from package import module`` imports the module too.
                yield from ((child, f"{child.module}.{alias.name}", runs) for alias in child.names)
            elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            else:
                is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, runs and not is_function)

    return walk(tree_of(path), True)


def may_import(importer: str, name: str) -> bool:
    """Return true if a package may import a module."""
    parts = name.split(".")[1:3]
    if not name.startswith("symbiont_ecology.") or parts[0] not in {*ALLOWED, "extensions"}:
        return True
    if importer.startswith("extensions/"):
        own = importer.removeprefix("extensions/")
        other = parts[1] if parts[0] == "extensions" and len(parts) > 1 else own
        return parts[0] in ALLOWED or other == own or other in NEIGHBOURS.get(own, set())
    return parts[0] == importer or parts[0] in ALLOWED.get(importer, set())


def test_every_package_has_its_place_in_the_order() -> None:
    found = {package_of(path) for path in FILES}
    found = {name for name in found if not name.startswith("extensions")} - {""}
    assert found == set(ALLOWED), "give it a place in ALLOWED and on the architecture page"


@every_file
def test_a_package_imports_only_what_it_may(path: Path) -> None:
    where, package = path.relative_to(ROOT).as_posix(), package_of(path)
    wrong = [
        f"{place(path, node)}: {package} must not import {name}"
        for node, name, runs in imports(path)
        if package and not may_import(package, name)
        if runs or (where, ".".join(name.split(".")[1:2])) not in LATE
    ]
    assert not wrong, "\n".join(wrong)


@every_file
def test_torch_is_imported_only_where_models_are_run(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    if package_of(path).split("/")[0] in HEAVY_HOMES:
        return
    is_lazy_home = where.startswith(LAZY_HOMES)
    wrong = [
        f"{place(path, node)}: {name}"
        for node, name, runs in imports(path)
        if (name.split(".")[0] in HEAVY or name.startswith("symbiont_ecology.model.kernel"))
        and (runs or not is_lazy_home)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "module", ["symbiont_ecology", "symbiont_ecology.run.config", "symbiont_ecology.run.run"]
)
def test_importing_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {sorted(HEAVY)} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def forbidden(node: ast.AST) -> str:
    """What a node does that no file may do, or an empty string."""
    match node:
        case ast.Call(func=ast.Name(id="eval" | "exec" | "hash" | "__import__" as name)):
            return f"{name}()"
        case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save" as name):
            return f"torch.{name}"
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv" as name):
            return f"os.{name}"
        case ast.Attribute(
            value=ast.Attribute(value=ast.Name(id="np"), attr="random"), attr=attribute
        ):
            allowed = ("Generator", "PCG64", "default_rng")
            return "" if attribute in allowed else f"np.random.{attribute}"
        case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns" as name):
            return f"time.{name}"
        case (
            ast.ExceptHandler(type=None)
            | ast.ExceptHandler(type=ast.Name(id="Exception" | "BaseException"))
        ):
            return "catches everything"
        case ast.Call(func=ast.Name(id="print")):
            return "print()"
    return ""


PRINTS = re.compile(r"(extensions/\w+/)?cli")
"""Programs that talk to a terminal."""
CATCHES = {
    ("base/fence.py", "__call__"),
    ("base/fence.py", "_inside"),
    ("base/fence.py", "blamed"),
    ("extensions/hosts/gguf_files.py", "_read"),
    ("base/registry.py", "load_plugin"),
    ("run/trackers.py", "_follower"),
}
"""Functions that run foreign code, which may fail in any way: these may catch everything."""


def innermost(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node, with the name of the function that it is in."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            inside = getattr(child, "name", "") if is_function else function
            yield child, inside
            yield from walk(child, inside)

    return walk(tree, "")


@every_file
def test_no_file_evaluates_text_pickles_or_reads_the_environment(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    wrong = [
        f"{place(path, node)}: {what}"
        for node, function in innermost(tree_of(path))
        if (what := forbidden(node))
        and not (what == "print()" and PRINTS.match(where))
        and not (what == "catches everything" and (where, function) in CATCHES)
    ]
    modules = {"pickle", "marshal", "shelve", "dill", "joblib", "random"}
    wrong += [
        f"{place(path, node)}: {name}"
        for node, name, _ in imports(path)
        if name.split(".")[0] in modules
    ]
    assert not wrong, "\n".join(wrong)


@every_file
def test_nothing_is_drawn_when_a_file_is_imported(path: Path) -> None:
    wrong = []
    for statement in tree_of(path).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and (
                "random" in ast.unparse(node.func) or ast.unparse(node.func) == "Draw"
            ):
                wrong.append(place(path, node))
    assert not wrong, "\n".join(wrong)


@every_file
def test_files_and_functions_stay_readable_in_one_go(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES, f"{path}: {lines} lines, at most {MAX_FILE_LINES}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, (
                f"{place(path, node)}: {node.name} has {length} lines"
            )


def public(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Public classes and functions of a module."""
    for node in body:
        if isinstance(
            node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and not node.name.startswith("_"):
            yield node.name, node


@every_file
def test_everything_public_has_a_docstring(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), f"{path}: the module has none"
    wrong = [
        f"{place(path, node)}: {name}"
        for name, node in public(tree.body)
        if not ast.get_docstring(node)  # type: ignore[arg-type]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_source_is_a_package_with_a_docstring() -> None:
    for folder in {path.parent for path in FILES}:
        assert (folder / "__init__.py").is_file(), folder
        assert ast.get_docstring(tree_of(folder / "__init__.py")), folder


# The tests test themselves: each rule finds what it is there for.

BAD: dict[Callable[[Path], None], tuple[str, ...]] = {
    test_a_package_imports_only_what_it_may: (
        "from symbiont_ecology.model import kernel",
        "from symbiont_ecology.extensions import serve",
        "def late():\n    import symbiont_ecology.cli",
    ),
    test_torch_is_imported_only_where_models_are_run: (
        "import torch.nn",
        "def late():\n    from transformers import AutoModel",
    ),
    test_no_file_evaluates_text_pickles_or_reads_the_environment: (
        "import pickle",
        "torch.load('x')",
        "os.environ['X']",
        "eval('1')",
        "from random import choice",
        "np.random.seed(0)",
        "try:\n    1\nexcept Exception:\n    2",
    ),
    test_nothing_is_drawn_when_a_file_is_imported: ("X = np.random.default_rng(0)",),
    test_files_and_functions_stay_readable_in_one_go: (
        "def long():\n" + "    1\n" * 80,
        "\n" * 700,
    ),
    test_everything_public_has_a_docstring: ("'''Doc.'''\nclass Bare:\n    pass",),
}


@pytest.mark.parametrize(
    ("rule", "source"), [(rule, source) for rule, sources in BAD.items() for source in sources]
)
def test_a_rule_finds_what_breaks_it(
    rule: Callable[[Path], None], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "tasks").mkdir()
    path = tmp_path / "tasks" / "bad.py"
    path.write_text(source)
    with pytest.raises(AssertionError):
        rule(path)

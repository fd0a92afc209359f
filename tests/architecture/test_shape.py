"""Sizes and style of the sources, as ``scripts/shape.py`` measures them."""

from __future__ import annotations

from pathlib import Path

from shape import (
    Shape,
    arrows_to_extensions,
    code_lines,
    dialect_constants,
    indirect_docstrings,
    shape_of,
    shapes,
)

BUDGETS = {
    "adapters": 840,
    "base": 1665,
    "benchmarks+scripts+examples": 4070,
    "cli": 890,
    "ecology": 2770,
    "evaluate": 810,
    "extensions/bridges": 440,
    "extensions/company": 730,
    "extensions/data": 670,
    "extensions/engines": 400,
    "extensions/evoscope": 1800,
    "extensions/hosts": 1010,
    "extensions/methods": 1190,
    "extensions/native": 750,
    "extensions/ray": 310,
    "extensions/serve": 2450,
    "extensions/study": 3350,
    "extensions/worlds": 690,
    "model": 2930,
    "run": 2260,
    "tasks": 2120,
    "tests": 27420,
    "top level": 40,
}
"""Lines of code of each folder. Raising one takes a sentence in the change log."""
MODULE = '''"""Whether it is."""

from demo import extensions  # a comment
from demo.extensions.serve import app

MOST_USERS, A_LEAST = 3, (
    1
)


def seen(who):
    """Return what is seen."""
    return "MOST"
'''


def test_lines_and_tokens_leave_out_comments_and_docstrings() -> None:
    assert shape_of(MODULE) == Shape(lines=7, tokens=29)
    assert code_lines('"""Text."""\n\n# nothing\n') == 0


def test_folders_and_what_the_style_forbids_are_found(tmp_path: Path) -> None:
    package = tmp_path / "src" / "symbiont_ecology"
    texts = {"run/one.py": MODULE.replace("demo", "symbiont_ecology"), "extensions/serve/b.py": ""}
    for name, text in {**texts, "top.py": "x = 1", "extensions/serve/deep/c.py": "x = 1"}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    assert {name: size.lines for name, size in shapes(tmp_path).items()} == {
        "extensions/serve": 1,
        "run": 7,
        "top level": 1,
    }
    assert indirect_docstrings(package) == ["run/one.py:1"]
    assert dialect_constants(package) == ["run/one.py:6 MOST_USERS"]
    assert arrows_to_extensions(package) == ["run/one.py:3", "run/one.py:4"]


def test_the_core_imports_no_extension() -> None:
    assert arrows_to_extensions() == []


def test_no_folder_is_larger_than_its_budget() -> None:
    sizes = {name: shape.lines for name, shape in shapes().items() if shape.lines}
    assert sizes.keys() == BUDGETS.keys()
    assert [name for name, lines in sizes.items() if lines > BUDGETS[name]] == []


def test_docstrings_say_what_is_returned_and_constants_have_the_usual_names() -> None:
    assert len(indirect_docstrings()) <= 40
    assert dialect_constants() == []

"""The notebooks of docs/notebooks: their cells run, and what is stored in them is small and tells
of no machine."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST_NOTEBOOK = 400_000
"""Bytes."""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def script() -> ModuleType:
    """scripts/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts/notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = script()


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: NotebookNode) -> list[str]:
    """What a cell has put out, without the numbers in it."""
    return [
        ", ".join([output.output_type, *sorted(output.get("data", {}))]) for output in cell.outputs
    ]


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_run", "many_users"]


@every_notebook
def test_every_cell_runs_and_puts_out_what_is_stored(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    again = SCRIPT.executed(path, tmp_path)
    for cell, other in zip(code_cells(stored), code_cells(again), strict=True):
        assert not any(output.output_type == "error" for output in other.outputs)
        assert not any(output.get("name") == "stderr" for output in other.outputs)
        assert kinds(cell) == kinds(other), cell.source


@every_notebook
def test_stored_outputs_are_small_and_tell_of_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size <= LARGEST_NOTEBOOK
    sizes = SCRIPT.pictures(notebook)
    assert sizes
    assert max(sizes) <= SCRIPT.LARGEST_PICTURE
    assert notebook.metadata == {"kernelspec": SCRIPT.KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(code_cells(notebook), 1):
        assert cell.metadata == {}
        assert cell.execution_count == number
        for output in cell.outputs:
            assert output.output_type != "error"
            texts = [output.get("text", "")]
            texts += [text for form, text in output.get("data", {}).items() if form[:4] == "text"]
            assert not re.search(
                r"(?<![\w<.])/(home|root|tmp|Users|work|usr|opt)\b", "".join(texts)
            )

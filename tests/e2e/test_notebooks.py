"""The notebooks of docs/notebooks: their cells run, and what is stored in them is small and tells
of no machine."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from notebooks import HOME, KERNEL, executed

NOTEBOOKS = sorted(HOME.glob("*.ipynb"))
MAX_NOTEBOOK = 400_000
"""Bytes."""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: NotebookNode) -> list[str]:
    """What a cell has put out, without the numbers in it."""
    return [
        ", ".join([output.output_type, *sorted(output.get("data", {}))]) for output in cell.outputs
    ]


@every_notebook
def test_every_cell_runs_and_puts_out_what_is_stored(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    again = executed(path, tmp_path)
    for cell, other in zip(code_cells(stored), code_cells(again), strict=True):
        assert not any(output.output_type == "error" for output in other.outputs)
        assert not any(output.get("name") == "stderr" for output in other.outputs)
        assert kinds(cell) == kinds(other), cell.source


@every_notebook
def test_stored_outputs_are_small_and_tell_of_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size <= MAX_NOTEBOOK
    assert notebook.metadata == {"kernelspec": KERNEL, "language_info": {"name": "python"}}
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

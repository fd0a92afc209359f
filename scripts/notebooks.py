"""Run the notebooks of docs/notebooks anew and keep their outputs: ``make notebooks``.

A notebook runs in an empty folder that is thrown away. What changes from machine to machine is
taken out of it, and pictures get fewer colours.
"""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

HOME = Path(__file__).parents[1] / "docs" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(path: Path, folder: Path) -> NotebookNode:
    """Return a notebook with the outputs that it has in a folder, and nothing of this machine.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=300,
        kernel_name=KERNEL["name"],
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],  # on this machine alone: no advice on encryption
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(name="python")
    )
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = NotebookNode()
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return notebook


def _smaller(picture: str) -> str:
    """The same PNG with at most 128 colours."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(128).save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    for notebook_file in sorted(HOME.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as place:
            nbformat.write(executed(notebook_file, Path(place)), notebook_file)
        print(f"{notebook_file.name}: {notebook_file.stat().st_size / 1000:.0f} kB")

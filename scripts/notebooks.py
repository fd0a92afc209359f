"""Runs the notebooks of docs/notebooks anew and keeps their outputs.

    python scripts/notebooks.py                # all of them
    python scripts/notebooks.py first_run      # one

A notebook runs in an empty folder that is thrown away. What changes from machine to machine is
taken out of it: times, versions, counters.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

HOME = Path(__file__).parents[1] / "docs" / "notebooks"
LONGEST = 300
"""Seconds that a cell may take."""
LARGEST_PICTURE = 60_000
"""Bytes of a picture that is kept in a notebook."""
COLOURS_KEPT = 128
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(path: Path, folder: Path) -> NotebookNode:
    """A notebook with the outputs that it has in a folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=LONGEST,
        kernel_name=KERNEL["name"],
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=40"],  # on this machine alone: no advice on encryption
        resources={"metadata": {"path": str(folder)}},
    )
    return cleaned(client.execute())


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what tells of a machine, and with smaller pictures."""
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


def pictures(notebook: NotebookNode) -> list[int]:
    """Bytes of every picture."""
    data = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    return [len(output["image/png"]) * 3 // 4 for output in data if "image/png" in output]


def _smaller(picture: str) -> str:
    """The same PNG with at most so many colours."""
    image, buffer = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"), io.BytesIO()
    image.quantize(COLOURS_KEPT).save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(path.stem for path in HOME.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    for name in parser.parse_args().names or known:
        path, began = HOME / f"{name}.ipynb", time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(notebook, path)
        seconds, sizes = time.monotonic() - began, pictures(notebook)
        print(
            f"{path.name}: {seconds:.0f} s, {len(sizes)} pictures, the largest "
            f"{max(sizes, default=0) / 1000:.0f} kB, {path.stat().st_size / 1000:.0f} kB in all"
        )


if __name__ == "__main__":
    main()

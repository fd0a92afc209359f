"""``fetch``: the copy of a run comes here, from the address that its checkpoints were sent to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from symbiont_ecology.cli.console import command_line, progress_bar
from symbiont_ecology.cli.options import argument, option


def fetch_command(
    address: Annotated[str, argument("Where it is, such as s3://bucket/run.", "ADDRESS")],
    out: Annotated[Path, option("A new folder for it.", "--out")],
) -> None:
    """Fetch the copy of a run that run.mirror made: its last checkpoint that was sent whole."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from symbiont_ecology.engine.mirror import fetch_copy

    with progress_bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        files = bar.add_task("files")
        fetch_copy(
            address, out, passed=lambda done, total: bar.update(files, completed=done, total=total)
        )
    goes_on, looks = (command_line(word, out) for word in ("resume", "show"))
    print(f"next: {goes_on}, or {looks}", file=sys.stderr)

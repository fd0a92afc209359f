"""``verify``: is the folder of a run whole? And can it go back to what is?"""

from __future__ import annotations

from typing import Annotated

from rich.markup import escape

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.cli.console import command_line, print_table, table
from symbiont_ecology.cli.options import RunFolder, option


def verify(
    folder: RunFolder,
    repair: Annotated[
        bool,
        option("Go back to the checkpoint before the last one, if that is damaged.", "--repair"),
    ] = False,
) -> None:
    """Check every file of a run: checksums of the checkpoints, the log, all weights. Exit code 1
    if something is damaged."""
    from symbiont_ecology.ecology.state import STATE_FILE
    from symbiont_ecology.run.verification import go_back, parts_of

    parts = parts_of(folder)
    if repair and parts[STATE_FILE]:
        print(go_back(folder))
        parts = parts_of(folder)
    rows, damaged = table("part", ""), 0
    for name, fault in parts.items():
        damaged += bool(fault)
        said = f"DAMAGED: {fault}".replace(f"{folder}/", "") if fault else "whole"
        rows.add_row(*map(escape, (name, said)))
    print_table(rows)
    if damaged:
        going_back = command_line("verify", folder, "--repair")
        advice = f": {going_back} goes back to the checkpoint before" if parts[STATE_FILE] else ""
        raise RunError(f"{damaged} parts of {folder} are damaged{advice}")
    print(f"{folder} is whole; go on with: {command_line('resume', folder)}")

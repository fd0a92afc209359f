"""``verify``: is the folder of a run whole? And can it be mended?"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from rich.markup import escape

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.cli.console import command_line, print_table, table
from symbiont_ecology.cli.options import RunFolder, option


def verify(
    folder: RunFolder,
    repair: Annotated[bool, option("Mend what can be mended.", "--repair")] = False,
) -> None:
    """Check every file of a run: checksums of the checkpoints, the log, all weights. Exit code 1
    if something is damaged."""
    from symbiont_ecology.base.files import is_writable
    from symbiont_ecology.run import verification
    from symbiont_ecology.run.open_run import locked

    next(verification.parts_of(folder))  # raises where there is no run
    with locked(folder) if repair or is_writable(folder) else nullcontext():
        damaged = _tell(folder)
        if repair and damaged:
            print("\n".join(verification.repair(folder)))
            damaged = _tell(folder)
    if damaged:
        mending = command_line("verify", folder, "--repair")
        advice = "" if repair else f": {mending} mends what can be mended"
        raise RunError(f"{damaged} parts of {folder} are damaged{advice}")
    print(f"{folder} is whole; go on with: {command_line('resume', folder)}")


def _tell(folder: Path) -> int:
    """Print a line for every part of a run; return how many are damaged."""
    from symbiont_ecology.run.verification import parts_of

    rows, damaged = table("part", ""), 0
    for part in parts_of(folder):
        fault = part.fault.replace(f"{folder}/", "")
        damaged += bool(fault)
        rows.add_row(*map(escape, (part.name, f"DAMAGED: {fault}" if fault else "whole")))
    print_table(rows)
    return damaged

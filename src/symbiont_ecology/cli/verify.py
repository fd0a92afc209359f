"""``verify``: is the folder of a run whole? And can it be mended?"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.cli.console import command_line, print_table, table
from symbiont_ecology.cli.options import RunFolder, option
from symbiont_ecology.errors import RunError

if TYPE_CHECKING:
    from symbiont_ecology.engine.verification import Verification


def verify(
    folder: RunFolder,
    repair: Annotated[
        bool,
        option("Go back to the last whole checkpoint, and mend what can be mended.", "--repair"),
    ] = False,
) -> None:
    """Check every file of a run: checksums of the checkpoints, the log, all weights. Exit code 1
    if something is damaged."""
    from symbiont_ecology.engine.living import locked
    from symbiont_ecology.engine.verification import Verification, check_has_lived
    from symbiont_ecology.engine.verification import repair as mend
    from symbiont_ecology.files import is_writable

    check_has_lived(folder)
    with locked(folder) if repair or is_writable(folder) else nullcontext():
        verification = Verification.of(folder)
        _tell(verification)
        if repair and not verification.is_whole:
            print("\n".join(mend(verification)))
            verification = Verification.of(folder)
            _tell(verification)
    if not verification.is_whole:
        damaged = sum(not finding.is_whole for finding in verification.findings)
        mending = command_line("verify", folder, "--repair")
        advice = "" if repair else f": {mending} mends what can be mended"
        raise RunError(f"{damaged} parts of {folder} are damaged{advice}")
    print(f"{folder} is whole; go on with: {command_line('resume', folder)}")


def _tell(verification: Verification) -> None:
    """A line for every part of the run."""
    rows = table("part")
    rows.add_column("")
    rows.add_column("", overflow="fold")
    for finding in verification.findings:
        text = finding.said.replace(f"{verification.folder}/", "")
        rows.add_row(*map(escape, (finding.part, "whole" if finding.is_whole else "DAMAGED", text)))
    print_table(rows)

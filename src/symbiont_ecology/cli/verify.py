"""``verify``: is the folder of a run whole? And can it be mended?"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.cli.console import print_table, table, typed
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
        found = Verification.of(folder)
        _tell(found)
        if repair and not found.is_whole:
            print("\n".join(mend(found)))
            found = Verification.of(folder)
            _tell(found)
    if not found.is_whole:
        damaged = sum(not one.is_whole for one in found.findings)
        advice = "" if repair else f": {typed()} verify {folder} --repair mends what can be mended"
        raise RunError(f"{damaged} parts of {folder} are damaged{advice}")
    print(f"{folder} is whole; go on with: {typed()} resume {folder}")


def _tell(found: Verification) -> None:
    """A line for every part of the run."""
    made = table("part")
    made.add_column("")
    made.add_column("", overflow="fold")
    for one in found.findings:
        said = one.said.replace(f"{found.folder}/", "")
        made.add_row(*map(escape, (one.part, "whole" if one.is_whole else "DAMAGED", said)))
    print_table(made)

"""What the doors of this folder share: each is a command of ``symbiont`` under another name."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def open_door() -> None:
    """Does what the script stands for, and says on stderr which command that is.

    The script's own arguments may be those of the command, or those of the script of that name in
    the original ecology (docs/coming-from.md).
    """
    try:
        from original import translated
        from original_table import script_for
        from symbiont_ecology import cli
        from symbiont_ecology.errors import ConfigError
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: {error.name} is not installed: make setup, "
            f"then .venv/bin/python {sys.argv[0]} …"
        )
    script = script_for(Path(sys.argv[0]).stem, sys.argv[1:])
    try:
        command = translated(script, sys.argv[1:])
    except ConfigError as error:
        print(f"error: {error}; see docs/coming-from.md", file=sys.stderr)
        sys.exit(error.exit_code)
    rule = (
        ["learning_rule=hebbian"]
        if _is_hebbian() and script.command in ("run", "calibrate")
        else []
    )
    sys.argv = ["symbiont", *command.words, *rule]
    print(f"this is: {shlex.join(sys.argv)}", file=sys.stderr, flush=True)
    for note in command.notes:
        print(f"note: {note}", file=sys.stderr, flush=True)
    cli.main()


def _is_hebbian() -> bool:
    """Whether the original's variable for the learning rule asks for another one than usual."""
    return os.environ.get("EVOLORA_PLASTICITY", "").strip().lower() == "hebbian"

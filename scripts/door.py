"""What the doors of this folder share: each is a command of ``symbiont`` under another name."""

from __future__ import annotations

import shlex
import sys


def pass_on(*command: str) -> None:
    """Says on stderr which command the script stands for, and does it with the script's own
    arguments."""
    try:
        from symbiont_ecology import cli
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: {error.name} is not installed: make setup, "
            f"then .venv/bin/python {sys.argv[0]} …"
        )
    sys.argv = ["symbiont", *command, *sys.argv[1:]]
    print(f"this is: {shlex.join(sys.argv)}", file=sys.stderr, flush=True)
    cli.main()

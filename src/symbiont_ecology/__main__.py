"""The command line as a program: ``symbiont``, and ``python -m symbiont_ecology``."""

from __future__ import annotations

import sys

from symbiont_ecology.base.errors import INTERRUPTED


def launch() -> None:
    """Runs the command that was typed. Ctrl-C ends quietly, also while Python still imports."""
    try:
        from symbiont_ecology.cli import main
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    main()


if __name__ == "__main__":
    launch()

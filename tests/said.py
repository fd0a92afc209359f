"""What a command line left behind, for the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that an error is, behind notes and lines on what is being loaded."""
        lines = (line for line in self.err.strip().splitlines() if not line.endswith(" …"))
        (line,) = (line for line in lines if not line.startswith("note: "))
        assert line.startswith("error: "), self.err
        assert not self.out
        return line.removeprefix("error: ")


Symbiont = Callable[..., Said]
"""Types a command in this process."""
